"""Tiny containers: matrices as packed bytes beside their scales."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colibri_engine.quant import e8
from colibri_engine.quant.base import Floats, MatrixShape
from colibri_engine.quant.registry import MATRIX_FORMATS
from tests.fakes.tiny_checkpoint import (
    StoredArray,
    TinyCheckpoint,
    store_float,
    store_fp8,
    tiny_config,
    tiny_weights,
    tokenizer_json,
    write_json,
    write_safetensors,
)

Bytes = npt.NDArray[np.uint8]

# Bits of the codes of each integer format.
BITS = {"int8-row": 8, "int4-row": 4, "int4-grouped": 4, "int3-g64": 3, "int2-row": 2}
CONTAINER_FORMATS = (*BITS, "e8-iq3-lattice", "mxfp4", "fp8-e4m3-b128")


def quantize(values: Floats, name: str, group: int = 64) -> tuple[Bytes, Bytes]:
    """Return the bytes of weights and scales of a matrix, rounded as converters do."""
    if name == "fp8-e4m3-b128":
        (_, _, codes), (_, _, scales), _ = store_fp8(values, (128, 128))
        return np.frombuffer(codes, np.uint8), np.frombuffer(scales, np.uint8)
    if name == "e8-iq3-lattice":
        return random_e8(*values.shape)
    if name == "mxfp4":
        return _random_mxfp4(*values.shape)
    bits = BITS[name]
    largest = (1 << bits - 1) - 1
    num_outputs, num_inputs = values.shape
    if not name.endswith("-row"):
        padded = -(-num_inputs // group) * group
    else:
        padded = group = num_inputs
    groups = np.zeros((num_outputs, padded), np.float32)
    groups[:, :num_inputs] = values
    groups = groups.reshape(num_outputs, -1, group)
    scales = np.maximum(np.abs(groups).max(axis=2) / np.float32(largest), np.float32(1e-8))
    codes = np.rint(groups / scales[:, :, None]).clip(-(1 << bits - 1), largest)
    unsigned = (codes + (1 << bits - 1)).astype(np.uint8).reshape(num_outputs, -1)
    join = MATRIX_FORMATS[name].join
    assert join is not None
    return join(unsigned[:, :num_inputs]).reshape(-1), scales.reshape(-1).view(np.uint8)


def random_e8(num_outputs: int, num_inputs: int) -> tuple[Bytes, Bytes]:
    """Return blocks whose weights have about the size 1 / sqrt(inputs)."""
    rng = np.random.default_rng(num_outputs * num_inputs)
    blocks = rng.integers(0, 256, (num_outputs * -(-num_inputs // 256), 98), dtype=np.uint8)
    scales = (0.5 + rng.random(len(blocks))) / (48 * num_inputs**0.5)
    blocks[:, 96:] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1), np.array([e8.TAG], "<f4").view(np.uint8)


def _random_mxfp4(num_outputs: int, num_inputs: int) -> tuple[Bytes, Bytes]:
    rng = np.random.default_rng(num_outputs * num_inputs)
    raw = rng.integers(0, 256, num_outputs * -(-num_inputs // 2), dtype=np.uint8)
    middle = 127 - int(np.log2(3 * num_inputs**0.5))
    scales = rng.integers(middle - 1, middle + 1, num_outputs * -(-num_inputs // 32))
    return raw, scales.astype(np.uint8)


def dequantize(raw: Bytes, scales: Bytes, name: str, shape: tuple[int, int], group: int) -> Floats:
    """Return what a reader must find."""
    sizes = MatrixShape(*shape, group)
    number_format = MATRIX_FORMATS[name]
    return number_format.unpack(raw.reshape(shape[0], -1), scales, sizes)


def is_packed(name: str, values: Floats) -> bool:
    """Return whether a converter would quantise this tensor: matrices, the router excepted."""
    return values.ndim == 2 and not name.endswith(".mlp.gate.weight")


def write_container(
    directory: Path,
    family: str = "glm4_moe",
    *,
    format_name: str = "int4-grouped",
    group: int = 64,
    io_format: str | None = "int8-row",
    stamped: bool = True,
    weights: dict[str, Floats] | None = None,
    **changes: object,
) -> TinyCheckpoint:
    """Write a model directory as the converter does.

    Args:
        directory: Made if absent.
        family: See `tiny_config`.
        format_name: Format of the matrices of the layers.
        group: Inputs per scale where the format leaves it open.
        io_format: Format of embedding and head; None for plain floats.
        stamped: Whether the metadata name the formats.
        weights: Values, instead of `tiny_weights`.
        changes: Configuration keys that differ from `tiny_config`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = tiny_config(family, **changes)
    expected: dict[str, Floats] = {}
    scales: dict[str, StoredArray] = {}
    plain: dict[str, StoredArray] = {}
    stamps: dict[str, str] = {}
    for name, values in (weights or tiny_weights(config)).items():
        chosen = format_name if name.startswith("model.layers.") else io_format
        if not is_packed(name, values) or chosen is None:
            scales[name], expected[name] = store_float(values, "F32")
            continue
        raw, scale = quantize(values, chosen, group)
        plain[name] = ("U8", (raw.size,), raw.tobytes())
        is_bytes = chosen == "mxfp4"
        scales[name + ".qs"] = (
            "U8" if is_bytes else "F32",
            (scale.size if is_bytes else scale.size // 4,),
            scale.tobytes(),
        )
        stamps[name] = chosen
        shape = (values.shape[0], values.shape[1])
        expected[name] = dequantize(raw, scale, chosen, shape, group)
    metadata = {"colibri.fmt": json.dumps(stamps)} if stamped else None
    write_safetensors(directory / "out-00000.safetensors", scales | plain, metadata)
    write_json(directory / "config.json", config)
    write_json(directory / "tokenizer.json", tokenizer_json())
    return TinyCheckpoint(directory, config, expected)


def rewrite(
    directory: Path,
    change: Callable[[dict[str, StoredArray], dict[str, str]], object],
    *,
    alignment: int = 8,
) -> None:
    """Change tensors and metadata of the one weight file of a directory, both in place.

    Args:
        directory: Where it is.
        change: Called with both.
        alignment: Of the first tensor in the file.
    """
    path = directory / "out-00000.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    tensors = {
        name: (
            body["dtype"],
            tuple(body["shape"]),
            data[end + body["data_offsets"][0] : end + body["data_offsets"][1]],
        )
        for name, body in header.items()
    }
    change(tensors, metadata)
    write_safetensors(path, tensors, metadata or None, alignment=alignment)
