"""Files of known bytes, and engines over them in both modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.kernels import ReadCompletion, ReadEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

PART = 1 << 20  # what the engine cuts reads into
FILE_BYTES = 24 * PART + 1234  # no multiple of a block


def drain(engine: ReadEngine) -> list[ReadCompletion]:
    """Return the completions of all open reads, in their order."""
    found = engine.poll()
    while engine.num_open:
        found += engine.wait(20)
    return found + engine.poll()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(33)


@pytest.fixture
def data(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    return rng.integers(0, 256, FILE_BYTES, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path, data: npt.NDArray[np.uint8]) -> Path:
    file = tmp_path / "records.bin"
    data.tofile(file)
    return file


@pytest.fixture(params=["threads", "io_uring"])
def make_engine(request: pytest.FixtureRequest) -> Iterator[Callable[..., ReadEngine]]:
    """Return a function that makes engines of one mode; they are closed afterwards."""
    made: list[ReadEngine] = []

    def make(depth: int = 8) -> ReadEngine:
        try:
            made.append(ReadEngine(request.param, depth=depth, num_threads=depth))
        except RuntimeError as exc:
            pytest.skip(f"hardware: {exc}")
        return made[-1]

    yield make
    for engine in made:
        engine.close()
