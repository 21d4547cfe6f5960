"""Tensors that lie inside others, shown under names of their own.

Some published files keep all experts of a layer as one stack, gate and up rows interleaved or one
after the other, transposed or not; some spell names of their own. Models see each matrix by itself
and under one spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from colibri_engine.quant.base import FloatTensor, IntTensor, StoredTensor, stored_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from colibri_engine.loader.stacks import Stacks


@dataclass(frozen=True, slots=True)
class Part:
    """Where a tensor lies.

    Args:
        stored: The tensor that holds it.
        shape: Its own sizes.
        index: Its place along the first dimension of a stack; None where it is no stack.
        place: Which of the parts it is that share this matrix.
        of: How many those are; all have equally many rows.
        interleaved: Whether their rows take turns, or follow part by part.
        transposed: Whether the matrix is stored as [inputs, outputs].
    """

    stored: str
    shape: tuple[int, ...]
    index: int | None = None
    place: int = 0
    of: int = 1
    interleaved: bool = False
    transposed: bool = False

    @property
    def rows(self) -> slice:
        """Its rows in the matrix."""
        if self.interleaved:
            return slice(self.place, self.of * self.shape[0], self.of)
        return slice(self.place * self.shape[0], (self.place + 1) * self.shape[0])


class PartTensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        stacks: What the files hold.
        parts: What to show of it, by name.
    """

    def __init__(self, stacks: Stacks, parts: Mapping[str, Part]) -> None:
        self._stacks = stacks
        self._parts = parts
        self.claimed: Collection[str] = {
            stored for part in parts.values() for stored in stacks.stored(part.stored)
        }

    def names(self) -> Collection[str]:
        """Return the names of the parts."""
        return self._parts.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a part, outermost first."""
        return self._parts[name].shape

    def format_name(self, name: str) -> str:
        """Return the name of the number format a part is stored in."""
        return self._stacks.format_name(self._parts[name].stored)

    def read(self, name: str) -> StoredTensor:
        """Read a part, and of the files no more than the matrix it lies in."""
        part = self._parts[name]
        # Parts of one matrix are asked for one after the other.
        whole = self._stacks.read(part.stored, part.index, keep=part.place + 1 < part.of)
        if part.transposed:
            assert isinstance(whole, FloatTensor)
            whole = FloatTensor(whole.array.T)
        return whole if part.of == 1 else _rows(whole, part.rows)

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a part: alone where they lie together, else out of the matrix."""
        part = self._parts[name]
        if part.index is None and part.of == 1 and not part.transposed:
            return self._stacks.read_rows(part.stored, first, count)
        return stored_rows(self.read(name), first, count)


def _rows(tensor: StoredTensor, rows: slice) -> StoredTensor:
    """Return some rows of a matrix as a copy, contiguous."""
    if isinstance(tensor, FloatTensor):
        return FloatTensor(tensor.array[rows].copy())
    assert isinstance(tensor, IntTensor)
    return replace(
        tensor,
        codes=tensor.codes[rows].copy(),
        scales=tensor.scales[rows].copy(),
        mins=None if tensor.mins is None else tensor.mins[rows].copy(),
    )
