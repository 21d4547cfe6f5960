"""A program that forks children which save conversations until somebody kills them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.engine.kv_files.file_rig import PLAIN, RECURRENT, empty_cache, file_of
from tests.engine.kv_files.turns import save_all, turns_of


def main() -> None:
    """Fork a child for every line read; tell its number, when it begins, and when it is gone."""
    path = Path(sys.argv[1])
    layouts = {"plain": PLAIN, "recurrent": RECURRENT}[sys.argv[2]]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            turns = turns_of(int(line), 6, longest=20)
            print(os.getpid(), flush=True)
            while True:  # goes on from what the one before it left
                file = file_of(path, layouts)
                if path.exists() and file.open():
                    file.read_into(empty_cache(layouts))
                save_all(file, turns, layouts)
        os.waitpid(child, 0)
        print("gone", flush=True)
