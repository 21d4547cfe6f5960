"""From a conversation to a prompt, and from raw model text back to an answer.

One file per family (`render`), plus `reasoning` and `stop`, which work on the text stream. The
source of truth is the checkpoint's own template; see `jinja`.
"""
