"""Tensors read piece by piece: one matrix of a stack at a time, in floats or in MXFP4 blocks.

Knows shapes and bytes; knows no architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.plain_tensors import FLOATS, read_floats
from colibri_engine.quant import mxfp4
from colibri_engine.quant.base import FloatTensor, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Collection

    from colibri_engine.loader.shards import ShardSet

_BLOCKS: Final = "_blocks"
_SCALES: Final = "_scales"
_BLOCK_BYTES: Final = mxfp4.GROUP // 2


class Stacks:
    """What the shards hold as floats, or as a pair `X_blocks`, `X_scales`, which is called X.

    Args:
        shards: The files.
        names: Which of their tensors to look at.

    Raises:
        CheckpointError: blocks and scales do not belong together.
    """

    def __init__(self, shards: ShardSet, names: Collection[str]) -> None:
        self._shards = shards
        self._last: tuple[str, int | None, StoredTensor] | None = None
        self.blocks: frozenset[str] = frozenset(
            name.removesuffix(_BLOCKS) for name in names if name.endswith(_BLOCKS)
        )
        self.shapes: dict[str, tuple[int, ...]] = {
            name: shards.entry(name).shape for name in names if shards.entry(name).dtype in FLOATS
        }
        for name in self.blocks:
            self.shapes[name] = self._block_shape(name)

    def stored(self, name: str) -> Collection[str]:
        """Return the names a tensor has in the files."""
        return (name + _BLOCKS, name + _SCALES) if name in self.blocks else (name,)

    def format_name(self, name: str) -> str:
        """Return the name of the number format of a tensor."""
        return mxfp4.FORMAT.name if name in self.blocks else self._shards.entry(name).dtype

    def read(self, name: str, index: int | None, *, keep: bool) -> StoredTensor:
        """Read piece `index` of a tensor along its first dimension, or all of it.

        Args:
            name: The tensor.
            index: The piece; None for all of it.
            keep: Whether the next call will want the same piece.

        Raises:
            CheckpointError: its bytes cannot be read.
            UnsupportedQuantFormat: it is stored in another format.
        """
        last, self._last = self._last, None
        if last is not None and last[:2] == (name, index):
            stored = last[2]
        else:
            del last  # its memory is needed
            stored = (self._read_blocks if name in self.blocks else self._read_floats)(name, index)
        if keep:
            self._last = (name, index, stored)
        return stored

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a matrix of floats. Raises as `read`."""
        return read_floats(self._shards, name, (first, count))

    def _read_floats(self, name: str, index: int | None) -> StoredTensor:
        if index is None:
            return read_floats(self._shards, name)
        shape = self.shapes[name][1:]
        rows = 1
        for size in shape[:-1]:
            rows *= size
        return FloatTensor(
            read_floats(self._shards, name, (index * rows, rows)).array.reshape(shape)
        )

    def _read_blocks(self, name: str, index: int | None) -> StoredTensor:
        if index is None:
            raise UnsupportedQuantFormat(
                f"tensor {name} of {self._shards.directory} is stored in MXFP4 blocks, which is "
                "not supported here",
                hint="supported: MXFP4 blocks of experts",
            )
        rows, inputs = self.shapes[name][1:]
        groups = inputs // mxfp4.GROUP
        block_bytes = rows * groups * _BLOCK_BYTES
        blocks = self._shards.read_range(name + _BLOCKS, index * block_bytes, block_bytes)
        scales = self._shards.read_range(name + _SCALES, index * rows * groups, rows * groups)
        return mxfp4.from_blocks(
            blocks.reshape(rows, groups, _BLOCK_BYTES), scales.reshape(rows, groups)
        )

    def _block_shape(self, name: str) -> tuple[int, ...]:
        blocks = self._shards.entry(name + _BLOCKS)
        if name + _SCALES not in self._shards:
            raise self._bad(name, f"has no {name}{_SCALES}")
        scales = self._shards.entry(name + _SCALES)
        if blocks.dtype != "U8" or scales.dtype not in ("U8", "F8_E8M0"):
            raise self._bad(name, f"is stored as {blocks.dtype} and {scales.dtype}, not as bytes")
        if len(blocks.shape) != 4 or blocks.shape[3] != _BLOCK_BYTES:
            raise self._bad(
                name, f"has blocks of shape {list(blocks.shape)}, not [E, R, G, {_BLOCK_BYTES}]"
            )
        if scales.shape != blocks.shape[:3]:
            raise self._bad(
                name,
                f"has scales of shape {list(scales.shape)}, not {list(blocks.shape[:3])}",
            )
        experts, rows, groups = blocks.shape[:3]
        return experts, rows, groups * mxfp4.GROUP

    def _bad(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"the MXFP4 tensor {name} of {self._shards.directory} {problem}",
            path=self._shards.path(name + _BLOCKS),
            tensor=name,
            hint="pull the model again",
        )
