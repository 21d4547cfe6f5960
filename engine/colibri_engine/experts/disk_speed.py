"""How fast one disk gives records: reads of one size, so many at a time, in one of the ways.

Only bytes that lie on the disk and not in memory say anything: ranges are dropped from the page
cache first, and holes of a sparse file are refused.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from colibri_engine.kernels import ReadEngine, SlotArena

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BLOCK: Final = 4096  # every read begins at a multiple of this and is one

_SLOTS: Final = 8  # that reads share: what they bring is not looked at
_LONGEST_WAIT: Final = 0.05  # seconds between two looks at the clock
_MARGIN: Final = 4 << 20
_FULL: Final = 0.97  # of a file's bytes are on the disk; file systems may keep the rest elsewhere


class Access(NamedTuple):
    """A way to read: "io_uring" or "threads", around the page cache or through it."""

    mode: str
    is_direct: bool

    def __str__(self) -> str:
        return f"{self.mode}, {'direct' if self.is_direct else 'buffered'}"


class Load(NamedTuple):
    """What is read: reads of `read_bytes`, `depth` of them open, in order or at random."""

    read_bytes: int
    depth: int
    is_random: bool = True


@dataclass(frozen=True, slots=True)
class Rate:
    """What was measured.

    Args:
        access: The way that was really taken: a direct read may be refused.
        load: What was asked for.
        nbytes: Bytes that came.
        seconds: From the first read to the end of the last.
        is_cold: Whether the bytes were out of memory before; for a direct read they always are.
    """

    access: Access
    load: Load
    nbytes: int
    seconds: float
    is_cold: bool

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0


def measure(path: Path, offsets: Sequence[int], load: Load, access: Access, seconds: float) -> Rate:
    """Read at offsets, each once, until the time is over or all were read.

    Args:
        path: A file whose bytes are on the disk.
        offsets: Where reads begin, in their order; multiples of 4096.
        load: What is read.
        access: How.
        seconds: No read begins later; those open are waited for.

    Raises:
        OSError: the file cannot be read.
        RuntimeError: there is no io_uring here.
    """
    is_cold = drop_cached(path, offsets, load.read_bytes)
    arena = SlotArena(min(load.depth, _SLOTS), load.read_bytes)
    for slot in range(arena.num_slots):
        arena.array(slot)[:] = 0  # the first touch of memory is no matter of the disk
    engine = ReadEngine(access.mode)
    try:
        file = engine.open(str(path), direct=access.is_direct)
        nbytes, next_read = 0, 0
        started = time.perf_counter()
        while True:
            is_over = time.perf_counter() - started >= seconds or next_read == len(offsets)
            while not is_over and engine.num_open < load.depth and next_read < len(offsets):
                slot = next_read % arena.num_slots
                engine.submit(next_read, file, offsets[next_read], load.read_bytes, arena, slot)
                next_read += 1
            is_over = is_over and not engine.num_open  # asked first: what is over is then there
            for completion in engine.wait(_LONGEST_WAIT):
                if completion.error:
                    raise OSError(completion.error, os.strerror(completion.error), str(path))
                nbytes += completion.bytes
            if is_over:
                break
        passed = time.perf_counter() - started
        was_direct = engine.is_direct(file)
    finally:
        engine.close()
    return Rate(Access(engine.mode, was_direct), load, nbytes, passed, is_cold or was_direct)


def spread(file_bytes: int, load: Load, count: int, seed: int) -> list[int]:
    """Return where up to `count` reads of a file begin: side by side, or scattered over all of it.

    No byte is read twice.
    """
    places = file_bytes // -(-load.read_bytes // BLOCK) // BLOCK
    step = -(-load.read_bytes // BLOCK) * BLOCK
    count = min(count, places)
    numbers = random.Random(seed).sample(range(places), count) if load.is_random else range(count)
    return [number * step for number in numbers]


def is_on_disk(path: Path) -> bool:
    """Tell whether a file's bytes are on its disk: false for one with holes."""
    status = path.stat()
    blocks = getattr(status, "st_blocks", None)
    return blocks is None or blocks * 512 >= status.st_size * _FULL


def drop_cached(path: Path, offsets: Sequence[int], nbytes: int) -> bool:
    """Take ranges of a file out of the page cache; false where the system keeps them."""
    if not hasattr(os, "posix_fadvise"):
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        for offset in offsets:
            # Pages come in groups, and one that reaches beyond the range would stay.
            first = max(offset - _MARGIN, 0)
            os.posix_fadvise(file, first, nbytes + 2 * _MARGIN, os.POSIX_FADV_DONTNEED)
        return not any(_is_cached(file, offset + nbytes // 2) for offset in offsets[:_SLOTS])
    finally:
        os.close(file)


def _is_cached(file: int, offset: int) -> bool:
    """Tell whether a byte can be had without waiting for the disk."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        return os.preadv(file, [bytearray(1)], offset, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError:  # a file system in memory does not know the question
        return True
