"""FP8 matrices of published checkpoints: `X` in E4M3, `X_scale_inv` one scale per block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.plain_tensors import read_floats
from colibri_engine.loader.tensor_source import RawRows
from colibri_engine.quant import fp8_b128
from colibri_engine.quant.base import FloatTensor, StoredTensor, stored_rows
from colibri_engine.quant.fp8_blocks import fp8_matrix
from colibri_engine.quant.ue8m0 import UE8M0

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from colibri_engine.loader.shards import ShardSet
    from colibri_engine.quant.base import Bytes, Floats

_FP8: Final = "F8_E4M3"
_POWERS: Final = "F8_E8M0"
_SCALE: Final = "_scale_inv"
_DEFAULT_BLOCK: Final = (128, 128)


class Fp8Tensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.
        quantization: `quantization_config` of the model, for the sizes of a block.

    Raises:
        UnsupportedQuantFormat: the blocks are not two-dimensional.
    """

    def __init__(self, shards: ShardSet, quantization: Mapping[str, Any]) -> None:
        self._shards = shards
        self.block = _block(quantization, shards.directory)
        self._names = [name for name in shards.names() if shards.entry(name).dtype == _FP8]
        scales = [name + _SCALE for name in self._names if name + _SCALE in shards]
        self.claimed = {*self._names, *scales}

    def names(self) -> Collection[str]:
        """Return the names of the matrices."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return (O, I)."""
        return self._shards.entry(name).shape

    def format_name(self, name: str) -> str:
        """Return "F8_E4M3"."""
        return self._shards.entry(name).dtype

    def read(self, name: str) -> StoredTensor:
        """Read a matrix: codes and scales, or where the kernels do not take them the product."""
        scales = self._checked_scales(name)
        return self._matrix(name, scales, 0, self._shards.entry(name).shape[0])

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a matrix."""
        scales = self._checked_scales(name)
        height = self.block[0]
        if first % height:  # never with the usual blocks of 128 rows
            return stored_rows(self.read(name), first, count)
        part = scales[first // height : -(-(first + count) // height)]
        return self._matrix(name, part, first, count)

    def _checked_scales(self, name: str) -> Floats:
        entry = self._shards.entry(name)
        if name + _SCALE not in self._shards:
            raise self._bad(name, f"has no {name}{_SCALE}")
        if len(entry.shape) != 2:
            raise self._bad(name, "is no matrix")
        scales = self._scales(name + _SCALE)
        wanted = tuple(
            -(-size // block) for size, block in zip(entry.shape, self.block, strict=True)
        )
        if scales.shape != wanted:
            raise self._bad(name, f"has scales of shape {scales.shape}, not {wanted}")
        if not np.isfinite(scales).all() or (scales < 0).any():
            raise self._bad(name, "has a scale that is negative or not finite")
        return scales

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix: its blocks must be usual ones."""
        del name
        return self.block == (fp8_b128.BLOCK, fp8_b128.BLOCK)

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows as the layout with separate scales holds them; see `RawSource`.

        A value which is no number is refused here, too.
        """
        height = self.block[0]
        scales = self._checked_scales(name)[first // height : -(-(first + count) // height)]
        self._matrix(name, scales, first, count)
        weights = self._bytes_of(name, first, count).reshape(count, -1)
        return RawRows(weights, np.ascontiguousarray(scales, "<f4").reshape(-1).view(np.uint8))

    def _bytes_of(self, name: str, first: int, count: int) -> Bytes:
        num_inputs = self._shards.entry(name).shape[1]
        return self._shards.read_range(name, first * num_inputs, count * num_inputs)

    def _matrix(self, name: str, scales: Floats, first: int, count: int) -> StoredTensor:
        codes = self._bytes_of(name, first, count).reshape(count, -1)
        matrix = fp8_matrix(codes, scales, self.block)
        if isinstance(matrix, FloatTensor) and not np.isfinite(matrix.array).all():
            raise self._bad(name, "has a value that is not finite")
        return matrix

    def _scales(self, name: str) -> Floats:
        entry = self._shards.entry(name)
        if entry.dtype == _POWERS:
            return UE8M0[self._shards.read(name)].reshape(entry.shape)
        return read_floats(self._shards, name).unpack()

    def _bad(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"the fp8 tensor {name} of {self._shards.directory} {problem}",
            path=self._shards.path(name),
            tensor=name,
            hint="pull the model again, or use a bf16 or GGUF form of it",
        )


def _block(quantization: Mapping[str, Any], directory: Path) -> tuple[int, int]:
    """Return rows and columns of a block."""
    block = quantization.get("weight_block_size", list(_DEFAULT_BLOCK))
    if (
        not isinstance(block, list)
        or len(block) != 2
        or not all(type(size) is int and 0 < size <= 1 << 16 for size in block)
    ):
        raise UnsupportedQuantFormat(
            f"{directory} is fp8 with weight_block_size {str(block)[:60]}, which is not supported",
            hint="supported: fp8 with two-dimensional blocks (weight_scale_inv)",
        )
    return block[0], block[1]
