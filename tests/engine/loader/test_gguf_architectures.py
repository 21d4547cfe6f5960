"""What each architecture reads from a GGUF file, and that no value of a key brings it down."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.errors import ColibriError, UnsupportedModel
from colibri_engine.loader.architectures import GGUF_ARCHITECTURES
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.gguf_writer import MetadataValue, TensorPlan
from tests.fakes.tiny_checkpoint import tiny_config
from tests.fakes.tiny_gguf import gguf_metadata, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Pairs = dict[str, MetadataValue]

ROWS = 512
TOP = ("token_embd.weight", "output_norm.weight", "output.weight")
EXPERTS: Pairs = {
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 32,
}
SHARED: Pairs = {**EXPERTS, "expert_shared_count": 1, "leading_dense_block_count": 1}
LATENT: Pairs = {
    **SHARED,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 48,
    "attention.kv_lora_rank": 32,
    "attention.key_length": 40,
    "attention.value_length": 32,
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 20,
    "rope.dimension_count": 8,
}
# What each architecture needs beside what all have.
KEYS: dict[str, Pairs] = {
    "llama": {},
    "olmoe": EXPERTS,
    "qwen3moe": EXPERTS,
    "glm4moe": SHARED,
    "gpt-oss": {**EXPERTS, "attention.sliding_window": 8},
    "deepseek2": LATENT,
    "glm-dsa": {
        **LATENT,
        "attention.indexer.head_count": 4,
        "attention.indexer.key_length": 16,
        "attention.indexer.top_k": 8,
    },
}
CORRECTED = ("glm4moe", "deepseek2", "glm-dsa")


def config_of(
    directory: Path,
    architecture: str,
    changes: Mapping[str, MetadataValue | None],
    *,
    tensors: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """Write a file without layers and read its configuration."""
    llama = gguf_metadata(tiny_config("llama"))
    common = {key.removeprefix("llama."): v for key, v in llama.items() if key.startswith("llama.")}
    if architecture in ("deepseek2", "glm-dsa"):
        common = {k: v for k, v in common.items() if "length" not in k or "attention" not in k}
    pairs: dict[str, Any] = {k: v for k, v in llama.items() if not k.startswith("llama.")}
    pairs["general.architecture"] = architecture
    own = {**common, **KEYS[architecture], **changes}
    pairs |= {f"{architecture}.{key}": value for key, value in own.items() if value is not None}
    names = [*TOP, *tensors]
    if architecture in CORRECTED:
        names.append("blk.1.exp_probs_b.bias")
    plans = [
        TensorPlan(name, (ROWS, 64), "F32", lambda: np.zeros((ROWS, 64), np.float32))
        for name in names
    ]
    path = directory / "m.gguf"
    write_file(path, pairs, plans)
    with closing(open_checkpoint(path)) as checkpoint:
        return checkpoint.config


def test_every_architecture_is_here() -> None:
    assert set(KEYS) == set(GGUF_ARCHITECTURES)


@pytest.mark.parametrize("architecture", sorted(KEYS))
def test_the_smallest_file_is_read(tmp_path: Path, architecture: str) -> None:
    config = config_of(tmp_path, architecture, {})
    assert config["model_type"] == GGUF_ARCHITECTURES[architecture]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (64, 2)


def test_sizes_of_latent_attention(tmp_path: Path) -> None:
    config = config_of(tmp_path, "deepseek2", {})
    sizes = {
        "q_lora_rank": 48,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 20,
        "num_key_value_heads": 4,
    }
    assert {key: config[key] for key in sizes} == sizes
    older: Pairs = {"attention.key_length": 24, "attention.value_length": 20}
    older |= {"attention.head_count_kv": 4}
    halves = {"attention.key_length_mla": None, "attention.value_length_mla": None}
    assert config_of(tmp_path, "deepseek2", {**older, **halves}) == config
    plain = config_of(tmp_path, "deepseek2", {"attention.q_lora_rank": None})
    assert plain["q_lora_rank"] is None


def test_latent_attention_keeps_a_tenth_of_its_magnitude(tmp_path: Path) -> None:
    scaling: Pairs = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    }
    rope = config_of(tmp_path, "deepseek2", scaling)["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("yarn", 40.0)
    assert rope["mscale"] == rope["mscale_all_dim"] == 0.707
    assert "attention_factor" not in rope


FIRST = "blk.0.indexer.attn_k.weight"
BOTH = (FIRST, "blk.1.indexer.attn_k.weight")


@pytest.mark.parametrize(
    ("changes", "tensors", "expected"),
    [
        ({"attention.indexer.types": np.array([1, 0], np.uint8)}, BOTH, ["full", "shared"]),
        ({}, BOTH, None),
        ({"context_length": 1 << 20}, BOTH, None),
        ({}, (FIRST,), ["full", "shared"]),
        ({"context_length": 1 << 20}, (FIRST,), ["full", "shared"]),
    ],
)
def test_kinds_of_indexers(
    tmp_path: Path, changes: Pairs, tensors: tuple[str, ...], expected: list[str] | None
) -> None:
    draft: Pairs = {"block_count": 3, "nextn_predict_layers": 1}
    config = config_of(tmp_path, "glm-dsa", {**draft, **changes}, tensors=tensors)
    assert (config["num_hidden_layers"], config["num_nextn_predict_layers"]) == (2, 1)
    assert (config["index_n_heads"], config["index_head_dim"], config["index_topk"]) == (4, 16, 8)
    assert config.get("indexer_types") == expected
    long_and_untold = expected is None and "context_length" in changes
    shares = (config.get("index_topk_freq"), config.get("index_skip_topk_offset"))
    assert shares == ((4, 3) if long_and_untold else (None, None))


def test_windows_of_gpt_oss(tmp_path: Path) -> None:
    config = config_of(tmp_path, "gpt-oss", {})
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert (config["sliding_window"], config["swiglu_limit"]) == (8, 7.0)
    pattern = {"attention.sliding_window_pattern": np.array([0, 1], np.uint8)}
    listed = config_of(tmp_path, "gpt-oss", pattern)
    assert listed["layer_types"] == ["full_attention", "sliding_attention"]
    scaling: Pairs = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }
    assert config_of(tmp_path, "gpt-oss", scaling)["rope_parameters"]["truncate"] is False


@pytest.mark.parametrize(
    ("architecture", "key", "value", "word"),
    [
        ("deepseek2", "expert_gating_func", 1, "expert_gating_func is not sigmoid"),
        ("deepseek2", "attention.key_length_mla", 8, "of which 8 rotate"),
        ("deepseek2", "attention.key_length", 41, "is not 32 + 8"),
        ("deepseek2", "attention.temperature_scale", 0.1, "attention.temperature_scale"),
        ("glm-dsa", "expert_gating_func", 3, "expert_gating_func is not sigmoid"),
        ("gpt-oss", "expert_gating_func", 1, "expert_gating_func is not softmax of the chosen"),
        ("gpt-oss", "expert_weights_scale", 2.0, "expert_weights_scale is 2.0"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    tmp_path: Path, architecture: str, key: str, value: MetadataValue, word: str
) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        config_of(tmp_path, architecture, {key: value})
    assert word in caught.value.message


WILD: tuple[MetadataValue | None, ...] = (
    None, 0, 1, -1, 7, 1 << 31, 3.5, 0.0, float("nan"), float("inf"), True, "yarn", "",
    ["a"], np.array([], np.int32), np.array([1, 0], np.uint8), np.array([3, 3, 3], np.uint32),
    np.array([1e30, -1.0], np.float32),
)  # fmt: skip


@pytest.mark.parametrize("architecture", sorted(KEYS))
def test_any_value_of_any_key_is_read_or_refused(tmp_path: Path, architecture: str) -> None:
    common = ("block_count", "attention.head_count", "rope.freq_base", "rope.dimension_count")
    more = (
        "rope.scaling.type", "rope.scaling.factor", "rope.scaling.yarn_log_multiplier",
        "expert_gating_func", "expert_weights_scale", "expert_weights_norm", "expert_group_count",
        "nextn_predict_layers", "attention.indexer.types", "attention.sliding_window_pattern",
        "attention.clamp_kqv", "expert_shared_feed_forward_length",
    )  # fmt: skip
    read = 0
    refusals = []
    for key in (*KEYS[architecture], *common, *more):
        for value in WILD:
            try:
                config_of(tmp_path, architecture, {key: value})
                read += 1
            except ColibriError as error:
                refusals.append(error.message)
    assert read
    assert refusals
    assert all(message.isprintable() for message in refusals)
