"""Running a model without the engine around it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colibri_engine.kernels import Batch
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.models.base import Model


def forward_in_chunks(
    model: Model, ids: npt.NDArray[np.int32], chunk: int
) -> npt.NDArray[np.float32]:
    """Return (len(ids), V) logits of one sequence fed `chunk` ids at a time."""
    cache, batch = model.make_cache(), Batch()
    rows = []
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        batch.set([(cache, start, len(part))])
        rows.append(model.forward(part, batch, list(range(len(part)))).copy())
    return np.concatenate(rows)


def forward_in_company(
    model: Model, ids: npt.NDArray[np.int32], num_slots: int
) -> npt.NDArray[np.float32]:
    """Return (len(ids), V) logits of one sequence beside others, prefilling and decoding.

    Args:
        model: The model.
        ids: The sequence; the others are it, begun elsewhere.
        num_slots: Sequences in a step, at most 4; each is at another place of its own.
    """
    caches, batch = [model.make_cache() for _ in range(num_slots)], Batch()
    sequences = [ids] + [np.roll(ids, 11 * slot) for slot in range(1, num_slots)]
    fed = [0] * num_slots
    found = []
    while fed[0] < len(ids):
        segments, rows = [], []
        for slot, cache in enumerate(caches):
            size = [100, 1, 33, 7][slot] if fed[slot] < len(ids) - 20 else 1
            size = min(size, len(ids) - fed[slot])
            if size == 0:
                continue
            segments.append((cache, fed[slot], size))
            rows.append(sequences[slot][fed[slot] : fed[slot] + size])
            fed[slot] += size
        batch.set(segments)
        found.append(model.forward(np.concatenate(rows), batch, list(range(len(rows[0])))).copy())
    return np.concatenate(found)


def load(path: Path, numerics: str) -> Model:
    """Load a checkpoint and close its files."""
    with closing(open_checkpoint(path)) as checkpoint:
        return load_model(checkpoint, numerics=numerics)
