"""Published checkpoints quantized by other tools: values by their definition, and refusals."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.base import IntTensor
from colibri_engine.quant.e4m3 import E4M3
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.tiny_checkpoint import (
    Floats,
    StoredArray,
    store_float,
    tiny_config,
    tiny_weights,
    tokenizer_json,
    write_checkpoint,
    write_json,
    write_safetensors,
)

GATE = "model.layers.1.mlp.experts.3.gate_proj.weight"
DOWN = "model.layers.1.mlp.experts.3.down_proj.weight"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])

Tensors = dict[str, StoredArray]


def store(values: np.ndarray, dtype: str) -> StoredArray:
    return dtype, values.shape, np.ascontiguousarray(values).tobytes()


def scales_of(values: Floats, largest: int, group: int) -> Any:  # noqa: ANN401
    """Return (O, groups) scales that bfloat16 holds exactly."""
    groups = np.abs(values.reshape(values.shape[0], -1, group)).max(axis=2) / largest
    return (groups.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def integers(values: Floats, scales: Floats, bits: int) -> Any:  # noqa: ANN401
    wide = np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)
    limit = 1 << bits - 1
    return np.rint(values / wide).clip(-limit, limit - 1).astype(np.int8)


def packed(name: str, values: Floats, bits: int, group: int) -> tuple[Tensors, Floats]:
    scales = scales_of(values, (1 << bits - 1) - 1, group)
    codes = integers(values, scales, bits)
    unsigned = (codes.astype(np.int64) + (1 << bits - 1)).astype(np.uint32)
    per_word = 32 // bits
    shifts = (np.arange(per_word) * bits).astype(np.uint32)
    words = (unsigned.reshape(len(values), -1, per_word) << shifts).sum(axis=2, dtype=np.uint32)
    tensors = {
        f"{name}_packed": store(words, "I32"),
        f"{name}_scale": store_float(scales, "BF16")[0],
        f"{name}_shape": store(np.array(values.shape, np.int64), "I64"),
    }
    return tensors, (codes * np.repeat(scales, group, axis=1)).astype(np.float32)


def int8_channels(name: str, values: Floats) -> tuple[Tensors, Floats]:
    scales = scales_of(values, 127, values.shape[1])
    codes = integers(values, scales, 8)
    return {
        name: store(codes, "I8"),
        f"{name}_scale": store_float(scales, "F32")[0],
    }, (codes * scales).astype(np.float32)


def fp8(name: str, values: Floats, blocks: tuple[int, int]) -> tuple[Tensors, Floats]:
    """Random codes under random scales: one, one per output, or one per block."""
    rng = np.random.default_rng(values.size)
    codes = rng.integers(0, 127, values.shape, dtype=np.uint8)
    codes |= rng.integers(0, 2, values.shape, dtype=np.uint8) << np.uint8(7)
    counts = [-(-size // block) for size, block in zip(values.shape, blocks, strict=True)]
    scales = (rng.random(counts) / 3000).astype(np.float32)
    rows, columns = np.indices(values.shape)
    return {
        name: store(codes, "F8_E4M3"),
        f"{name}_scale": store(scales, "F32"),
        f"{name.removesuffix('weight')}input_scale": store(np.ones(1, np.float32), "F32"),
    }, E4M3[codes] * scales[rows // blocks[0], columns // blocks[1]]


def nvfp4(name: str, values: Floats) -> tuple[Tensors, Floats]:
    rng = np.random.default_rng(values.size)
    nibbles = rng.integers(0, 16, values.shape, dtype=np.uint8)
    scales = rng.integers(1, 100, (len(values), values.shape[1] // 16), dtype=np.uint8)
    factor = np.float32(0.011)
    wide = np.repeat(E4M3[scales] * np.float32(0.5) * factor, 16, axis=1)
    doubled = (2 * E2M1[nibbles & 7] * np.where(nibbles > 7, -1, 1)).astype(np.float32)
    return {
        name: store(nibbles[:, 0::2] | nibbles[:, 1::2] << np.uint8(4), "U8"),
        f"{name}_scale": store(scales, "F8_E4M3"),
        f"{name}_scale_2": store(np.array(factor), "F32"),
        f"{name.removesuffix('weight')}input_scale": store(np.array(np.float32(1)), "F32"),
    }, doubled * wide


def scheme(**weights: object) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "int4-groups": (
        lambda n, v: packed(n, v, 4, 32),
        scheme(num_bits=4, group_size=32, strategy="group", symmetric=True, actorder=None),
    ),
    "int8-words": (lambda n, v: packed(n, v, 8, 32), scheme(num_bits=8, group_size=32)),
    "int4-rows": (lambda n, v: packed(n, v, 4, v.shape[1]), scheme(num_bits=4, group_size=None)),
    "int8-channels": (int8_channels, scheme(num_bits=8, type="int", strategy="channel")),
    "fp8-channels": (lambda n, v: fp8(n, v, (1, 1 << 20)), scheme(num_bits=8, type="float")),
    "fp8-tensor": (lambda n, v: fp8(n, v, (1 << 20, 1 << 20)), scheme(num_bits=8)),
    "fp8-blocks": (
        lambda n, v: fp8(n, v, (48, 32)),
        scheme(num_bits=8, strategy="block", block_structure=[48, 32]),
    ),
    "nvfp4": (nvfp4, NVFP4),
}


def write(directory: Path, way: str, change: Any = None) -> dict[str, Floats]:  # noqa: ANN401
    """Write a model whose experts are quantized one way; return what a reader must find."""
    directory.mkdir(parents=True, exist_ok=True)
    encode, quantization = WAYS[way]
    config = tiny_config("glm4_moe") | {"quantization_config": quantization}
    tensors: Tensors = {}
    expected: dict[str, Floats] = {}
    for name, values in tiny_weights(config).items():
        if ".experts." in name:
            part, expected[name] = encode(name, values)
            tensors |= part
        else:
            tensors[name], expected[name] = store_float(values, "BF16")
    if change is not None:
        change(tensors)
    write_safetensors(directory / "model.safetensors", tensors)
    write_json(directory / "config.json", config)
    write_json(directory / "tokenizer.json", tokenizer_json())
    return expected


def read(path: Path, name: str) -> Any:  # noqa: ANN401
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        return checkpoint.tensor(name)


@pytest.mark.parametrize("way", WAYS)
def test_every_value_is_the_defined_one(tmp_path: Path, way: str) -> None:
    expected = write(tmp_path, way)
    with contextlib.closing(open_checkpoint(tmp_path)) as checkpoint:
        assert set(checkpoint.names()) == set(expected)
        for name, wanted in expected.items():
            assert checkpoint.shape(name) == wanted.shape
            np.testing.assert_array_equal(checkpoint.array(name), wanted, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_logits_equal_those_of_the_dequantized_weights(tmp_path: Path, way: str) -> None:
    expected = write(tmp_path / "quantized", way)
    plain = write_checkpoint(tmp_path / "plain", tiny_config("glm4_moe"), expected)
    ids = np.arange(40, 60, dtype=np.int32)
    wanted = forward_in_chunks(load(plain, "float"), ids, 20)
    found = forward_in_chunks(load(tmp_path / "quantized", "float"), ids, 7)
    assert np.abs(found - wanted).max() <= 1e-4


@pytest.mark.parametrize(("way", "bits", "group"), [("int4-groups", 4, 32), ("nvfp4", 4, 16)])
def test_integers_are_held_as_integers(tmp_path: Path, way: str, bits: int, group: int) -> None:
    write(tmp_path, way)
    stored = read(tmp_path, GATE)
    assert isinstance(stored, IntTensor)
    assert (stored.bits, stored.group) == (bits, group)


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["_zero_point", "_g_idx", "_global_scale"])
def test_schemes_that_are_not_implemented_are_refused_by_tensor(tmp_path: Path, part: str) -> None:
    def add(tensors: Tensors) -> None:
        tensors[GATE + part] = store(np.zeros(4, np.int32), "I32")

    write(tmp_path, "int4-groups", add)
    with pytest.raises(UnsupportedQuantFormat, match=GATE + part):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("symmetric", False), ("num_bits", 3), ("num_bits", "4"), ("group_size", 24),
        ("actorder", "group"), ("block_structure", [128]), ("num_bits", [4]), ("actorder", ["x"]),
    ],
)  # fmt: skip
def test_weights_that_are_not_implemented_are_refused_by_key(
    tmp_path: Path, key: str, value: object
) -> None:
    write(tmp_path, "int4-groups")
    quantization = scheme(**{"num_bits": 4, "group_size": 32, key: value})
    write_json(
        tmp_path / "config.json",
        tiny_config("glm4_moe") | {"quantization_config": quantization},
    )
    with pytest.raises(UnsupportedQuantFormat, match=key):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["marlin-24", ["pack-quantized"], "nvfp4-pack-quantized"])
def test_other_layouts_of_the_library_are_refused_by_name(tmp_path: Path, name: object) -> None:
    write(tmp_path, "int4-groups")
    quantization = scheme(num_bits=4) | {"format": name}
    config = tiny_config("glm4_moe") | {"quantization_config": quantization}
    write_json(tmp_path / "config.json", config)
    with pytest.raises(UnsupportedQuantFormat, match="format"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("algorithm", ["FP8", None, "W4A8_AWQ", {}])
def test_other_algorithms_of_modelopt_are_refused_by_name(
    tmp_path: Path, algorithm: object
) -> None:
    write(tmp_path, "nvfp4")
    quantization = NVFP4 | {"quant_algo": algorithm}
    config = tiny_config("glm4_moe") | {"quantization_config": quantization}
    write_json(tmp_path / "config.json", config)
    with pytest.raises(UnsupportedQuantFormat, match="modelopt"):
        open_checkpoint(tmp_path)


def test_a_factor_that_is_a_divisor_is_refused(tmp_path: Path) -> None:
    def invert(tensors: Tensors) -> None:
        tensors[f"{GATE}_scale_2"] = store(np.array(np.float32(90)), "F32")

    write(tmp_path, "nvfp4", invert)
    with pytest.raises(UnsupportedQuantFormat, match=r"is 90\.0"):
        read(tmp_path, GATE)


@pytest.mark.parametrize(
    ("way", "part"),
    [("int4-groups", "_scale"), ("fp8-channels", "_scale"), ("nvfp4", "_scale"), ("nvfp4", "")],
)
def test_a_missing_part_is_named(tmp_path: Path, way: str, part: str) -> None:
    write(tmp_path, way, lambda tensors: tensors.pop(GATE + part))
    with pytest.raises(CheckpointError, match=f"has no {GATE}{part}"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("way", ["int4-groups", "int8-channels", "fp8-tensor", "nvfp4"])
@pytest.mark.parametrize("value", [np.nan, -1.0])
def test_scales_that_cannot_be_are_refused(tmp_path: Path, way: str, value: float) -> None:
    part = "_scale_2" if way == "nvfp4" else "_scale"

    def damage(tensors: Tensors) -> None:
        dtype, shape, data = tensors[GATE + part]
        bad = np.float32(value).tobytes()
        bad = bad[2:] if dtype == "BF16" else bad
        tensors[GATE + part] = (dtype, shape, bad + data[len(bad) :])

    write(tmp_path, way, damage)
    with pytest.raises(CheckpointError, match=f"{GATE} .*negative or not finite"):
        read(tmp_path, GATE)


@pytest.mark.parametrize(
    ("way", "part", "values", "dtype"),
    [
        ("int4-groups", "_packed", np.zeros((32, 9), np.int32), "I32"),
        ("int4-groups", "_packed", np.zeros((31, 8), np.int32), "I32"),
        ("int4-groups", "_packed", np.zeros((32, 8), np.float32), "F32"),
        ("int4-groups", "_packed", np.zeros((32, 0), np.int32), "I32"),
        ("int4-groups", "_scale", np.zeros((32, 3), np.float32), "F32"),
        ("int4-groups", "_scale", np.zeros((5, 2), np.float32), "F32"),
        ("int4-groups", "_shape", np.array([32, -64]), "I64"),
        ("int4-groups", "_shape", np.array([32, 64, 1]), "I64"),
        ("int4-groups", "_shape", np.array([32.0, 64.0]), "F64"),
        ("fp8-blocks", "_scale", np.zeros((2, 3), np.float32), "F32"),
        ("fp8-tensor", "_scale", np.zeros((0,), np.float32), "F32"),
        ("nvfp4", "_scale", np.zeros((32, 3), np.uint8), "F8_E4M3"),
        ("nvfp4", "_scale_2", np.zeros(2, np.float32), "F32"),
        ("nvfp4", "", np.zeros((32, 32), np.float32), "F32"),
    ],
)
def test_parts_of_the_wrong_shape_are_refused_by_name(
    tmp_path: Path, way: str, part: str, values: np.ndarray, dtype: str
) -> None:
    write(tmp_path, way, lambda tensors: tensors.update({GATE + part: store(values, dtype)}))
    with pytest.raises(CheckpointError, match=GATE):
        read(tmp_path, GATE)


def test_a_file_that_is_packed_and_plain_at_once_is_refused(tmp_path: Path) -> None:
    write(
        tmp_path,
        "int4-groups",
        lambda tensors: tensors.update({GATE: store(np.zeros((32, 64), np.int8), "I8")}),
    )
    with pytest.raises(CheckpointError, match=f"{GATE} .*twice"):
        open_checkpoint(tmp_path)


def test_the_config_may_hold_anything(tmp_path: Path) -> None:
    write(tmp_path, "int4-groups")
    config = json.loads((tmp_path / "config.json").read_text())
    everything: list[Any] = [[], {"a": 1}, {"a": {"weights": None}}, "x"]
    for groups in everything:
        config["quantization_config"]["config_groups"] = groups
        write_json(tmp_path / "config.json", config)
        with pytest.raises(UnsupportedQuantFormat):
            open_checkpoint(tmp_path)
