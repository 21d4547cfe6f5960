"""How long a read that is waited for takes beside reads that are not.

    python benchmarks/reads.py DIR [--read 20] [--rounds 25]

One record is read at a time: on an idle disk, and beside a queue that never empties, of speculative
reads, of reads for the next block, and of reads as urgent as itself, which is what it would wait
for without priorities. Around the page cache, from a file of 2 GiB of random bytes that is written
to DIR and deleted.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from colibri_engine.kernels import ReadEngine, ReadPriority, SlotArena

FILE_BYTES = 2 << 30
QUEUED = 16
SLOTS = 17  # the last is that of the read that is waited for

LOADS: dict[str, ReadPriority | None] = {
    "alone": None,
    "beside speculative reads": ReadPriority.SPECULATIVE,
    "beside the next block": ReadPriority.NEXT_BLOCK,
    "in turn with its like": ReadPriority.DEMAND,
}


class Reader:
    """Random records of one file."""

    def __init__(self, path: Path, read_bytes: int, mode: str) -> None:
        self.engine = ReadEngine(mode)
        self.file = self.engine.open(str(path), direct=True)
        self.arena = SlotArena(SLOTS, read_bytes)
        for slot in range(SLOTS):
            self.arena.array(slot)[:] = 0
        self.read_bytes = read_bytes
        self.tag = 0

    def submit(self, slot: int, priority: ReadPriority) -> int:
        """Begin a read and return its tag."""
        self.tag += 1
        offset = random.randrange(FILE_BYTES // self.read_bytes) * self.read_bytes
        self.engine.submit(
            self.tag, self.file, offset, self.read_bytes, self.arena, slot, priority=priority
        )
        return self.tag

    def wanted(self, load: ReadPriority | None) -> float:
        """Return the seconds of one read beside others."""
        while load is not None and self.engine.num_queued < QUEUED:
            self.submit(self.tag % (SLOTS - 1), load)
        if load is not None:
            time.sleep(0.005)  # they are under way
        started = time.perf_counter()
        tag = self.submit(SLOTS - 1, ReadPriority.DEMAND)
        while all(completion.tag != tag for completion in self.engine.wait(5)):
            pass
        return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--read", type=int, default=20, help="MiB of one record")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    with tempfile.NamedTemporaryFile(dir=arguments.directory) as file:
        for number in range(FILE_BYTES >> 22):
            file.write(np.random.default_rng(number).bytes(1 << 22))
        file.flush()
        os.fsync(file.fileno())
        for mode in (ReadEngine().mode, "threads"):
            for name, load in LOADS.items():
                reader = Reader(Path(file.name), arguments.read << 20, mode)
                seconds = [reader.wanted(load) for _ in range(arguments.rounds)]
                reader.engine.close()
                print(
                    f"{mode:9} {name:25} median {1e3 * median(seconds):6.1f} ms, "
                    f"worst {1e3 * max(seconds):6.1f} ms"
                )


if __name__ == "__main__":
    main()
