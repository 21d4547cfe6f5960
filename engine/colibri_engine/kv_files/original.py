"""Reading conversations that the original engine saved: `COLIKV1`, GLM-5.2.

    0    magic, then eight int32: layers, latent, rotated key, index key, index layers, vocabulary,
         records, 0
    40   records: token id; of every layer latent and rotated key; of every full layer an index key

It stores a rotated key as all firsts of its pairs, then all seconds; here pairs are neighbours. Its
header knows sizes and not weights, nothing has a checksum, and its arithmetic is not ours: such
rows are as good as that engine's own, and no better.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.kv_files.disk import DiskFile
from colibri_engine.kv_files.layout import Unusable
from colibri_engine.models.glm_moe_dsa import Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from colibri_engine.kernels import LayerLayout
    from colibri_engine.kv_files.conversation_file import Bounds

    Ids = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.float32]

MAGIC: Final = b"COLIKV1\0"
_HEADER: Final = struct.Struct("<8s8i")
_PIECE_BYTES: Final = 4 << 20


def is_original(path: Path) -> bool:
    """Whether a file is of this kind."""
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@dataclass(frozen=True, slots=True)
class OriginalShape:
    """Sizes of a model as that engine counts them.

    Args:
        latent_dim: Floats of a latent.
        rope_dim: Floats of a rotated key.
        index_dim: Floats of an index key; 0 without an indexer.
        full_layers: Whether each layer has one.
    """

    latent_dim: int
    rope_dim: int
    index_dim: int
    full_layers: tuple[bool, ...]

    @property
    def record_dim(self) -> int:
        """Words of four bytes of a record."""
        rows = len(self.full_layers) * (self.latent_dim + self.rope_dim)
        return 1 + rows + sum(self.full_layers) * self.index_dim

    def header(self, vocab_size: int) -> tuple[int, ...]:
        """Return the six sizes a file of this model begins with."""
        sizes = (self.latent_dim, self.rope_dim, self.index_dim)
        return (len(self.full_layers), *sizes, sum(self.full_layers), vocab_size)

    def rows(self, records: Floats) -> Floats:
        """Return (n, row_dim) rows of our order from (n, record_dim) records."""
        num_layers, width = len(self.full_layers), self.latent_dim + self.rope_dim
        index_at = 1 + num_layers * width
        parts: list[Floats] = []
        num_full = 0
        for layer, is_full in enumerate(self.full_layers):
            at = 1 + layer * width
            parts.append(records[:, at : at + self.latent_dim])
            parts.append(_pairs(records[:, at + self.latent_dim : at + width]))
            if is_full and self.index_dim:
                at = index_at + num_full * self.index_dim
                num_full += 1
                parts.append(_pairs(records[:, at : at + self.rope_dim]))
                parts.append(records[:, at + self.rope_dim : at + self.index_dim])
        return np.concatenate(parts, axis=1)


def original_shape(config: object, layouts: Sequence[LayerLayout]) -> OriginalShape | None:
    """Return the sizes of a model that engine can run and rotates as we do, else None.

    Args:
        config: The model's configuration.
        layouts: What its layers keep.
    """
    if not isinstance(config, Config) or not (config.interleaved and config.index_interleaved):
        return None
    return OriginalShape(
        latent_dim=config.attention.latent_dim,
        rope_dim=config.attention.rope_dim,
        index_dim=max(layout.index_dim for layout in layouts),
        full_layers=tuple(layout.index_dim > 0 for layout in layouts),
    )


def num_original_rows(path: Path, shape: OriginalShape, bounds: Bounds) -> int:
    """Return how many rows a file has, after checking everything but their numbers.

    Raises:
        Unusable: It does not fit or is cut short.
        OSError: It cannot be read.
    """
    head = bytearray(_HEADER.size)
    with DiskFile.open(path) as file:
        if file.read(0, head) < _HEADER.size:
            raise Unusable("it is cut short")
        size = file.size
    _, *sizes, num, _ = _HEADER.unpack(head)
    wanted = shape.header(bounds.vocab_size)
    if tuple(sizes) != wanted:
        raise Unusable(f"it belongs to a model of other sizes: {sizes}, not {list(wanted)}")
    if not 0 <= num <= bounds.context_length:
        raise Unusable(f"it holds {num} tokens, the context has {bounds.context_length}")
    end = _HEADER.size + num * 4 * shape.record_dim
    if size < end:
        raise Unusable(f"it is cut short: {size} of {end} bytes")
    return int(num)


def read_original(
    path: Path,
    shape: OriginalShape,
    bounds: Bounds,
    cache: Any,  # noqa: ANN401
) -> Ids:
    """Append the rows of a file to an empty cache; return their ids.

    Raises:
        Unusable: It is damaged; the cache is then to be thrown away.
        OSError: It cannot be read.
        MemoryError: There is no room.
    """
    num = num_original_rows(path, shape, bounds)
    ids = [np.empty(0, np.int32)]
    with DiskFile.open(path) as file:
        for records in _pieces(file, num, shape):
            ids.append(records.view(np.int32)[:, 0].copy())
            rows = shape.rows(records)
            if not np.isfinite(rows).all():
                raise Unusable("it holds numbers that are not finite")
            if ids[-1].min() < 0 or ids[-1].max() >= bounds.vocab_size:
                raise Unusable("it holds tokens that the model does not have")
            cache.append_rows(rows)
    return np.concatenate(ids)


def _pieces(file: DiskFile, num: int, shape: OriginalShape) -> Iterator[Floats]:
    size = max(1, _PIECE_BYTES // (4 * shape.record_dim))
    for first in range(0, num, size):
        records = np.empty((min(size, num - first), shape.record_dim), np.float32)
        at = _HEADER.size + first * 4 * shape.record_dim
        if file.read(at, records) != records.nbytes:
            raise Unusable(f"it is cut short at token {first}")
        yield records


def _pairs(halves: Floats) -> Floats:
    """Return (n, d) with neighbours from all firsts, then all seconds."""
    num, dim = halves.shape
    return np.ascontiguousarray(halves.reshape(num, 2, dim // 2).swapaxes(1, 2)).reshape(num, dim)
