"""One way in which a directory of safetensors files keeps tensors.

A directory may mix several: plain norms beside packed experts. Each source claims the stored
tensors it understands and shows them under the names of the published checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection

    from colibri_engine.quant.base import Bytes, StoredTensor


class TensorSource(Protocol):
    """Tensors of one kind. Opening it has read headers only."""

    @property
    def claimed(self) -> Collection[str]:
        """Stored tensors that no other source may show, scales and the like included."""

    def names(self) -> Collection[str]:
        """Return the published names of what it offers."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, outermost first.

        Raises:
            CheckpointError: the configuration does not tell them.
        """

    def format_name(self, name: str) -> str:
        """Return the name of the number format a tensor is stored in."""

    def read(self, name: str) -> StoredTensor:
        """Read a tensor as it is stored.

        Raises:
            CheckpointError: its bytes cannot be right; names file and tensor.
            UnsupportedQuantFormat: its number format is not implemented.
        """


class RawRows(NamedTuple):
    """Rows of a matrix as the layout with separate scales holds them.

    Args:
        weights: (R, bytes of a row) uint8.
        scales: Bytes of the scales that begin in these rows; None where the format has none.
    """

    weights: Bytes
    scales: Bytes | None


@runtime_checkable
class RawSource(Protocol):
    """A source of matrices whose bytes do not follow from what the kernels take: e8 and fp8."""

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix."""

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows of a matrix as the layout with separate scales holds them.

        Args:
            name: A matrix that has them.
            first: A multiple of 128.
            count: Rows to read.

        Raises:
            CheckpointError: as `TensorSource.read`.
        """


@runtime_checkable
class RowSource(Protocol):
    """A source that can read some rows of a tensor without reading all of it."""

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read rows `first` to `first + count - 1`, outer dimensions counted as one.

        Args:
            name: A tensor of two or more dimensions.
            first: A multiple of 128, so that no block of a format is cut.
            count: Rows to read.

        Raises:
            CheckpointError: as `TensorSource.read`.
        """
