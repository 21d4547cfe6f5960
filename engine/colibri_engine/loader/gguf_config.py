"""From the metadata of a GGUF file to the configuration a published checkpoint would have.

Only what is implemented passes: every key that would change the arithmetic and is not handled
here is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import UnsupportedModel
from colibri_engine.loader.architectures import GGUF_ARCHITECTURES
from colibri_engine.loader.gguf_experts import experts_of
from colibri_engine.loader.gguf_latent import latent_of
from colibri_engine.loader.gguf_rope import rope_of
from colibri_engine.loader.metadata_reader import MetadataReader

if TYPE_CHECKING:
    from colibri_engine.loader.gguf_parts import GgufParts

_MAX_WIDTH: Final = 1 << 20
_MAX_CONTEXT: Final = 1 << 30
_LATENT: Final = frozenset({"deepseek2", "glm-dsa"})

# Keys that change the arithmetic when they are set to anything but zero or false.
_REFUSED: Final = (
    "activation_sparsity_scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.output_scale",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_length",
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_group_scale",
    "experts_per_group",
    "final_logit_softcapping",
    "interleave_moe_layer_step",
    "logit_scale",
    "moe_every_n_layers",
    "moe_latent_size",
    "residual_scale",
    "rope.dimension_sections",
    "rope.scaling.alpha",
    "router_logit_softcapping",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "use_parallel_residual",
)
# Of those, what an architecture handles.
_HANDLED: Final = {
    "olmoe": ("attention.clamp_kqv",),
    "gpt-oss": ("attention.sliding_window", "attention.sliding_window_pattern"),
}


def architecture_of(file: GgufParts) -> str:
    """Return the file's architecture.

    Raises:
        CheckpointError: it names none.
        UnsupportedModel: it is not implemented.
    """
    name: str = MetadataReader(file.metadata, file.path).text("general.architecture")
    if name not in GGUF_ARCHITECTURES:
        raise UnsupportedModel(
            f"{file.path} is of the architecture {name!r}, which is not supported",
            hint=f"supported in GGUF files: {', '.join(sorted(GGUF_ARCHITECTURES))}",
        )
    return name


def config_of(file: GgufParts, rope_factors: list[float] | None) -> dict[str, Any]:
    """Return the configuration under the keys of a published `config.json`.

    Args:
        file: The file.
        rope_factors: Contents of its frequency factors tensor, if it has one.

    Raises:
        CheckpointError: a key is missing or out of range.
        UnsupportedModel: the architecture or a feature is not implemented.
    """
    architecture = architecture_of(file)
    data = MetadataReader(file.metadata, file.path)
    for key in _REFUSED:
        if key not in _HANDLED.get(architecture, ()) and _is_set(
            file.metadata.get(f"{architecture}.{key}")
        ):
            raise UnsupportedModel(f"{file.path} sets {architecture}.{key}, which is not supported")
    config = _common(architecture, data, file)
    if architecture in _LATENT:
        config |= latent_of(architecture, data, config, file.tensors)
        rotary_width = config["qk_rope_head_dim"]
    else:
        config |= _heads(architecture, data, config)
        rotary_width = config["head_dim"]
    config["rope_parameters"] = rope_of(architecture, data, rotary_width, rope_factors)
    config |= experts_of(architecture, data, config, file.tensors)
    return config


def generation_of(file: GgufParts) -> dict[str, Any]:
    """Return the sampling defaults the file recommends, as in `generation_config.json`."""
    data = MetadataReader(file.metadata, file.path)
    keys = {
        "temp": "temperature",
        "top_p": "top_p",
        "min_p": "min_p",
        "penalty_repeat": "repetition_penalty",
    }
    found = {
        name: data.number(f"general.sampling.{key}")
        for key, name in keys.items()
        if f"general.sampling.{key}" in data
    }
    if "general.sampling.top_k" in data:
        found["top_k"] = data.integer("general.sampling.top_k", 0, 1 << 24)
    return found


def _is_set(value: object) -> bool:
    if value is None:
        return False
    if isinstance(value, np.ndarray):
        return bool(value.any())
    return not isinstance(value, int | float) or value != 0


def _common(architecture: str, data: MetadataReader, file: GgufParts) -> dict[str, Any]:
    def key(name: str) -> str:
        return f"{architecture}.{name}"

    tensors = file.tensors
    if not data.boolean(key("attention.causal"), default=True):
        raise UnsupportedModel(f"{file.path} attends in both directions: not a text generator")
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise data.fail("the tensor token_embd.weight is missing or no matrix")
    vocab_size = embedding.shape[0]
    claimed = data.integer(key("vocab_size"), 1, 1 << 24, vocab_size)
    if claimed != vocab_size:
        raise data.fail(
            f"{key('vocab_size')} is {claimed}, but token_embd.weight has {vocab_size} rows"
        )
    num_heads = data.integer(key("attention.head_count"), 1, 1024)
    return {
        "model_type": GGUF_ARCHITECTURES[architecture],
        "hidden_size": data.integer(key("embedding_length"), 1, _MAX_WIDTH),
        "num_hidden_layers": data.integer(key("block_count"), 1, 512),
        "num_attention_heads": num_heads,
        "num_key_value_heads": data.integer(
            key("attention.head_count_kv"), 1, num_heads, num_heads
        ),
        "intermediate_size": data.integer(key("feed_forward_length"), 1, 1 << 24),
        "vocab_size": vocab_size,
        "max_position_embeddings": data.integer(key("context_length"), 1, _MAX_CONTEXT),
        "rms_norm_eps": data.number(key("attention.layer_norm_rms_epsilon")),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
    }


def _heads(architecture: str, data: MetadataReader, config: dict[str, Any]) -> dict[str, Any]:
    """Heads whose keys and values are equally wide."""

    def key(name: str) -> str:
        return f"{architecture}.attention.{name}"

    hidden_size, num_heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = data.integer(key("key_length"), 1, 1 << 16, None)
    if head_dim is None:
        if hidden_size % num_heads:
            raise data.fail(f"{hidden_size} channels do not divide into {num_heads} heads")
        head_dim = hidden_size // num_heads
    if data.integer(key("value_length"), 1, 1 << 16, head_dim) != head_dim:
        raise UnsupportedModel(f"{key('key_length')}: keys and values of different widths")
    found: dict[str, Any] = {"head_dim": head_dim}
    if architecture == "olmoe" and key("clamp_kqv") in data:
        found["clip_qkv"] = data.number(key("clamp_kqv")) or None
    if architecture == "gpt-oss":
        found |= _windows(data, config["num_hidden_layers"])
    return found


def _windows(data: MetadataReader, num_layers: int) -> dict[str, Any]:
    """Which layers of gpt-oss see a window: every other one, unless the file lists them."""
    pattern = data.array("gpt-oss.attention.sliding_window_pattern", num_layers)
    slides = [i % 2 == 0 for i in range(num_layers)] if pattern is None else pattern.tolist()
    return {
        "sliding_window": data.integer("gpt-oss.attention.sliding_window", 1, _MAX_CONTEXT),
        "layer_types": ["sliding_attention" if slide else "full_attention" for slide in slides],
    }
