"""What DeepSeek-V3 and GLM-5 read from a configuration, and what they refuse by name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.models import deepseek_v3, glm_moe_dsa
from colibri_engine.models.registry import load_model
from colibri_engine.quant.base import FloatTensor, IntTensor
from tests.engine.models.conftest import forward_in_chunks
from tests.fakes.memory_checkpoint import MemoryCheckpoint, memory_model
from tests.fakes.tiny_checkpoint import tiny_config

if TYPE_CHECKING:
    from collections.abc import Callable

Config = dict[str, Any]


def glm(**changes: object) -> glm_moe_dsa.Config:
    return glm_moe_dsa.Config.from_checkpoint(tiny_config("glm_moe_dsa", **changes))


def deepseek(**changes: object) -> deepseek_v3.Config:
    return deepseek_v3.Config.from_checkpoint(tiny_config("deepseek_v3", **changes))


# ---- which layers choose for themselves ---------------------------------------------------------


def full_layers(num_layers: int, **changes: object) -> list[int]:
    config = tiny_config("glm_moe_dsa", num_hidden_layers=num_layers, **changes)
    types = glm_moe_dsa.read_indexer_types(config, num_layers)
    return [layer for layer, is_full in enumerate(types) if is_full]


def test_the_published_rule_of_glm_5_2() -> None:
    found = full_layers(78, index_topk_freq=4, index_skip_topk_offset=3)
    assert found == [0, 1, 2, *range(6, 75, 4)]
    assert len(found) == 21


def test_without_a_rule_every_layer_chooses() -> None:
    assert full_layers(5, index_topk_freq=None, index_skip_topk_offset=None) == [0, 1, 2, 3, 4]


def test_a_pattern_wins_over_the_rule_and_a_list_over_both() -> None:
    assert full_layers(4, index_topk_pattern="FSSF") == [0, 3]
    assert full_layers(4, index_topk_pattern=["full", "full", "shared", "shared"]) == [0, 1]
    types = ["full", "shared", "full", "shared", "full"]  # one more, for the draft layer
    assert full_layers(4, index_topk_pattern="FSSF", indexer_types=types) == [0, 2]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"indexer_types": ["full"]}, "indexer_types"),
        ({"indexer_types": ["full", "none", "full", "full"]}, "indexer_types.*'none'"),
        ({"indexer_types": "full"}, "indexer_types"),
        ({"index_topk_pattern": "FS"}, "index_topk_pattern"),
        ({"index_topk_pattern": "FSXF"}, "index_topk_pattern"),
        ({"index_topk_pattern": 4}, "index_topk_pattern"),
        ({"index_topk_pattern": "SFFF"}, "layer 0"),
        ({"index_topk_freq": 0}, "index_topk_freq"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 0}, "layer 0"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(changes: Config, key: str) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        full_layers(4, **changes)


# ---- other settings -----------------------------------------------------------------------------


def test_dense_layers_come_from_the_list_if_there_is_one() -> None:
    assert glm(first_k_dense_replace=2).mixture_layers == (False, False, True, True)
    kinds = ["dense", "sparse", "dense", "sparse"]
    config = glm(first_k_dense_replace=2, mlp_layer_types=kinds)
    assert config.mixture_layers == (False, True, False, True)


def test_key_value_heads_are_nominal() -> None:
    assert deepseek(num_key_value_heads=1) == deepseek(num_key_value_heads=None) == deepseek()


def test_groups_left_out_are_those_of_the_family() -> None:
    absent = {"n_group": None, "topk_group": None, "n_routed_experts": 16}
    shape = deepseek(**absent, num_experts_per_tok=4).mixture
    assert (shape.num_groups, shape.kept_groups) == (8, 4)
    kimi = deepseek_v3.Config.from_checkpoint(tiny_config("kimi_k2", **absent))
    assert (kimi.mixture.num_groups, kimi.mixture.kept_groups) == (1, 1)


REFUSED: dict[str, tuple[Callable[..., object], Config]] = {
    "attention_bias": (deepseek, {"attention_bias": True}),
    "num_key_value_heads": (deepseek, {"num_key_value_heads": 2}),
    "moe_layer_freq": (deepseek, {"moe_layer_freq": 2}),
    "pretraining_tp": (deepseek, {"pretraining_tp": 2}),
    "hidden_act": (deepseek, {"hidden_act": "gelu"}),
    "scoring_func": (deepseek, {"scoring_func": "softmax"}),
    "topk_method": (deepseek, {"topk_method": "greedy"}),
    "kv_lora_rank": (deepseek, {"kv_lora_rank": None}),
    "qk_rope_head_dim": (deepseek, {"qk_rope_head_dim": 0}),
    "rope_interleave": (deepseek, {"rope_interleave": "yes"}),
    "3 experts per token": (deepseek, {"n_group": 4, "topk_group": 1}),
    "mlp_bias": (glm, {"mlp_bias": True}),
    "q_lora_rank": (glm, {"q_lora_rank": None}),
    "index_topk": (glm, {"index_topk": 0}),
    "index_head_dim": (glm, {"index_head_dim": 4}),
    "index_n_heads": (glm, {"index_n_heads": "16"}),
    "mlp_layer_types": (glm, {"mlp_layer_types": ["dense", "sparse", "sparse", "gated"]}),
    "indexer_rope_interleave": (glm, {"indexer_rope_interleave": 1}),
    "index_share_for_mtp_iteration": (glm, {"index_share_for_mtp_iteration": "no"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_is_not_implemented_is_refused_by_name(name: str) -> None:
    read, changes = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=name):
        read(**changes)


@pytest.mark.parametrize("read", [glm, deepseek])
@pytest.mark.parametrize("count", [0, 9])
def test_another_number_of_experts_must_exist(read: Callable[..., Any], count: int) -> None:
    assert read().with_experts_per_token(5).num_experts_per_token == 5
    with pytest.raises(UnsupportedModel, match=f"{count} experts"):
        read().with_experts_per_token(count)


# ---- tensors ------------------------------------------------------------------------------------


def load(checkpoint: MemoryCheckpoint) -> Any:  # noqa: ANN401 - one of the models
    return load_model(checkpoint, numerics="float")  # type: ignore[arg-type]


def test_indexers_of_shared_layers_are_passed_over() -> None:
    checkpoint = memory_model("glm_moe_dsa")
    for name in [n for n in checkpoint.tensors if n.startswith("model.layers.0.self_attn.indexer")]:
        other = name.replace("layers.0.", "layers.2.")
        assert other not in checkpoint.tensors
        checkpoint.tensors[other] = checkpoint.tensors[name]
    load(checkpoint)


def test_without_any_indexer_attention_is_dense_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoint = memory_model("glm_moe_dsa")
    for name in [n for n in checkpoint.tensors if ".indexer." in n]:
        del checkpoint.tensors[name]
    with caplog.at_level(logging.WARNING, logger="colibri_engine"):
        model = load(checkpoint)
    assert "no indexer" in caplog.text
    cache = model.make_cache()
    cache.reserve(1)
    full = load(memory_model("glm_moe_dsa")).make_cache()
    full.reserve(1)
    assert cache.nbytes < full.nbytes


def test_an_indexer_that_is_not_whole_is_refused() -> None:
    checkpoint = memory_model("glm_moe_dsa")
    missing = "model.layers.1.self_attn.indexer.k_norm.bias"
    del checkpoint.tensors[missing]
    with pytest.raises(CheckpointError, match=missing):
        load(checkpoint)


@pytest.mark.parametrize("family", ["deepseek_v3", "glm_moe_dsa"])
def test_halves_kept_apart_are_the_projection_they_come_from(family: str) -> None:
    whole = memory_model(family)
    apart = MemoryCheckpoint(whole.config, dict(whole.tensors))
    heads, rank = whole.config["num_attention_heads"], whole.config["kv_lora_rank"]
    key_dim = whole.config["qk_nope_head_dim"]
    for name in [n for n in whole.tensors if n.endswith("kv_b_proj.weight")]:
        rows = apart.tensors.pop(name).unpack().reshape(heads, -1, rank)
        keys = np.ascontiguousarray(rows[:, :key_dim].transpose(0, 2, 1)).reshape(-1, key_dim)
        values = np.ascontiguousarray(rows[:, key_dim:]).reshape(-1, rank)
        apart.tensors[name.replace("kv_b", "k_b")] = FloatTensor(keys)
        apart.tensors[name.replace("kv_b", "v_b")] = FloatTensor(values)
    ids = np.arange(20, dtype=np.int32)
    want = forward_in_chunks(load(whole), ids, 20)
    np.testing.assert_array_equal(forward_in_chunks(load(apart), ids, 20), want)


def rotated_in_part(checkpoint: MemoryCheckpoint, ending: str) -> MemoryCheckpoint:
    """Return a model some of whose matrices are stored rotated, with the values they stand for."""
    rng = np.random.default_rng(4)
    tensors = dict(checkpoint.tensors)
    for name in [n for n in tensors if n.endswith(ending)]:
        outputs, inputs = tensors[name].shape
        tensors[name] = IntTensor(
            codes=rng.integers(0, 256, (outputs, inputs), dtype=np.uint8),
            scales=np.full((outputs, 1), 0.01 * inputs**-0.5, np.float32),
            zero=128,
            mins=None,
            bits=8,
            group=-(-inputs // 16) * 16,
            rotated=True,
        )
    return MemoryCheckpoint(checkpoint.config, tensors)


@pytest.mark.parametrize(
    "ending", ["kv_b_proj.weight", "indexer.wk.weight", "kv_a_proj_with_mqa.weight"]
)
def test_rotated_matrices_stand_for_plain_ones(ending: str) -> None:
    rotated = rotated_in_part(memory_model("glm_moe_dsa"), ending)
    plain = MemoryCheckpoint(
        rotated.config, {n: FloatTensor(t.unpack()) for n, t in rotated.tensors.items()}
    )
    ids = np.arange(20, dtype=np.int32)
    want = forward_in_chunks(load(plain), ids, 20)
    np.testing.assert_allclose(forward_in_chunks(load(rotated), ids, 20), want, atol=1e-4)
