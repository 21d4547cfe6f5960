"""Reads into slots: the right bytes, errors that name themselves, and demand before all else."""

from __future__ import annotations

import errno
import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.kernels import ReadEngine, ReadPriority, SlotArena
from tests.engine.experts.conftest import FILE_BYTES, PART, drain

Bytes = npt.NDArray[np.uint8]
MakeEngine = Callable[..., ReadEngine]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_any_range_arrives_whole(
    make_engine: MakeEngine, path: Path, data: Bytes, rng: np.random.Generator, direct: bool
) -> None:
    engine = make_engine()
    file = engine.open(str(path), direct=direct)
    arena = SlotArena(24, 3 * PART)
    wanted: dict[int, tuple[int, int]] = {}
    for slot in range(24):
        size = int(rng.integers(1, 3 * PART))
        start = int(rng.integers(0, FILE_BYTES - size))
        if slot % 2:  # what may go around the page cache
            start = start // 4096 * 4096
            size = max(size // 4096, 1) * 4096
        wanted[slot] = (start, size)
        engine.submit(slot, file, start, size, arena, slot)
    completions = drain(engine)
    assert sorted(c.tag for c in completions) == list(range(24))
    for c in completions:
        start, size = wanted[c.tag]
        assert (c.error, c.bytes, c.file) == (0, size, file)
        assert c.direct == (engine.is_direct(file) and c.tag % 2 == 1)
        assert c.service_s > 0
        np.testing.assert_array_equal(arena.array(c.tag)[:size], data[start : start + size])
    assert engine.bytes_read == sum(size for _, size in wanted.values())


def test_the_last_byte_of_a_file_that_is_no_multiple_of_a_block(
    make_engine: MakeEngine, path: Path, data: Bytes
) -> None:
    engine = make_engine()
    file = engine.open(str(path), direct=True)
    arena = SlotArena(1, 2 * PART)
    start = 23 * PART
    engine.submit(1, file, start, FILE_BYTES - start, arena, 0)
    [c] = drain(engine)
    assert c.error == 0
    np.testing.assert_array_equal(arena.array(0)[: c.bytes], data[start:])


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_a_file_cut_while_it_is_open_is_an_error_with_the_bytes_there_were(
    make_engine: MakeEngine, path: Path, direct: bool
) -> None:
    engine = make_engine()
    file = engine.open(str(path), direct=direct)
    arena = SlotArena(2, 8 * PART)
    os.truncate(path, 5 * PART + 10)
    engine.submit(1, file, 2 * PART, 8 * PART, arena, 0)
    engine.submit(2, file, 0, PART, arena, 1)
    found = {c.tag: c for c in drain(engine)}
    assert found[1].error == errno.ENODATA
    assert found[1].bytes == 3 * PART + 10
    assert found[2].error == 0


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="hardware: no /proc")
def test_an_error_of_the_device_ends_one_read_and_no_other(
    make_engine: MakeEngine, path: Path
) -> None:
    # Nothing is mapped at address 0: the kernel itself answers EIO.
    engine = make_engine()
    broken, whole = engine.open("/proc/self/mem", direct=False), engine.open(str(path), direct=True)
    arena = SlotArena(2, 8 * PART)
    engine.submit(1, broken, 0, 8 * PART, arena, 0)
    engine.submit(2, whole, 0, PART, arena, 1)
    found = {c.tag: c for c in drain(engine)}
    assert (found[1].error, found[1].bytes, found[1].file) == (errno.EIO, 0, broken)
    assert found[2].error == 0


