"""Conversations whose every number follows from their ids, so that a wrong row shows anywhere.

A row is drawn from the ids up to its own, like the rows of a model; so is a state. What was read
from a file can then be judged without knowing how the file came about.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from colibri_engine.kernels import KvCache, KvReader, LayerLayout
from colibri_engine.kv_files.conversation_file import ConversationFile
from colibri_engine.kv_files.disk import DiskFile
from colibri_engine.kv_files.identity import Identity
from colibri_engine.kv_files.layout import RowShape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layouts:
    """What a cache keeps: arguments of LayerLayout, layer by layer, and the dtype of its rows."""

    layers: tuple[Mapping[str, int], ...]
    dtype: str = "f32"


PLAIN = Layouts(({"num_kv_heads": 1, "head_dim": 16}, {"latent_dim": 5, "index_dim": 3}))
RECURRENT = Layouts(({"num_kv_heads": 1, "head_dim": 16, "state_dim": 4}, {"state_dim": 3}))
# An odd number of numbers: what comes behind them is not aligned.
HALVES = Layouts(({"num_kv_heads": 1, "head_dim": 16, "state_dim": 4}, {"latent_dim": 5}), "bf16")
EVERY = {"plain": PLAIN, "recurrent": RECURRENT, "halves": HALVES}
IDENTITY = Identity("tiny", "c" * 64, "w" * 64, "default", None, "l" * 64, "1.2.3")


@dataclass(frozen=True)
class Bounds:
    """What a conversation must fit into."""

    vocab_size: int = 1000
    context_length: int = 2000


def empty_cache(layouts: Layouts) -> KvCache:
    return KvCache([LayerLayout(**sizes) for sizes in layouts.layers], layouts.dtype)


def ids_of(size: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).integers(0, 1000, size).astype(np.int32)


def shape_of(layouts: Layouts) -> RowShape:
    return RowShape.of(empty_cache(layouts))


def rows_of(ids: Ids, shape: RowShape) -> Floats:
    """Return the (n, row_dim) rows that belong to ids."""
    rows = np.empty((ids.size, shape.row_dim), np.float32)
    key = 0
    for position, token_id in enumerate(ids.tolist()):
        key = zlib.crc32(token_id.to_bytes(4, "little"), key)
        rows[position] = np.random.default_rng(key).standard_normal(shape.row_dim)
    if shape.is_half:
        rows.view(np.uint32)[:] &= 0xFFFF0000  # numbers that bf16 has
    return rows


def state_of(ids: Ids, shape: RowShape) -> Floats:
    """Return the (state_dim,) state after ids."""
    draw = np.random.default_rng([7, zlib.crc32(ids.tobytes())])
    return draw.standard_normal(shape.state_dim).astype(np.float32)


def cache_of(ids: Ids, layouts: Layouts, states: Sequence[int] = ()) -> KvCache:
    """Return a cache of these ids whose state is known at some lengths and at the end."""
    cache = empty_cache(layouts)
    shape = RowShape.of(cache)
    cache.append_rows(rows_of(ids, shape))
    if shape.state_dim:
        for length in (*states, ids.size):
            cache.put_state(length, state_of(ids[:length], shape))
    return cache


def is_right(cache: KvCache, ids: Ids) -> bool:
    """Whether a cache holds exactly what belongs to its ids."""
    shape = RowShape.of(cache)
    reader = KvReader(cache)
    rows = np.empty((cache.length, shape.row_dim), np.float32)
    reader.read_rows(0, rows)
    if cache.length != ids.size or not np.array_equal(rows, rows_of(ids, shape)):
        return False
    state = np.empty(shape.state_dim, np.float32)
    for length in reader.state_lengths:
        reader.read_state(length, state)
        if not np.array_equal(state, state_of(ids[:length], shape)):
            return False
    return shape.state_dim == 0 or ids.size in reader.state_lengths


def file_of(
    path: Path,
    layouts: Layouts,
    identity: Identity = IDENTITY,
    bounds: Bounds | None = None,
    disk: type[DiskFile] = DiskFile,
) -> ConversationFile:
    return ConversationFile(path, shape_of(layouts), identity, bounds or Bounds(), disk)


def read_back(
    path: Path,
    layouts: Layouts,
    identity: Identity = IDENTITY,
    bounds: Bounds | None = None,
) -> Ids:
    """Read a file as a start does; return its ids after judging what belongs to them.

    Raises:
        Unusable: It does not fit or is damaged.
        FileNotFoundError: There is none.
    """
    file = file_of(path, layouts, identity, bounds)
    length = file.open()
    cache = empty_cache(layouts)
    try:
        ids = file.read_into(cache) if length else np.empty(0, np.int32)
    finally:
        file.close()
    assert ids.size == length
    assert length == 0 or is_right(cache, ids), "rows that do not belong to their ids"
    return ids
