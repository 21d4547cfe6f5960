"""Shapes that only the configuration tells, with the sizes of published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.matrix_shapes import matrix_shape

PATH = Path("model")

GLM_5_2: dict[str, Any] = {
    "vocab_size": 154880, "hidden_size": 6144, "intermediate_size": 12288,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192,
    "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "v_head_dim": 256, "index_n_heads": 32, "index_head_dim": 128,
}  # fmt: skip

QWEN3: dict[str, Any] = {
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128,
}  # fmt: skip

OLMOE: dict[str, Any] = {
    "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024, "num_experts": 64,
    "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip

IN_GLM = {
    "self_attn.q_a_proj": (2048, 6144),
    "self_attn.q_b_proj": (16384, 2048),
    "self_attn.kv_a_proj_with_mqa": (576, 6144),
    "self_attn.kv_b_proj": (28672, 512),
    "self_attn.o_proj": (6144, 16384),
    "self_attn.indexer.wq_b": (4096, 2048),
    "self_attn.indexer.wk": (128, 6144),
    "self_attn.indexer.weights_proj": (32, 6144),
    "mlp.gate_proj": (12288, 6144),
    "mlp.down_proj": (6144, 12288),
    "mlp.gate": (256, 6144),
    "mlp.shared_experts.up_proj": (2048, 6144),
    "mlp.experts.255.gate_proj": (2048, 6144),
    "mlp.experts.0.down_proj": (6144, 2048),
    "eh_proj": (6144, 12288),
}


@pytest.mark.parametrize("name", IN_GLM)
def test_latent_attention_indexer_and_draft_head(name: str) -> None:
    assert matrix_shape(GLM_5_2, f"model.layers.78.{name}.weight", PATH) == IN_GLM[name]


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        (QWEN3, "model.layers.3.self_attn.q_proj.weight", (4096, 2048)),
        (QWEN3, "model.layers.3.self_attn.k_proj.weight", (512, 2048)),
        (QWEN3, "model.layers.3.self_attn.o_proj.weight", (2048, 4096)),
        (QWEN3, "model.layers.3.mlp.experts.7.up_proj.weight", (768, 2048)),
        (OLMOE, "model.layers.3.self_attn.v_proj.weight", (2048, 2048)),
        (OLMOE, "model.layers.3.mlp.experts.63.down_proj.weight", (2048, 1024)),
        (OLMOE, "model.embed_tokens.weight", (50304, 2048)),
        (GLM_5_2, "lm_head.weight", (154880, 6144)),
    ],
)
def test_other_architectures(config: dict[str, Any], name: str, shape: tuple[int, int]) -> None:
    assert matrix_shape(config, name, PATH) == shape


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.self_attn.q_proj.bias",
        "model.layers.3.mlp.experts.N.up_proj.weight",
        "model.layers.3.mlp.experts.up_proj.weight",
        "model.layers..mlp.gate_proj.weight",
        "model.norm.weight",
        "embed_tokens.weight",
    ],
)
def test_names_without_a_known_shape(name: str) -> None:
    with pytest.raises(CheckpointError, match="does not tell its shape"):
        matrix_shape(GLM_5_2, name, PATH)


def test_products_of_sizes_are_bounded() -> None:
    config = GLM_5_2 | {"num_attention_heads": 1 << 24, "v_head_dim": 1 << 24}
    with pytest.raises(CheckpointError, match="more than 2147483647"):
        matrix_shape(config, "model.layers.0.self_attn.o_proj.weight", PATH)
