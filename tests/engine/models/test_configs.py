"""Configuration values that the code does not implement are refused by name, before any weight."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from colibri_engine.errors import UnsupportedModel
from colibri_engine.models.registry import MODULES

COMMON: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": COMMON,
    "gpt_oss": COMMON | {"num_local_experts": 8, "num_experts_per_tok": 3},
    "olmoe": COMMON | EXPERTS,
    "qwen3_moe": COMMON | EXPERTS | {"moe_intermediate_size": 32},
    "glm4_moe": COMMON
    | {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32},
}
REFUSED: list[tuple[str, str, object]] = [
    *((family, "hidden_act", "gelu") for family in CONFIGS),
    *((family, "hidden_size", 0) for family in CONFIGS),
    *((family, "num_attention_heads", "4") for family in CONFIGS),
    *((family, "vocab_size", None) for family in CONFIGS),
    *((family, "rms_norm_eps", 0.0) for family in CONFIGS),
    *((family, "tie_word_embeddings", "yes") for family in CONFIGS),
    *((family, "num_key_value_heads", 3) for family in CONFIGS),
    *((family, "num_attention_heads", 3) for family in CONFIGS),  # 64 channels, 21 for each
    ("llama", "head_dim", 24),
    ("llama", "head_dim", 512),
    ("llama", "pretraining_tp", 2),
    ("olmoe", "clip_qkv", -1.0),
    ("olmoe", "clip_qkv", "8"),
    ("olmoe", "norm_topk_prob", 1),
    ("olmoe", "num_experts_per_tok", 9),
    ("olmoe", "num_local_experts", 16),
    ("qwen3_moe", "use_sliding_window", True),
    ("qwen3_moe", "mlp_only_layers", [4]),
    ("qwen3_moe", "mlp_only_layers", [-1]),
    ("qwen3_moe", "mlp_only_layers", 1),
    ("qwen3_moe", "mlp_only_layers", [True]),
    ("qwen3_moe", "decoder_sparse_step", 0),
    ("qwen3_moe", "num_experts_per_tok", 0),
    ("qwen3_moe", "num_local_experts", 16),
    ("gpt_oss", "layer_types", ["sliding_attention"] * 3),
    ("gpt_oss", "layer_types", ["sliding_attention"] * 3 + ["chunked_attention"]),
    ("gpt_oss", "layer_types", "sliding_attention"),
    ("gpt_oss", "sliding_window", 0),
    ("gpt_oss", "swiglu_limit", -7.0),
    ("gpt_oss", "swiglu_alpha", "1.7"),
    ("gpt_oss", "num_experts", 16),
    ("gpt_oss", "num_experts_per_tok", 9),
    ("glm4_moe", "scoring_func", "softmax"),
    ("glm4_moe", "topk_method", "greedy"),
    ("glm4_moe", "n_group", 3),
]


def read(family: str, **changes: object) -> Any:  # noqa: ANN401 - each module has its own Config
    module = import_module(f"colibri_engine.models.{MODULES[family]}")
    return module.Config.from_checkpoint({"model_type": family, **CONFIGS[family], **changes})


@pytest.mark.parametrize("family", CONFIGS)
def test_the_smallest_configuration_is_read(family: str) -> None:
    config = read(family)
    assert config.model_type == family
    assert config.num_layers == 4
    assert (config.num_experts_per_token, config.num_experts) in ((0, 0), (3, 8))


@pytest.mark.parametrize(("family", "key", "value"), REFUSED)
def test_a_value_that_is_not_implemented_is_named(family: str, key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        read(family, **{key: value})
    shown = str(value) if key in ("n_group", "num_experts_per_tok") else key
    if (key, value) == ("num_attention_heads", 3):
        shown = "head_dim 21"
    assert shown in caught.value.message
    assert caught.value.hint


BEYOND_ANY_MODEL = {
    "num_hidden_layers": 513,
    "num_attention_heads": 1025,
    "hidden_size": (1 << 20) + 1,
    "vocab_size": (1 << 24) + 1,
    "num_experts_per_tok": 65,
}


@pytest.mark.parametrize(
    ("family", "key"),
    [
        (family, key)
        for family in CONFIGS
        for key in BEYOND_ANY_MODEL
        if (family, key) != ("llama", "num_experts_per_tok")  # a dense model has none
    ],
)
def test_sizes_beyond_any_model_are_refused_by_name(family: str, key: str) -> None:
    """Not taken for what lists and buffers are made of, and never cut to what would fit."""
    with pytest.raises(
        UnsupportedModel, match=rf"{key} = {BEYOND_ANY_MODEL[key]} is outside 1\.\."
    ):
        read(family, **{key: BEYOND_ANY_MODEL[key]})


@pytest.mark.parametrize("family", ["olmoe", "qwen3_moe"])
def test_both_spellings_of_the_number_of_experts_are_read(family: str) -> None:
    assert read(family, num_experts=None, num_local_experts=8).num_experts == 8
    assert read(family, num_local_experts=8).num_experts == 8


def test_layers_of_qwen3_are_mixtures_as_the_two_keys_say() -> None:
    assert read("qwen3_moe").mixture_layers == {0, 1, 2, 3}
    assert read("qwen3_moe", decoder_sparse_step=2).mixture_layers == {1, 3}
    sparse = read("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[3, 0])
    assert sparse.mixture_layers == {1}


def test_qwen3_heads_are_as_wide_as_the_configuration_says() -> None:
    assert read("qwen3_moe").attention.head_dim == 16
    assert read("qwen3_moe", head_dim=32).attention.head_dim == 32


def test_layers_of_gpt_oss_take_turns_unless_a_list_says_otherwise() -> None:
    assert read("gpt_oss").windows == (128, 0, 128, 0)
    assert read("gpt_oss", sliding_window=32).windows == (32, 0, 32, 0)
    types = ["full_attention", "full_attention", "full_attention", "sliding_attention"]
    assert read("gpt_oss", layer_types=types).windows == (0, 0, 0, 128)


@pytest.mark.parametrize("family", ["olmoe", "qwen3_moe", "glm4_moe", "gpt_oss"])
def test_another_number_of_experts_per_token_is_within_the_model(family: str) -> None:
    config = read(family)
    assert config.with_experts_per_token(8).num_experts_per_token == 8
    for count in (0, 9):
        with pytest.raises(UnsupportedModel, match=str(count)):
            config.with_experts_per_token(count)
