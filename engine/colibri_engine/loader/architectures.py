"""Which architectures can be opened at all.

The models themselves stand in `colibri_engine.models`; a test holds the two together.
"""

from __future__ import annotations

from typing import Final

MODEL_TYPES: Final = (
    "deepseek_v3",
    "glm4_moe",
    "glm_moe_dsa",
    "gpt_oss",
    "inkling_mm_model",
    "inkling_text",
    "kimi_k2",
    "llama",
    "olmoe",
    "qwen3_moe",
)  # of config.json
ADDED_TYPES: Final[list[str]] = []  # by plugins, in this process
GGUF_ARCHITECTURES: Final = {  # -> model_type
    "deepseek2": "deepseek_v3",
    "glm-dsa": "glm_moe_dsa",
    "glm4moe": "glm4_moe",
    "llama": "llama",
    "gpt-oss": "gpt_oss",
    "olmoe": "olmoe",
    "qwen3moe": "qwen3_moe",
}

# Values that the library of an architecture writes where nobody gave one: they name no token.
MEANINGLESS_DEFAULTS: Final[dict[str, dict[str, int]]] = {
    "inkling_text": {"bos_token_id": 1, "eos_token_id": 2},
}
