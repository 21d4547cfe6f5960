"""Reading model files that nobody vouches for: safetensors directories and GGUF files.

Import what is needed from the modules: `checkpoint.open_checkpoint`, `base.Checkpoint`.
"""
