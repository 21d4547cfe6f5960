"""Tiny random gpt_oss and inkling models on disk, as published; no reference library is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.fakes.tiny_checkpoint import (
    VOCAB_SIZE,
    StoredArray,
    Weights,
    store_mxfp4,
    write_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

C, L, E, F = 64, 3, 8, 32

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": C,
    "num_hidden_layers": L,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt_oss": {
        "model_type": "gpt_oss",
        "num_local_experts": E,
        "num_experts_per_tok": 3,
        "intermediate_size": F,
        "sliding_window": 24,
    },
    "inkling": {
        "model_type": "inkling_text",
        "vocab_size": VOCAB_SIZE + 5,
        "unpadded_vocab_size": VOCAB_SIZE,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 32,
        "sliding_window_size": 24,
        "local_layer_ids": [0, 2],
        "d_rel": 8,
        "rel_extent": 70,
        "log_scaling_n_floor": 50,
        "dense_mlp_idx": 1,
        "intermediate_size": 80,
        "moe_intermediate_size": F,
        "n_routed_experts": E,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "logits_mup_width_multiplier": 0.25,  # logits that differ
    },
}


class _Draw:
    """Draws weights by name.

    Args:
        seed: Of the generator.
    """

    def __init__(self, seed: int) -> None:
        self.weights: Weights = {}
        self._rng = np.random.default_rng(seed)

    def __call__(self, name: str, *shape: int, std: float | None = None, mean: float = 0.0) -> None:
        spread = shape[-1] ** -0.5 if std is None else std
        values = mean + spread * self._rng.standard_normal(shape)
        self.weights[name] = values.astype(np.float32)

    def norm(self, name: str, width: int = C) -> None:
        self(name, width, std=0.1, mean=1.0)


def write_variant(
    directory: Path, family: str, *, seed: int = 0, mxfp4: bool = False, **changes: object
) -> Path:
    """Write a model directory and return it.

    Args:
        directory: Made if absent.
        family: "gpt_oss" or "inkling".
        seed: Of the weights.
        mxfp4: Whether the experts of gpt_oss are stored in blocks.
        changes: Configuration keys that differ from `CONFIGS`.
    """
    config = {**_COMMON, **CONFIGS[family], **changes}
    draw = _Draw(seed)
    draw("model.embed_tokens.weight", config["vocab_size"], C, std=1.0)
    draw.norm("model.norm.weight")
    draw("lm_head.weight", config["vocab_size"], C)
    for layer in range(L):
        prefix = f"model.layers.{layer}"
        draw.norm(f"{prefix}.input_layernorm.weight")
        draw.norm(f"{prefix}.post_attention_layernorm.weight")
        (_gpt_oss_layer if family == "gpt_oss" else _inkling_layer)(draw, prefix, layer)
    if family == "inkling":
        draw.norm("model.embed_tokens.embed_norm.weight")
    blocks: dict[str, StoredArray] = {}
    if mxfp4:
        config["quantization_config"] = {"quant_method": "mxfp4"}
        for name in [n for n in draw.weights if n.endswith(("gate_up_proj", "down_proj"))]:
            parts = store_mxfp4(draw.weights.pop(name).swapaxes(1, 2))[:2]
            for suffix, part in zip(("blocks", "scales"), parts, strict=True):
                blocks[f"{name}_{suffix}"] = ("U8", part.shape, part.tobytes())
    return write_checkpoint(directory, config, draw.weights, blocks)


def _gpt_oss_layer(draw: _Draw, prefix: str, layer: int) -> None:
    del layer
    for name, outputs, inputs in (("q", 64, C), ("k", 32, C), ("v", 32, C), ("o", C, 64)):
        draw(f"{prefix}.self_attn.{name}_proj.weight", outputs, inputs)
        draw(f"{prefix}.self_attn.{name}_proj.bias", outputs, std=0.1)
    draw(f"{prefix}.self_attn.sinks", 4, std=1.0)
    draw(f"{prefix}.mlp.router.weight", E, C)
    draw(f"{prefix}.mlp.router.bias", E, std=0.1)
    draw(f"{prefix}.mlp.experts.gate_up_proj", E, C, 2 * F, std=C**-0.5)
    draw(f"{prefix}.mlp.experts.gate_up_proj_bias", E, 2 * F, std=0.1)
    draw(f"{prefix}.mlp.experts.down_proj", E, F, C, std=F**-0.5)
    draw(f"{prefix}.mlp.experts.down_proj_bias", E, C, std=0.1)


def _inkling_layer(draw: _Draw, prefix: str, layer: int) -> None:
    kv_heads, dim, extent = (2, 16, 70) if layer == 1 else (4, 32, 24)
    for name, outputs in (("q", 4 * dim), ("k", kv_heads * dim), ("v", kv_heads * dim), ("r", 32)):
        draw(f"{prefix}.self_attn.{name}_proj.weight", outputs, C)
    draw(f"{prefix}.self_attn.o_proj.weight", C, 4 * dim)
    draw.norm(f"{prefix}.self_attn.q_norm.weight", dim)
    draw.norm(f"{prefix}.self_attn.k_norm.weight", dim)
    draw(f"{prefix}.self_attn.rel_logits_proj.proj", 8, extent, std=0.5)
    for name in ("k", "v"):
        draw(f"{prefix}.self_attn.{name}_sconv.conv1d.weight", kv_heads * dim, 1, 4, std=0.3)
    draw(f"{prefix}.attn_sconv.conv1d.weight", C, 1, 4, std=0.3)
    draw(f"{prefix}.mlp_sconv.conv1d.weight", C, 1, 4, std=0.3)
    if layer == 0:
        draw(f"{prefix}.mlp.gate_proj.weight", 80, C)
        draw(f"{prefix}.mlp.up_proj.weight", 80, C)
        draw(f"{prefix}.mlp.down_proj.weight", C, 80)
        draw(f"{prefix}.mlp.global_scale", 1, std=0.2, mean=1.0)
        return
    draw(f"{prefix}.mlp.gate.weight", E + 2, C)
    draw(f"{prefix}.mlp.gate.global_scale", 1, std=0.2, mean=1.0)
    draw(f"{prefix}.mlp.gate.e_score_correction_bias", E, std=0.2)
    draw(f"{prefix}.mlp.experts.gate_up_proj", E, 2 * F, C)
    draw(f"{prefix}.mlp.experts.down_proj", E, C, F)
    for name in ("gate", "up"):
        draw(f"{prefix}.mlp.shared_experts.{name}_proj", 2, F, C)
    draw(f"{prefix}.mlp.shared_experts.down_proj", 2, C, F)
