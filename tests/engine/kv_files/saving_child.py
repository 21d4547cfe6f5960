"""A program that forks children which save conversations until somebody kills them.

A child tells of every step of its work before it takes it, so that it can be killed at any of them
however slow the disk is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from colibri_engine.kv_files.disk import DiskFile
from tests.engine.kv_files.file_rig import EVERY, empty_cache, file_of
from tests.engine.kv_files.turns import save_all, turns_of


class TellingDisk(DiskFile):
    """Says that something is about to be done, then does it."""

    def write(self, *what: Any) -> None:  # noqa: ANN401
        """Write."""
        os.write(1, b"+\n")
        super().write(*what)

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.write(1, b"+\n")
        super().sync()

    def cut(self, size: int) -> None:
        """Shorten."""
        os.write(1, b"+\n")
        super().cut(size)


def main() -> None:
    """Fork a child for every line read; tell its number, when it begins, and when it is gone."""
    path = Path(sys.argv[1])
    layouts = EVERY[sys.argv[2]]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            turns = turns_of(int(line), 6, longest=20)
            print(os.getpid(), flush=True)
            while True:  # goes on from what the one before it left
                file = file_of(path, layouts, disk=TellingDisk)
                if path.exists() and file.open():
                    file.read_into(empty_cache(layouts))
                save_all(file, turns, layouts)
        os.waitpid(child, 0)
        print("gone", flush=True)
