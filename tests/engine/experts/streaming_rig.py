"""Models whose experts are streamed, with as few slots as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from colibri_engine.engine_config import ReadConfig
from colibri_engine.experts.budget import MemoryBudget, Needs, Placement
from colibri_engine.experts.record_reader import open_reader
from colibri_engine.experts.records import RecordTable
from colibri_engine.experts.store import ExpertStore
from colibri_engine.kernels import Batch
from colibri_engine.loader.base import StreamedCheckpoint
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.base import Model
from colibri_engine.models.registry import load_model

Logits = npt.NDArray[np.float32]

_READS = ReadConfig(direct=True)


def load_streamed(
    path: Path,
    capacity: int,
    *,
    numerics: str = "default",
    reads: ReadConfig = _READS,
    working: int = 2,
    further: Sequence[Path] = (),
    looks_ahead: bool = True,
) -> tuple[Model, ExpertStore]:
    """Return a model with `capacity` slots for each layer, and its store."""
    with closing(open_checkpoint(path, further)) as checkpoint:
        assert isinstance(checkpoint, StreamedCheckpoint)
        table = RecordTable.of(checkpoint.stored_experts())
        store = ExpertStore(table, open_reader(table.paths, 1, reads), looks_ahead=looks_ahead)
        model = load_model(checkpoint, numerics=numerics, store=store)
    sizes = tuple(layer.records.nbytes for layer in store.layers)
    budget = MemoryBudget(0, "test")
    store.open(Placement(budget, Needs(0), (capacity,) * len(sizes), working, sizes))
    return model, store


def load_resident(path: Path, numerics: str = "default") -> Model:
    """Return the same model with everything in memory."""
    with closing(open_checkpoint(path)) as checkpoint:
        return load_model(checkpoint, numerics=numerics)


def run_steps(model: Model, steps: list[list[tuple[int, list[int]]]]) -> list[Logits]:
    """Return the logits of all rows of each step.

    Args:
        model: The model.
        steps: What each step feeds: numbers of sequences, and their next tokens.
    """
    caches = {number: model.make_cache() for step in steps for number, _ in step}
    batch = Batch()
    found = []
    for step in steps:
        batch.set([(caches[n], caches[n].length, len(ids)) for n, ids in step])
        ids = np.array([token for _, tokens in step for token in tokens], np.int32)
        found.append(model.forward(ids, batch, list(range(len(ids)))).copy())
    return found


def conversation(vocab_size: int, seed: int = 3) -> list[list[tuple[int, list[int]]]]:
    """Return steps of three sequences: prompts in chunks, replies, both together, a late start."""
    rng = np.random.default_rng(seed)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in rng.integers(0, vocab_size, count)]

    return [
        [(0, tokens(18))],
        [(0, tokens(1)), (1, tokens(11))],
        [(0, tokens(1)), (1, tokens(5))],
        *([(n, tokens(1)) for n in (0, 1)] for _ in range(4)),
        [(0, tokens(1)), (1, tokens(1)), (2, tokens(7))],
        *([(n, tokens(1)) for n in (0, 1, 2)] for _ in range(3)),
        [(2, tokens(1))],
    ]
