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


def load(path: Path, numerics: str) -> Model:
    """Load a checkpoint and close its files."""
    with closing(open_checkpoint(path)) as checkpoint:
        return load_model(checkpoint, numerics=numerics)
