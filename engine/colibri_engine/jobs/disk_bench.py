"""Measure the disk of a directory with the engine's own reads.

A large weight file in the directory is read where there is one. Otherwise a file of random bytes
is written and, where the system can open it all the same, unlinked at once, so that nothing is
left of it whatever ends the job. Further lines:

    FILE <json>      what is read
    RATE <json>      one measurement
    CHOICE <json>    what the engine would do, for one read size
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import BadChoice
from colibri_engine.experts.disk_choice import choose
from colibri_engine.experts.disk_speed import (
    BLOCK,
    Access,
    Load,
    Rate,
    is_on_disk,
    measure,
    spread,
)
from colibri_engine.kernels import ReadEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from colibri_engine.jobs.base import JobOutput

_SUFFIXES: Final = (".safetensors", ".gguf")
_MIN_READS: Final = 16  # of the largest size that the file must hold
_MAX_READS: Final = 1 << 16  # of one measurement
_FREE_SHARE: Final = 4  # at most one part in so many of the free space is written
_CHUNK: Final = 4 << 20


def run(argv: list[str], output: JobOutput) -> None:
    """Measure `--directory`.

    Raises:
        BadChoice: the choices do not fit the disk.
        OSError: the disk cannot be read or written.
    """
    arguments = _parser().parse_args(argv)
    loads = [
        Load(size, depth, is_random)
        for size, depth, is_random in product(arguments.read, arguments.depth, (False, True))
    ]
    accesses = [
        Access(mode, is_direct) for mode, is_direct in product(_modes(output), (True, False))
    ]
    signal.signal(signal.SIGTERM, _leave)  # so that the file goes, too
    with _file(arguments, output) as path:
        found: dict[int, list[Rate]] = {}
        done, total = 0, len(loads) * len(accesses)
        for load in loads:
            rates = []
            for access in accesses:
                rate = _measure(path, load, access, arguments.seconds, done)
                rates.append(rate)
                output.say("RATE", _dump(_body(rate, access)))
                done += 1
                output.progress(done, total)
            if load.is_random and load.depth == max(arguments.depth):
                found[load.read_bytes] = rates
        for size, rates in found.items():
            choice = choose(rates)
            body = {"read_bytes": size, "mode": choice.access.mode}
            body |= {"direct": choice.access.is_direct, "reason": choice.reason}
            output.say("CHOICE", _dump(body))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _modes(output: JobOutput) -> list[str]:
    engine = ReadEngine("auto", depth=1, num_threads=1)
    if engine.mode == "threads":
        output.say("NOTE", engine.mode_reason)
        return ["threads"]
    return ["io_uring", "threads"]


def _measure(path: Path, load: Load, access: Access, seconds: float, seed: int) -> Rate:
    offsets = spread(path.stat().st_size, load, _MAX_READS, seed)
    return measure(path, offsets, load, access, seconds)


def _body(rate: Rate, asked: Access) -> dict[str, Any]:
    return {
        "read_bytes": rate.load.read_bytes,
        "depth": rate.load.depth,
        "pattern": "random" if rate.load.is_random else "sequential",
        "mode": rate.access.mode,
        "direct": asked.is_direct,
        "direct_refused": asked.is_direct and not rate.access.is_direct,
        "cold": rate.is_cold,
        "bytes": rate.nbytes,
        "seconds": round(rate.seconds, 6),
        "bytes_per_s": round(rate.bytes_per_s),
    }


@contextmanager
def _file(arguments: argparse.Namespace, output: JobOutput) -> Iterator[Path]:
    """Give the file that is read."""
    directory: Path = arguments.directory
    needed = max(arguments.read) * _MIN_READS
    if not directory.is_dir():
        raise BadChoice(f"{directory} is no directory", hint="name a directory on the disk")
    existing = _largest_weights(directory)
    if existing is not None and existing.stat().st_size >= max(needed, arguments.file_bytes):
        output.say("FILE", _dump({"path": str(existing), "bytes": existing.stat().st_size}))
        yield existing
        return
    size = max(arguments.file_bytes, needed)
    free = _free_bytes(directory)
    if size > free // _FREE_SHARE:
        raise BadChoice(
            f"{directory} has {free} bytes free; a file of {size} would take more than a quarter",
            hint="give a smaller --file-size or --read, or a directory with large weight files",
        )
    with _written(directory, size // BLOCK * BLOCK) as path:
        output.say("FILE", _dump({"path": None, "bytes": size // BLOCK * BLOCK}))
        yield path


def _largest_weights(directory: Path) -> Path | None:
    files = [path for path in directory.iterdir() if path.suffix in _SUFFIXES and is_on_disk(path)]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def _free_bytes(directory: Path) -> int:
    import shutil

    return shutil.disk_usage(directory).free


@contextmanager
def _written(directory: Path, size: int) -> Iterator[Path]:
    """Give a file of random bytes that is gone afterwards."""
    number, name = tempfile.mkstemp(prefix=".coli-bench-", dir=directory)
    path, opened = Path(name), Path(f"/proc/self/fd/{number}")
    try:
        if opened.exists():
            path.unlink()
            path = opened
        random = np.random.default_rng(size)
        with os.fdopen(os.dup(number), "wb") as file:
            for done in range(0, size, _CHUNK):
                file.write(random.bytes(min(_CHUNK, size - done)))
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        os.close(number)
        if path != opened:
            path.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="disk-bench")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--read", type=_numbers, required=True)
    parser.add_argument("--depth", type=_numbers, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--file-bytes", type=int, required=True)
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _dump(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
