"""Whenever saving stops, what is read afterwards is a whole conversation or none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.engine.kv_files.file_rig import EVERY, file_of, read_back
from tests.engine.kv_files.recording_disk import Log, recording_disk
from tests.engine.kv_files.turns import save_all, turns_of

if TYPE_CHECKING:
    from tests.engine.kv_files.file_rig import Layouts


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("layouts", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_a_power_failure_leaves_a_whole_conversation(
    layouts: Layouts, seed: int, tmp_path: Path
) -> None:
    path = tmp_path / ".coli_kv"
    log = Log()
    turns = turns_of(seed, 12)
    save_all(file_of(path, layouts, disk=recording_disk(log)), turns, layouts)
    whole = {turn.ids.tobytes() for turn in turns}
    draw = np.random.default_rng(seed)
    seen = set()
    for moment in range(len(log.entries) + 1):
        for _ in range(3):
            image = log.remains(moment, draw)
            if image is None:
                continue
            path.write_bytes(image)
            ids = read_back(path, layouts)  # never damaged: the order of writing sees to that
            seen.add(ids.tobytes())
            assert any(kept.startswith(ids.tobytes()) for kept in whole)
    assert whole <= seen  # the moments between two turns are among them


def check_kills(count: int, layouts_name: str, tmp_path: Path) -> None:
    """Kill a process that does nothing but save, `count` times, and judge what it left."""
    layouts = EVERY[layouts_name]
    draw = random.Random(count)
    path = tmp_path / ".coli_kv"
    code = "from tests.engine.kv_files.saving_child import main; main()"
    saver = subprocess.Popen(
        [sys.executable, "-c", code, str(path), layouts_name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert saver.stdin
    assert saver.stdout
    seen = set()
    with saver:
        for number in range(count):
            print(number, file=saver.stdin, flush=True)
            child = int(saver.stdout.readline())
            for _ in range(draw.randrange(40)):  # before a step of its work, or within one
                assert saver.stdout.readline() == "+\n"
            time.sleep(draw.random() * 0.001)
            os.kill(child, signal.SIGKILL)
            while saver.stdout.readline() != "gone\n":
                assert saver.poll() is None
            try:
                seen.add(read_back(path, layouts).tobytes())  # damaged, or a wrong row: fails here
            except FileNotFoundError:
                seen.add(b"")
        saver.stdin.close()
    assert len(seen) > count // 10  # the kills came at many different moments


@pytest.mark.parametrize("layouts", EVERY)
def test_a_killed_process_leaves_a_whole_conversation(layouts: str, tmp_path: Path) -> None:
    check_kills(40, layouts, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layouts", EVERY)
def test_500_killed_processes_leave_whole_conversations(layouts: str, tmp_path: Path) -> None:
    check_kills(500, layouts, tmp_path)
