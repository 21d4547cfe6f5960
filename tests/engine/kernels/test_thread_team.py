"""The thread team under stress: no hang, no lost or doubled work, no processor time when idle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Linear, Rows
from tests.engine.kernels.conftest import apply, rows_of
from tests.engine.kernels.reference import random_int_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = Path("/proc/self/task")  # Linux: a directory per thread

# 4 tiles of 16 outputs make one piece of work: these are regions of 1 to 12 pieces.
OUTPUT_COUNTS = [16, 80, 130, 192, 260, 333, 400, 512, 700]


class Regions:
    """Layers so small that a call is little more than its parallel region.

    The outputs start from poison and the expected ones are known, so a piece of work that is
    lost, done twice or done for another region shows.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._x = rows_of(rng.standard_normal((1, 16)))
        self._layers = [
            Linear([random_int_weights(rng, n, 16, bits=8).pack()], None, "float")
            for n in OUTPUT_COUNTS
        ]
        self._outs = [Rows(1, n) for n in OUTPUT_COUNTS]
        self._wanted = [apply(layer, self._x.array)[0] for layer in self._layers]

    def run(self, count: int) -> None:
        for i in self._rng.integers(0, len(OUTPUT_COUNTS), count):
            out = self._outs[i]
            out.rows = 1
            row = out.array[0]
            row.fill(np.nan)
            kernels.linear(self._x, self._layers[i], out)
            assert row.tobytes() == self._wanted[i].tobytes()


@pytest.fixture
def regions(rng: np.random.Generator) -> Regions:
    return Regions(rng)


@pytest.fixture
def _burning() -> Iterator[None]:
    """Two processes that want the processor all the time."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for burner in burners:
        assert burner.poll() is None, "it did not burn"
        burner.kill()
        burner.wait()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_tiny_regions(regions: Regions, threads: int) -> None:
    kernels.set_num_threads(threads)
    regions.run(20_000)


@pytest.mark.usefixtures("_burning")
@pytest.mark.parametrize("threads", [2, 4])
def test_tiny_regions_while_others_burn(regions: Regions, threads: int) -> None:
    kernels.set_num_threads(threads)
    regions.run(200_000)


@pytest.mark.skipif(not TASKS.exists(), reason="hardware: no threads in /proc")
@pytest.mark.usefixtures("_burning")
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_may_run_where_they_might_before(regions: Regions, threads: int) -> None:
    """One that was put aside is brought to another's processor, for as long as it holds work."""
    kernels.set_num_threads(threads)
    allowed = os.sched_getaffinity(0)
    regions.run(20_000)
    deadline = time.monotonic() + 20
    while any(os.sched_getaffinity(int(task.name)) != allowed for task in TASKS.iterdir()):
        assert time.monotonic() < deadline, "a thread is still held to one processor"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("_burning")
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_millions_of_tiny_regions_while_others_burn(regions: Regions, threads: int) -> None:
    kernels.set_num_threads(threads)
    regions.run(2_000_000)


def test_regions_of_many_pieces(rng: np.random.Generator) -> None:
    w = random_int_weights(rng, 3000, 64)
    layer, x = Linear([w.pack()]), rng.standard_normal((130, 64)).astype(np.float32)
    kernels.set_num_threads(1)
    alone = apply(layer, x)
    for threads in (2, 7):
        kernels.set_num_threads(threads)
        for _ in range(30):
            np.testing.assert_array_equal(apply(layer, x), alone)


def test_the_team_may_change_between_regions(regions: Regions, rng: np.random.Generator) -> None:
    for threads in rng.integers(1, 9, 300):
        kernels.set_num_threads(int(threads))
        assert kernels.num_threads() == threads
        regions.run(10)


def test_workers_asleep_are_woken(regions: Regions) -> None:
    kernels.set_num_threads(4)
    for _ in range(50):
        time.sleep(0.002)  # far longer than a worker stays awake
        regions.run(3)


@pytest.mark.timed
def test_an_idle_team_uses_no_processor_time(regions: Regions) -> None:
    kernels.set_num_threads(4)
    regions.run(100)
    time.sleep(0.01)
    busy, wall = time.process_time(), time.perf_counter()
    time.sleep(0.5)
    assert time.process_time() - busy < 0.05 * (time.perf_counter() - wall)
