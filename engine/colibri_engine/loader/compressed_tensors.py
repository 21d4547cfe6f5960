"""Matrices as the compressed-tensors library stores them.

`X.weight_packed`, int32 words of 4- or 8-bit integers, with `X.weight_scale` and
`X.weight_shape`; or `X.weight`, int8 or E4M3, with `X.weight_scale` for the matrix, each output,
or blocks. Scales of activations are not needed: activations keep their precision here.
Source: the compressed-tensors format, https://github.com/neuralmagic/compressed-tensors.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.plain_tensors import read_floats
from colibri_engine.quant import int4_grouped
from colibri_engine.quant.base import FloatTensor, IntTensor, MatrixShape, StoredTensor, row_group
from colibri_engine.quant.fp8_blocks import fp8_matrix

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from colibri_engine.loader.shards import ShardSet
    from colibri_engine.quant.base import Bytes, Floats

_FORMATS: Final = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision",
)  # fmt: skip
_NO_REORDERING: Final = (None, False, "weight", "static")
_PACKED: Final = "_packed"
_SCALE: Final = "_scale"
_SHAPE: Final = "_shape"
# What a plain reading would silently get wrong.
_UNSUPPORTED: Final = ("_zero_point", "_g_idx", "_global_scale")
_OF_ACTIVATIONS: Final = re.compile(
    r".+\.(input_scale|input_zero_point|input_global_scale|output_scale|k_scale|v_scale)"
)
_QUANTIZED: Final = frozenset({"I8", "F8_E4M3"})


class CompressedTensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.
        quantization: `quantization_config` of the model.

    Raises:
        UnsupportedQuantFormat: a scheme that is not implemented.
        CheckpointError: a matrix has no scales.
    """

    def __init__(self, shards: ShardSet, quantization: Mapping[str, Any]) -> None:
        self._shards = shards
        self._scheme = _Scheme(quantization, shards.directory)
        self._stored: dict[str, str] = {}  # published name -> stored tensor
        self.claimed = {name for name in shards.names() if _OF_ACTIVATIONS.fullmatch(name)}
        for stored in shards.names():
            if stored.endswith(f".weight{_PACKED}"):
                self._add(stored.removesuffix(_PACKED), stored)
            elif stored.endswith(".weight") and shards.entry(stored).dtype in _QUANTIZED:
                self._add(stored, stored)

    def names(self) -> Collection[str]:
        """Return the published names of the matrices."""
        return self._stored.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return (O, I)."""
        entry = self._shards.entry(self._stored[name])
        if self._stored[name] == name:
            return entry.shape
        if name + _SHAPE not in self._shards:
            raise self._bad(name, f"has no {name}{_SHAPE}")
        dtype = {"I64": "<i8", "I32": "<i4"}.get(self._shards.entry(name + _SHAPE).dtype)
        raw = self._shards.read(name + _SHAPE)
        sizes = [] if dtype is None else raw.view(dtype).tolist()
        if len(sizes) != 2 or not all(0 < size < 1 << 31 for size in sizes):
            raise self._bad(name, f"has a {name}{_SHAPE} that is no pair of sizes")
        return sizes[0], sizes[1]

    def format_name(self, name: str) -> str:
        """Return the type of the stored weights."""
        return self._shards.entry(self._stored[name]).dtype

    def read(self, name: str) -> StoredTensor:
        """Read a matrix as it is stored."""
        shape = self.shape(name)
        if len(shape) != 2:
            raise self._bad(name, "is no matrix")
        scales = self._scales(name)
        if scales.shape[0] == 1 and self._shards.entry(self._stored[name]).dtype != "F8_E4M3":
            scales = np.repeat(scales, shape[0], axis=0)
        if self._stored[name] != name:
            return self._unpack(name, MatrixShape(*shape), scales)
        raw = self._shards.read(name).reshape(shape)
        if self._shards.entry(name).dtype == "I8":
            return self._integers(name, raw ^ np.uint8(0x80), scales)
        return self._fp8(name, raw, scales)

    def _unpack(self, name: str, shape: MatrixShape, scales: Floats) -> IntTensor:
        entry = self._shards.entry(self._stored[name])
        if entry.dtype != "I32" or len(entry.shape) != 2 or entry.shape[0] != shape.num_outputs:
            raise self._bad(name, f"has words of {entry.dtype} in shape {list(entry.shape)}")
        fitting = (
            bits
            for bits in self._scheme.bits
            if -(-shape.num_inputs * bits // 32) == entry.shape[1]
        )
        bits = next(fitting, None)
        if bits is None:
            raise self._bad(
                name,
                f"has {entry.shape[1]} words to a row of {shape.num_inputs} values, not those of "
                f"{' or '.join(map(str, self._scheme.bits))} bits",
            )
        # Lowest bits first: the same bytes as one value, or two, to a byte.
        row_bytes = -(-shape.num_inputs * bits // 8)
        words = self._shards.read(self._stored[name]).reshape(-1, 4 * entry.shape[1])
        rows = np.ascontiguousarray(words[:, :row_bytes])
        if bits == 8:
            return self._integers(name, rows, scales)
        sizes = replace(shape, group=self._group(name, shape, scales))
        flat = np.ascontiguousarray(scales, "<f4").reshape(-1).view(np.uint8)
        stored = int4_grouped.FORMAT.to_stored(rows, flat, sizes)
        assert isinstance(stored, IntTensor)
        return stored

    def _integers(self, name: str, codes: Bytes, scales: Floats) -> IntTensor:
        group = self._group(name, MatrixShape(*codes.shape), scales)
        return IntTensor(
            codes=codes,
            scales=scales,
            zero=128,
            mins=None,
            bits=8,
            group=group,
        )

    def _group(self, name: str, shape: MatrixShape, scales: Floats) -> int:
        """Return the inputs per scale of (O, groups) scales."""
        rows, columns = scales.shape
        if rows != shape.num_outputs:
            raise self._bad(name, f"has scales in shape {list(scales.shape)}")
        if columns == 1:
            return row_group(shape.num_inputs)
        for group in self._scheme.groups:
            if -(-shape.num_inputs // group) == columns:
                return group
        raise self._bad(
            name,
            f"has {columns} scales to a row of {shape.num_inputs} values, and no group size of "
            "the configuration gives that",
        )

    def _fp8(self, name: str, raw: Bytes, scales: Floats) -> StoredTensor:
        if scales.shape in {(1, 1), (raw.shape[0], 1)}:
            block = (-(-raw.shape[0] // scales.shape[0]), raw.shape[1])
        else:
            block = self._scheme.block
            wanted = tuple(-(-s // b) for s, b in zip(raw.shape, block, strict=True))
            if scales.shape != wanted:
                raise self._bad(name, f"has scales in shape {list(scales.shape)}")
        matrix = fp8_matrix(raw, scales, block)
        if isinstance(matrix, FloatTensor) and not np.isfinite(matrix.array).all():
            raise self._bad(name, "has a value that is not finite")
        return matrix

    def _scales(self, name: str) -> Floats:
        """Return the scales as (rows, columns)."""
        values = read_floats(self._shards, name + _SCALE).unpack()
        if not np.isfinite(values).all() or (values < 0).any():
            raise self._bad(name, "has a scale that is negative or not finite")
        if values.size == 0 or values.ndim > 2:
            raise self._bad(name, f"has scales in shape {list(values.shape)}")
        return values.reshape(-1, 1) if values.ndim < 2 else values

    def _add(self, name: str, stored: str) -> None:
        if name in self._stored:
            raise self._bad(name, "is there twice, packed and not")
        self._stored[name] = stored
        for suffix in _UNSUPPORTED:
            if name + suffix in self._shards:
                raise UnsupportedQuantFormat(
                    f"{self._shards.directory} has the tensor {name}{suffix}, which is not "
                    "supported",
                    hint="supported: symmetric integers and floats in the order of the inputs",
                )
        if name + _SCALE not in self._shards:
            raise self._bad(name, f"has no {name}{_SCALE}")
        parts = {stored, name + _SCALE, name + _SHAPE}
        self.claimed.update(part for part in parts if part in self._shards)

    def _bad(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"the compressed tensor {name} of {self._shards.directory} {problem}",
            path=self._shards.path(self._stored.get(name, name)),
            tensor=name,
            hint="pull the model again, or use a bf16 or GGUF form of it",
        )


class _Scheme:
    """What the groups of a configuration allow: bits, inputs per scale, blocks."""

    def __init__(self, quantization: Mapping[str, Any], directory: Path) -> None:
        self._directory = directory
        if quantization.get("format", "pack-quantized") not in _FORMATS:
            raise self._refuse("format", quantization["format"])
        self.bits: list[int] = []
        self.groups: list[int] = []
        self.block = (128, 128)
        groups = quantization.get("config_groups", {})
        if not isinstance(groups, dict):
            raise self._refuse("config_groups", groups)
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            if not isinstance(weights, dict):
                raise self._refuse("weights", weights)
            self._add(weights)

    def _add(self, weights: Mapping[str, Any]) -> None:
        if weights.get("symmetric", True) is not True:
            raise self._refuse("symmetric", weights["symmetric"])
        if weights.get("actorder") not in _NO_REORDERING:
            raise self._refuse("actorder", weights["actorder"])
        bits, group = weights.get("num_bits"), weights.get("group_size")
        if type(bits) is not int or bits not in {4, 8}:
            raise self._refuse("num_bits", bits)
        if bits not in self.bits:
            self.bits.append(bits)
        if group is not None and group != -1:
            if type(group) is not int or not 0 < group <= 1 << 16 or group % 16:
                raise self._refuse("group_size", group)
            self.groups.append(group)
        block = weights.get("block_structure")
        if block is not None:
            if (
                not isinstance(block, list)
                or len(block) != 2
                or not all(type(size) is int and 0 < size <= 1 << 16 for size in block)
            ):
                raise self._refuse("block_structure", block)
            self.block = (block[0], block[1])

    def _refuse(self, key: str, value: object) -> UnsupportedQuantFormat:
        return UnsupportedQuantFormat(
            f"{self._directory} is quantised by compressed-tensors with {key} {str(value)[:60]}, "
            "which is not supported",
            hint="supported: symmetric 4- and 8-bit integers in groups of multiples of 16, and "
            "fp8; or use a bf16 or GGUF form of the model",
        )
