"""Inkling's configuration in the published spelling and in that of transformers."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_engine.errors import UnsupportedModel
from colibri_engine.models.inkling import Config

TEXT: dict[str, Any] = {
    "model_type": "inkling_text",
    "vocab_size": 256,
    "unpadded_vocab_size": 250,
    "hidden_size": 64,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 32,
    "sliding_window_size": 8,
    "d_rel": 8,
    "rel_extent": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "dense_mlp_idx": 2,
}


def read(**changes: object) -> Config:
    return Config.from_checkpoint({**TEXT, **changes})


def windows(config: Config) -> list[int]:
    return [shape.window for shape in config.attention]


def test_the_configuration_of_the_text_part_is_read() -> None:
    config = read()
    assert config.model_type == "inkling"
    assert (config.vocab_size, config.padded_vocab_size) == (250, 256)
    assert (config.num_layers, config.num_experts, config.num_experts_per_token) == (12, 8, 2)
    assert config.dense_layers == (True, True, *[False] * 10)
    assert config.logit_divisor == 24.0
    assert config.route_scale == 8.0
    local, other = config.attention[0], config.attention[5]
    assert (local.num_heads, local.num_kv_heads, local.head_dim) == (8, 4, 32)
    assert (other.num_heads, other.num_kv_heads, other.head_dim) == (4, 2, 16)
    assert (local.extent, other.extent) == (8, 32)


def test_the_text_part_of_a_model_with_towers_is_read_alike() -> None:
    whole = {"model_type": "inkling_mm_model", "text_config": TEXT, "vision_config": {}}
    assert Config.from_checkpoint(whole) == read()


def test_every_sixth_layer_is_global_unless_a_list_says_otherwise() -> None:
    assert windows(read()) == ([8] * 5 + [0]) * 2
    assert windows(read(local_layer_ids=[0, 2])) == [8, 0, 8, *[0] * 9]
    assert windows(read(local_layer_ids=[])) == [0] * 12
    types = ["hybrid"] * 11 + ["hybrid_sliding"]
    assert windows(read(layer_types=types, local_layer_ids=[0])) == [0] * 11 + [8]


def test_both_spellings_of_the_widths_are_read() -> None:
    saved = read()
    published = read(dense_intermediate_size=96, intermediate_size=48, moe_intermediate_size=None)
    assert (saved.dense_width, saved.expert_width) == (96, 48)
    assert published == saved


def test_other_spellings_are_read() -> None:
    mlp = ["dense"] * 2 + ["sparse"] * 10
    assert read(dense_mlp_idx=None, mlp_layer_types=mlp) == read()
    assert read(sconv_kernel_size=3).attention[0].taps == 3
    assert read(conv_kernel_size=3) == read(sconv_kernel_size=3)
    assert read(model_max_length=1 << 20).max_positions == 1 << 20
    assert read(max_position_embeddings=1 << 20) == read(model_max_length=1 << 20)
    assert read(unpadded_vocab_size=None).vocab_size == 256


def test_queries_grow_in_global_layers_only() -> None:
    config = read(log_scaling_n_floor=128000, log_scaling_alpha=0.2)
    assert (config.attention[5].log_floor, config.attention[5].log_alpha) == (128000, 0.2)
    assert config.attention[0].log_floor == 0
    assert read(log_scaling_n_floor=None).attention[5].log_floor == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("gate_activation", "softmax"),
        ("shared_expert_sink", False),
        ("use_gate_bias", False),
        ("norm_after_topk", False),
        ("use_global_scale", False),
        ("use_sconv", False),
        ("use_embed_norm", False),
        ("final_logit_softcapping", 30.0),
        ("tie_word_embeddings", True),
        ("layer_types", ["hybrid"] * 11),
        ("layer_types", ["hybrid"] * 11 + ["full_attention"]),
        ("mlp_layer_types", ["dense", "sparse"]),
        ("local_layer_ids", [12]),
        ("local_layer_ids", "0"),
        ("d_rel", 65),
        ("sconv_kernel_size", 17),
        ("conv_kernel_size", 0),
        ("swa_head_dim", 24),
        ("num_key_value_heads", 3),
        ("swa_num_key_value_heads", 3),
        ("rel_extent", None),
        ("logits_mup_width_multiplier", 0),
        ("log_scaling_n_floor", -1),
        ("num_experts_per_tok", 9),
        ("n_shared_experts", 0),
    ],
)
def test_a_value_that_is_not_implemented_is_named(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        read(**{key: value})
    shown = str(value) if key == "num_experts_per_tok" else key
    assert shown in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", [[], "text", 7])
def test_a_text_part_that_is_no_object_is_refused(text: object) -> None:
    with pytest.raises(UnsupportedModel, match="text_config is not an object"):
        Config.from_checkpoint({"model_type": "inkling_mm_model", "text_config": text})


def test_contradicting_spellings_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="moe_intermediate_size"):
        read(dense_intermediate_size=96, intermediate_size=64)
    with pytest.raises(UnsupportedModel, match="conv_kernel_size"):
        read(sconv_kernel_size=4, conv_kernel_size=3)


def test_another_number_of_experts_per_token_is_within_the_model() -> None:
    assert read().with_experts_per_token(8).num_experts_per_token == 8
    for count in (0, 9):
        with pytest.raises(UnsupportedModel, match=str(count)):
            read().with_experts_per_token(count)
