"""GGUF metadata becomes the configuration of a published checkpoint, or is refused by its key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, ColibriError, UnsupportedModel
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.gguf_writer import MetadataValue, TensorPlan, write_gguf
from tests.fakes.tiny_gguf import ARCHITECTURES, encode_gguf, gguf_metadata, write_gguf_model

Pairs = dict[str, MetadataValue | None]


def config_of(
    tmp_path: Path, family: str, metadata: Pairs, changes: Mapping[str, Any] = MappingProxyType({})
) -> Mapping[str, Any]:
    tiny = write_gguf_model(tmp_path / "m.gguf", family, metadata=metadata, **changes)
    checkpoint = open_checkpoint(tiny.path)
    checkpoint.close()
    return checkpoint.config


def refusal(
    tmp_path: Path, family: str, metadata: Pairs, kind: type[ColibriError] = UnsupportedModel
) -> str:
    with pytest.raises(kind) as caught:
        config_of(tmp_path, family, metadata)
    return str(caught.value)


def test_defaults_of_llama(tmp_path: Path) -> None:
    left_out = ("attention.key_length", "attention.value_length", "attention.head_count_kv")
    metadata: Pairs = {f"llama.{key}": None for key in left_out}
    metadata |= {"llama.rope.freq_base": None, "llama.rope.dimension_count": None}
    config = config_of(tmp_path, "llama", metadata, {"num_key_value_heads": 4})
    assert config["head_dim"] == 16
    assert config["num_key_value_heads"] == 4
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}
    assert config["attention_bias"] is False
    assert config["mlp_bias"] is False


def test_numbers_are_the_shortest_decimals_of_their_float32(tmp_path: Path) -> None:
    metadata: Pairs = {
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 500000.0,
    }
    config = config_of(tmp_path, "llama", metadata)
    assert config["rms_norm_eps"] == 1e-6
    assert config["rope_parameters"]["rope_theta"] == 500000.0


def test_per_layer_values_may_agree_but_not_differ(tmp_path: Path) -> None:
    key = "llama.attention.head_count_kv"
    config = config_of(tmp_path, "llama", {key: np.array([2, 2], np.int32)})
    assert config["num_key_value_heads"] == 2
    error = refusal(tmp_path, "llama", {key: np.array([2, 1], np.int32)}, CheckpointError)
    assert f"{key} differs between layers" in error


def test_glm_without_optional_keys(tmp_path: Path) -> None:
    names = ("expert_weights_norm", "expert_weights_scale", "expert_gating_func")
    config = config_of(tmp_path, "glm4_moe", {f"glm4moe.{name}": None for name in names})
    assert config["norm_topk_prob"] is False
    assert config["routed_scaling_factor"] == 1.0
    assert (config["n_group"], config["topk_group"]) == (1, 1)
    assert config["use_qk_norm"] is True
    assert config["rope_parameters"]["partial_rotary_factor"] == 0.5


def test_softmax_routers_without_optional_keys_are_as_published(tmp_path: Path) -> None:
    olmoe: Pairs = {"olmoe.expert_weights_norm": None, "olmoe.expert_feed_forward_length": None}
    config = config_of(tmp_path, "olmoe", olmoe)
    assert config["norm_topk_prob"] is False
    assert config["intermediate_size"] == 32
    assert "clip_qkv" not in config
    assert config_of(tmp_path, "olmoe", {"olmoe.attention.clamp_kqv": 0.0})["clip_qkv"] is None
    assert config_of(tmp_path, "olmoe", {"olmoe.attention.clamp_kqv": 8.0})["clip_qkv"] == 8.0
    qwen = config_of(tmp_path, "qwen3_moe", {"qwen3moe.expert_weights_norm": None})
    assert qwen["norm_topk_prob"] is True
    assert (qwen["head_dim"], qwen["moe_intermediate_size"]) == (32, 32)


def test_glm_prediction_layers_are_not_decoder_layers(tmp_path: Path) -> None:
    config = config_of(tmp_path, "glm4_moe", {"glm4moe.nextn_predict_layers": 1})
    assert config["num_hidden_layers"] == 1
    assert config["num_nextn_predict_layers"] == 1


@pytest.mark.parametrize(
    ("family", "key", "value", "word"),
    [
        ("llama", "general.architecture", "qwen3", "'qwen3'"),
        ("llama", "general.architecture", "inkling", "'inkling'"),
        ("llama", "llama.expert_count", 8, "experts"),
        ("llama", "llama.attention.sliding_window", 4096, "attention.sliding_window"),
        ("llama", "llama.final_logit_softcapping", 30.0, "final_logit_softcapping"),
        ("llama", "llama.logit_scale", 0.5, "logit_scale"),
        ("llama", "llama.attention.value_length", 32, "different widths"),
        ("llama", "llama.attention.causal", False, "both directions"),
        ("llama", "llama.rope.dimension_count", 8, "partial rotary"),
        ("llama", "llama.rope.scaling.type", "longrope", "'longrope'"),
        ("llama", "llama.attention.clamp_kqv", 8.0, "attention.clamp_kqv"),
        ("llama", "llama.attention.temperature_scale", 0.1, "attention.temperature_scale"),
        ("llama", "llama.rope.dimension_sections", np.array([1, 1, 2, 0]), "dimension_sections"),
        ("llama", "llama.attention.sliding_window_pattern", 6, "sliding_window_pattern"),
        ("olmoe", "olmoe.expert_gating_func", 2, "expert_gating_func is not softmax"),
        ("olmoe", "olmoe.expert_weights_scale", 2.5, "expert_weights_scale is 2.5"),
        ("qwen3_moe", "qwen3moe.expert_gating_func", 2, "expert_gating_func is not softmax"),
        ("qwen3_moe", "qwen3moe.attention.sliding_window", 128, "attention.sliding_window"),
        ("qwen3_moe", "qwen3moe.rope.dimension_count", 8, "partial rotary"),
        ("glm4_moe", "glm4moe.expert_gating_func", 1, "expert_gating_func is not sigmoid"),
        ("glm4_moe", "glm4moe.expert_shared_feed_forward_length", 64, "shared experts"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    tmp_path: Path, family: str, key: str, value: MetadataValue, word: str
) -> None:
    assert word in refusal(tmp_path, family, {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0), ("block_count", -1), ("block_count", 100_000), ("block_count", "2"),
        ("block_count", 2.0), ("block_count", True), ("embedding_length", 1 << 31),
        ("attention.head_count", 0), ("attention.head_count_kv", 5), ("context_length", 0),
        ("attention.layer_norm_rms_epsilon", math.nan), ("attention.layer_norm_rms_epsilon", "x"),
        ("attention.layer_norm_rms_epsilon", None), ("block_count", None),
        ("embedding_length", None), ("feed_forward_length", None), ("context_length", None),
        ("attention.head_count", None), ("rope.freq_base", math.inf), ("attention.causal", 3),
        ("rope.scaling.type", 4),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_key(
    tmp_path: Path, key: str, value: MetadataValue | None
) -> None:
    assert f"llama.{key}" in refusal(tmp_path, "llama", {f"llama.{key}": value}, CheckpointError)


@pytest.mark.parametrize("rows", [100, 512])
def test_an_embedding_of_another_size_than_the_vocabulary_is_allowed(
    tmp_path: Path, rows: int
) -> None:
    assert config_of(tmp_path, "llama", {}, {"vocab_size": rows})["vocab_size"] == rows


def test_linear_and_yarn_scaling_are_passed_on(tmp_path: Path) -> None:
    metadata: Pairs = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    rope = config_of(tmp_path, "llama", metadata)["rope_parameters"]
    assert rope == {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    metadata = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.original_context_length": 32,
    }
    rope = config_of(tmp_path, "llama", metadata)["rope_parameters"]
    assert rope == {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }
    metadata |= {
        "llama.rope.scaling.yarn_beta_fast": 20.0,
        "llama.rope.scaling.yarn_beta_slow": 2.0,
        "llama.rope.scaling.yarn_attn_factor": 1.25,
        "llama.rope.scaling.yarn_ext_factor": 1.0,
        "llama.rope.scaling.attn_factor": 1.0,
    }
    rope = config_of(tmp_path, "llama", metadata)["rope_parameters"]
    assert (rope["beta_fast"], rope["beta_slow"], rope["attention_factor"]) == (20.0, 2.0, 1.25)


@pytest.mark.parametrize(
    ("key", "value"),
    [("yarn_ext_factor", 0.5), ("attn_factor", 2.0), ("yarn_log_multiplier", 0.1)],
)
def test_what_yarn_does_not_have_here_is_refused_by_name(
    tmp_path: Path, key: str, value: float
) -> None:
    metadata: Pairs = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.original_context_length": 32,
        f"llama.rope.scaling.{key}": value,
    }
    assert f"llama.rope.scaling.{key}" in refusal(tmp_path, "llama", metadata)


# ---- tensors beside the weights -----------------------------------------------------------------


def write_with_extra(path: Path, name: str, values: np.ndarray[Any, Any]) -> None:
    source = write_gguf_model(
        path.with_suffix(".tmp"), rope_parameters={"rope_theta": 500000.0}, head_dim=128
    )
    rng = np.random.default_rng(0)
    plans = [TensorPlan(name, values.shape, "F32", lambda: values)]
    for published, stored in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
    ):
        raw, _ = encode_gguf(source.weights[published], "F32", rng)
        shape = source.weights[published].shape
        plans.append(TensorPlan(stored, shape, "F32", lambda raw=raw: raw))  # type: ignore[misc]
    with path.open("wb") as file:
        for _ in write_gguf(file, gguf_metadata(source.config), plans):
            pass


def llama3_factors(factor: float) -> np.ndarray[Any, Any]:
    """Return what converters store for the rule published with Llama 3.1."""
    factors = []
    for place in range(64):
        frequency = 500000.0 ** (-2 * place / 128)
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192 / 1:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_factors_of_the_llama3_rule_become_the_rule(tmp_path: Path, factor: float) -> None:
    path = tmp_path / "m.gguf"
    write_with_extra(path, "rope_freqs.weight", llama3_factors(factor))
    checkpoint = open_checkpoint(path)
    assert checkpoint.config["rope_parameters"] == {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert "rope_freqs.weight" not in checkpoint.names()
    checkpoint.close()


def test_other_factors_are_passed_on_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    factors = llama3_factors(8.0)
    factors[30] *= 1.01
    write_with_extra(path, "rope_freqs.weight", factors)
    checkpoint = open_checkpoint(path)
    rope = checkpoint.config["rope_parameters"]
    assert rope["rope_type"] == "frequency_factors"
    assert rope["frequency_factors"] == factors.tolist()
    checkpoint.close()


@pytest.mark.parametrize(
    "values",
    [np.ones(3, np.float32), np.zeros(64, np.float32), np.full(64, np.nan, np.float32)],
)
def test_factors_that_cannot_be_are_refused(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    path = tmp_path / "m.gguf"
    write_with_extra(path, "rope_freqs.weight", values)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.attn_q_norm.weight", "blk.0.ssm_a.weight", "blk.0.ffn_gate_exps.weight",
        "blk.00.attn_q.weight", "blk.0.attn_q.scale", "whatever",
    ],
)  # fmt: skip
def test_a_tensor_of_no_known_place_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.gguf"
    write_with_extra(path, name, np.ones(4, np.float32))
    with pytest.raises(UnsupportedModel) as caught:
        open_checkpoint(path)
    assert name in str(caught.value)


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 1, 2, 2)])
def test_a_weight_of_more_than_two_dimensions_is_refused(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "m.gguf"
    write_with_extra(path, "blk.0.ffn_up.weight", np.ones(shape, np.float32))
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.ffn_up\.weight"):
        open_checkpoint(path)


def test_more_experts_than_any_model_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny = write_gguf_model(tmp_path / "glm.gguf", "glm4_moe")
    values = np.ones((4097, 1, 1), np.float32)
    plans = [
        TensorPlan("token_embd.weight", (512, 64), "F32", lambda: np.ones((512, 64), np.float32)),
        TensorPlan("blk.1.ffn_up_exps.weight", values.shape, "F32", lambda: values),
    ]
    with path.open("wb") as file:
        for _ in write_gguf(file, gguf_metadata(tiny.config), plans):
            pass
    with pytest.raises(UnsupportedModel, match="ffn_up_exps"):
        open_checkpoint(path)


def test_names_follow_the_reference_map(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for family, architecture in ARCHITECTURES.items():
        arch = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
        tiny = write_gguf_model(tmp_path / "m.gguf", family, type_name="F32")
        table = gguf.get_tensor_name_map(arch, tiny.config["num_hidden_layers"])
        reader = gguf.GGUFReader(tiny.path)
        stored = {tensor.name for tensor in reader.tensors}
        for name in tiny.weights:
            suffix = name.rsplit(".", 1)[1]
            if ".experts." in name or suffix == "e_score_correction_bias":
                continue
            assert table.get_name(name, try_suffixes=(".weight", ".bias")) in stored, name