def test_files_that_cannot_be_read_are_refused_by_name(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine()
    with pytest.raises(FileNotFoundError, match="missing"):
        engine.open(str(tmp_path / "missing"), direct=True)
    with pytest.raises(IsADirectoryError):
        engine.open(str(tmp_path), direct=True)
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # or opening it to read would wait
    with pytest.raises(OSError, match="Illegal seek"):
        engine.open(str(tmp_path / "pipe"), direct=False)
    os.close(writer)


def test_a_demand_read_passes_hundreds_of_speculative_ones(
    make_engine: MakeEngine, path: Path
) -> None:
    # On a disk of any speed: where nearly all were over before the demand read came, try again.
    begun, order = 400, [0]
    for _ in range(5):
        engine = make_engine(4)
        file = engine.open(str(path), direct=True)
        arena = SlotArena(2, 2 * PART)
        for tag in range(1, 401):
            engine.submit(tag, file, 0, 2 * PART, arena, 0, 0, ReadPriority.SPECULATIVE)
        begun = 400 - engine.num_queued
        engine.submit(1000, file, 0, 2 * PART, arena, 1)
        order = [c.tag for c in drain(engine)]
        engine.close()
        assert sorted(order) == [*range(1, 401), 1000]
        if begun < 200:
            break
    assert begun < 200
    before = order.index(1000)
    # Those begun when it came, and what a device may have begun in the meantime: a part each.
    assert before <= 400 - (399 - begun) + 4, (before, begun)


def test_a_promoted_read_passes_what_was_queued_before_it(
    make_engine: MakeEngine, path: Path
) -> None:
    engine = make_engine(1)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(1, PART)
    for tag in range(200):
        engine.submit(tag, file, 0, PART, arena, 0, 0, ReadPriority.NEXT_BLOCK)
    engine.submit(1000, file, 0, PART, arena, 0, 0, ReadPriority.SPECULATIVE)
    assert engine.promote(1000, ReadPriority.DEMAND)
    assert not engine.promote(1001, ReadPriority.DEMAND)
    order = [c.tag for c in drain(engine)]
    assert order[-1] != 1000
    assert len(order) == 201


def test_cancelled_reads_are_gone_and_begun_ones_complete(
    make_engine: MakeEngine, path: Path
) -> None:
    engine = make_engine(2)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(1, 8 * PART)
    for tag in range(100):
        engine.submit(tag, file, 0, 8 * PART, arena, 0)
    cancelled = {tag for tag in range(99, -1, -1) if engine.cancel(tag)}
    assert cancelled
    completed = {c.tag for c in drain(engine)}
    assert completed | cancelled == set(range(100))
    assert not completed & cancelled
    assert not engine.cancel(5)
    engine.submit(99, file, 0, PART, arena, 0)  # the tag is free
    assert [c.error for c in drain(engine)] == [0]


def test_many_threads_share_an_engine(make_engine: MakeEngine, path: Path, data: Bytes) -> None:
    engine = make_engine()
    file = engine.open(str(path), direct=True)
    arena = SlotArena(160, 4096)

    def submit(first: int) -> None:
        for tag in range(first, first + 40):
            engine.submit(tag, file, tag * 4096, 4096, arena, tag, 0, ReadPriority(tag % 3))

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(0, 160, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    completions = drain(engine)
    assert sorted(c.tag for c in completions) == list(range(160))
    assert not any(c.error for c in completions)
    for tag in range(160):
        expected = data[tag * 4096 : (tag + 1) * 4096]
        np.testing.assert_array_equal(arena.array(tag), expected)


def test_closing_with_reads_open_waits_for_the_begun_and_cancels_the_rest(
    make_engine: MakeEngine, path: Path, data: Bytes
) -> None:
    engine = make_engine(2)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(50, 8 * PART)
    for tag in range(50):
        engine.submit(tag, file, 0, 8 * PART, arena, tag)
    engine.close()
    engine.close()
    completions = engine.poll()
    assert sorted(c.tag for c in completions) == list(range(50))
    assert {c.error for c in completions} <= {0, errno.ECANCELED}
    assert any(c.error for c in completions)
    for c in completions:
        if not c.error:
            np.testing.assert_array_equal(arena.array(c.tag), data[: 8 * PART])
        arena.release(c.tag)
    with pytest.raises(ValueError, match="closed"):
        engine.submit(1, file, 0, 1, arena, 0)
    with pytest.raises(ValueError, match="closed"):
        engine.open(str(path), direct=False)


def test_an_engine_and_slots_may_go_while_reads_are_open(
    make_engine: MakeEngine, path: Path
) -> None:
    engine = ReadEngine(make_engine().mode)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(8, 8 * PART)
    for tag in range(8):
        engine.submit(tag, file, 0, 8 * PART, arena, tag)
    del arena
    gc.collect()
    del engine
    gc.collect()


def test_waiting_ends_at_once_when_nothing_is_open_and_after_its_time_otherwise(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    assert engine.wait(1000) == []
    assert engine.wait(0) == []
    with pytest.raises(ValueError, match="negative"):
        engine.wait(-1)


def wait_for_ever(engine: ReadEngine) -> None:
    while True:
        engine.wait(5)


def test_a_signal_reaches_python_while_reads_are_waited_for(
    make_engine: MakeEngine, path: Path
) -> None:
    engine = make_engine(1)
    file = engine.open(str(path), direct=True)
    arena = SlotArena(1, 8 * PART)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    stop = threading.Event()

    def refill() -> None:  # so that there is always something open
        tag = 0
        while not stop.is_set():
            if engine.num_open < 4:
                tag += 1
                engine.submit(tag, file, 0, 8 * PART, arena, 0)
            time.sleep(0)

    thread = threading.Thread(target=refill)
    try:
        thread.start()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            wait_for_ever(engine)
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_what_does_not_fit_is_refused(make_engine: MakeEngine, path: Path) -> None:
    engine = make_engine()
    file = engine.open(str(path), direct=False)
    arena = SlotArena(2, PART)
    with pytest.raises(ValueError, match=f"{PART + 1} bytes at 0 do not fit a slot of {PART}"):
        engine.submit(1, file, 0, PART + 1, arena, 0)
    with pytest.raises(ValueError, match="do not fit"):
        engine.submit(1, file, 0, PART, arena, 0, 1)
    with pytest.raises(IndexError, match=r"slot 2 is outside 0\.\.1"):
        engine.submit(1, file, 0, 1, arena, 2)
    with pytest.raises(IndexError, match="file 1 is not open"):
        engine.submit(1, file + 1, 0, 1, arena, 0)
    engine.close_file(file)
    with pytest.raises(IndexError, match="not open"):
        engine.is_direct(file)
    with pytest.raises(ValueError, match="auto, io_uring or threads"):
        ReadEngine("fast")
    assert engine.num_open == 0


def test_stripes_take_parts_from_all_files_and_name_the_one_that_failed(
    make_engine: MakeEngine, path: Path, data: Bytes, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.bin"
    data.tofile(copy)
    engine = make_engine()
    first, second = engine.open(str(path), direct=True), engine.open(str(copy), direct=True)
    assert engine.device(first) == engine.device(second) == 0
    arena = SlotArena(1, 9 * PART)
    engine.submit(1, first, 4096, 9 * PART - 8192, arena, 0, stripes=[second])
    assert [c.error for c in drain(engine)] == [0]
    expected = data[4096 : 9 * PART - 4096]
    np.testing.assert_array_equal(arena.array(0)[: expected.size], expected)
    os.truncate(copy, 0)
    engine.submit(2, first, 0, 9 * PART, arena, 0, stripes=[second])
    [c] = drain(engine)
    assert (c.error, c.file) == (errno.ENODATA, second)


def test_every_device_has_its_own_queue(make_engine: MakeEngine, path: Path, data: Bytes) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == path.stat().st_dev:
        pytest.skip("hardware: no second device")
    engine = make_engine(1)
    with tempfile.NamedTemporaryFile(dir=memory) as copy:
        data.tofile(copy.name)
        here = engine.open(str(path), direct=True)
        there = engine.open(copy.name, direct=True)  # refused by older kernels: then buffered
        assert (engine.device(here), engine.device(there)) == (0, 1)
        arena = SlotArena(50, PART)
        for tag in range(50):
            engine.submit(tag, (here, there)[tag % 2], tag % 20 * PART, PART, arena, tag)
        assert [c.error for c in drain(engine)] == [0] * 50
        for tag in range(50):
            start = tag % 20 * PART
            np.testing.assert_array_equal(arena.array(tag), data[start : start + PART])
        # One read in parts from both at the same time.
        engine.submit(50, here, 0, PART, arena, 0, stripes=[there])
        assert [c.error for c in drain(engine)] == [0]


def test_the_mode_that_auto_takes_is_said_with_its_reason() -> None:
    engine = ReadEngine()
    assert engine.mode in ("io_uring", "threads")
    assert bool(engine.mode_reason) == (engine.mode == "threads")
    assert engine.depth == (32 if engine.mode == "io_uring" else 8)
    engine.close()
