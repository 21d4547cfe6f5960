"""Plain floats: what is left when every other source has taken its share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_engine.errors import UnsupportedQuantFormat
from colibri_engine.loader.safetensors import DTYPE_BITS
from colibri_engine.quant.base import FloatTensor, StoredTensor
from colibri_engine.quant.registry import FORMATS

if TYPE_CHECKING:
    from collections.abc import Collection

    from colibri_engine.loader.shards import ShardSet

FLOATS: Final = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


class PlainTensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.
        names: Tensors that no other source claims.
    """

    def __init__(self, shards: ShardSet, names: Collection[str]) -> None:
        self.claimed = names
        self._shards = shards

    def names(self) -> Collection[str]:
        """Return the names of the tensors."""
        return self.claimed

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, outermost first."""
        return self._shards.entry(name).shape

    def format_name(self, name: str) -> str:
        """Return the type of the floats."""
        return self._shards.entry(name).dtype

    def read(self, name: str) -> StoredTensor:
        """Read a tensor as it is stored."""
        return read_floats(self._shards, name)

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a tensor as they are stored."""
        return read_floats(self._shards, name, (first, count))


def read_floats(shards: ShardSet, name: str, rows: tuple[int, int] | None = None) -> FloatTensor:
    """Read a tensor of floats, or some of its rows.

    Args:
        shards: The files.
        name: The tensor.
        rows: The first row and how many, outer dimensions counted as one; None for all of it.

    Raises:
        CheckpointError: it is missing or its bytes cannot be read.
        UnsupportedQuantFormat: it is of another type.
    """
    entry = shards.entry(name)
    if entry.dtype not in FLOATS:
        raise UnsupportedQuantFormat(
            f"tensor {name} in {shards.path(name)} is stored as {entry.dtype}, "
            "which is not supported here",
            hint="supported: F32, F16, BF16; other types together with their scales",
        )
    if rows is None:
        raw, shape = shards.read(name), entry.shape
    else:
        shape = (rows[1], entry.shape[-1])
        row_bytes = entry.shape[-1] * DTYPE_BITS[entry.dtype] // 8
        raw = shards.read_range(name, rows[0] * row_bytes, rows[1] * row_bytes)
    stored = FORMATS[FLOATS[entry.dtype]].to_stored(raw)
    assert isinstance(stored, FloatTensor)
    return FloatTensor(stored.array.reshape(shape))
