"""Engines on tiny models that save their conversations, and the logits they compute."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.engine.model_rig import Ids, start, tokens
from tests.fakes.tiny_checkpoint import write_hf
from tests.fakes.tiny_variants import write_variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pytest

    from colibri_engine.engine import Engine
    from colibri_engine.kernels import Batch

FAMILIES = ("llama", "glm4_moe", "glm_moe_dsa", "deepseek_v3", "gpt_oss", "inkling")
RECURRENT = frozenset({"inkling"})


def write_model(directory: Path, family: str, **changes: Any) -> Path:  # noqa: ANN401
    """Write a tiny model; return its directory."""
    if family in {"gpt_oss", "inkling"}:
        return write_variant(directory, family)
    write_hf(directory, family, max_position_embeddings=2048, **changes)
    return directory


@dataclass
class Turn:
    """What one request gave."""

    ids: Ids
    num_reused: int
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def same_as(self, other: Turn) -> bool:
        """Whether both chose the same tokens from the same bits."""
        same_bits = [
            np.array_equal(a.view(np.uint32), b.view(np.uint32))
            for a, b in zip(self.logits, other.logits, strict=True)
        ]
        return self.ids == other.ids and all(same_bits)


def ask(engine: Engine, prompt: Ids, slot: int = -1, **options: Any) -> Turn:  # noqa: ANN401
    """Run one request; keep the logits every token was chosen from."""
    model: Any = engine._model  # logits cross no interface
    forward = model.forward
    logits: list[npt.NDArray[np.float32]] = []

    def recording(
        ids: npt.NDArray[np.int32], batch: Batch, rows: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = forward(ids, batch, rows)
        logits.append(found.copy())
        return found

    model.forward = recording
    try:
        reply, done = tokens(engine, 1, prompt, slot, **({"temperature": 0.0} | options))
    finally:
        model.forward = forward
    return Turn(reply, done.reused_tokens, [each for each in logits if len(each)])


@contextmanager
def saving(path: Path, **changes: Any) -> Iterator[Engine]:  # noqa: ANN401
    """Run an engine that saves, and end it in order."""
    engine = start(path, kv_save=True, **changes)
    try:
        yield engine
    finally:
        engine.close()


def fresh(path: Path, prompt: Ids, **changes: Any) -> Turn:  # noqa: ANN401
    """Return what an engine without any saved conversation gives."""
    return ask(start(path, **changes), prompt)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings so far, and forget them."""
    found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    caplog.clear()
    return found
