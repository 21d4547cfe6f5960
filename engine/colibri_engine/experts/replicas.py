"""Copies of a model's files on further disks: which are admitted, and which gives an expert.

A copy may lack files. One is admitted where it has the size and the header, byte for byte, of the
file it stands for, and the same bytes at some places of its tensors: another training of the same
model has all but those. Nothing is ever written to it. Experts are shared out by a hash of their
place, in the proportion of the disks' weights, so that each is always read from the same disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

MAX_MIRRORS: Final = 4

_SETTING: Final = "model_mirror"
_SOURCE: Final = "COLI_MODEL_MIRROR"
_MAX_HEADER_BYTES: Final = 512 << 20
_CHUNK: Final = 1 << 20
_NUM_SAMPLES: Final = 8  # of each file
_SAMPLE_BYTES: Final = 4096


def find_copies(paths: Sequence[Path], mirrors: Sequence[Path]) -> list[list[Path | None]]:
    """Return for each file its copies, one place per mirror: None where that has none.

    Args:
        paths: The model's own files.
        mirrors: Directories that hold copies of some or all of them.

    Raises:
        SettingsError: a mirror is none: it names the directory and what is wrong.
    """
    if len(mirrors) > MAX_MIRRORS:
        raise _refused(f"{len(mirrors)} directories, at most {MAX_MIRRORS} can be used")
    found: list[list[Path | None]] = [[] for _ in paths]
    for number, mirror in enumerate(mirrors):
        if not mirror.is_dir():
            raise _refused(f"{mirror} is no directory")
        if any(mirror.samefile(other) for other in mirrors[:number]):
            raise _refused(f"{mirror} is named twice")
        problems: list[str] = []
        for path, copies in zip(paths, found, strict=True):
            copies.append(_admitted(path, mirror / path.name, problems))
        if all(copies[-1] is None for copies in found):
            why = problems[0] if problems else f"it holds none of {len(paths)} files of the model"
            raise _refused(f"{mirror} cannot be used: {why}")
        for problem in problems:
            logger.warning(
                "mirror %s: %s; that file is read from the model itself", mirror, problem
            )
    return found


def _admitted(path: Path, copy: Path, problems: list[str]) -> Path | None:
    if not copy.is_file():
        return None
    try:
        if copy.samefile(path):
            problems.append(f"{copy.name} is the model's own file, no copy")
        elif copy.stat().st_size != path.stat().st_size:
            problems.append(
                f"{copy.name} has {copy.stat().st_size} bytes, the model's {path.stat().st_size}"
            )
        elif not _same_header(path, copy):
            problems.append(f"the header of {copy.name} differs from the model's")
        elif (place := _first_difference(path, copy)) is not None:
            problems.append(f"{copy.name} has other weights than the model, at byte {place}")
        else:
            return copy
    except OSError as exc:
        problems.append(f"{copy.name} cannot be read: {exc.strerror}")
    return None


def _same_header(path: Path, copy: Path) -> bool:
    """Compare what precedes the tensors: a length of 8 bytes and as many more."""
    with path.open("rb") as one, copy.open("rb") as other:
        start = one.read(8)
        if start != other.read(8):
            return False
        left = min(int.from_bytes(start, "little"), _MAX_HEADER_BYTES)
        while left > 0:
            piece = one.read(min(left, _CHUNK))
            if piece != other.read(min(left, _CHUNK)):
                return False
            if not piece:
                break
            left -= len(piece)
    return True


def _first_difference(path: Path, copy: Path) -> int | None:
    """Compare samples spread over two files of a size; return where one differs."""
    last = max(path.stat().st_size - _SAMPLE_BYTES, 0)
    with path.open("rb", buffering=0) as one, copy.open("rb", buffering=0) as other:
        for number in range(_NUM_SAMPLES):  # seeks of a slow disk take time: few
            place = last * (number + 1) // _NUM_SAMPLES
            one.seek(place)
            other.seek(place)
            if one.read(_SAMPLE_BYTES) != other.read(_SAMPLE_BYTES):
                return place
    return None


def thresholds(weights: Sequence[float]) -> list[int]:
    """Return where each copy's share of 0..255 ends; copies without weight have none."""
    total, summed, ends = sum(weights), 0.0, []
    for weight in weights:
        summed += weight
        ends.append(round(summed / total * 256) if total else 256)
    return ends


def choose(file: int, offset: int, ends: Sequence[int]) -> int:
    """Return which copy gives the record at an offset of a file.

    Args:
        file: Number of the file.
        offset: Where the record begins.
        ends: See `thresholds`.
    """
    number = _mix((file << 48) ^ (offset >> 12)) & 255
    return next(place for place, end in enumerate(ends) if number < end)


def _mix(value: int) -> int:
    """Return a number whose low bits depend on all bits of another.

    Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014), the finisher.
    """
    mask = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def _refused(problem: str) -> SettingsError:
    return SettingsError(
        f"{_SOURCE}: {problem}",
        setting=_SETTING,
        source=_SOURCE,
        hint="name directories with copies of the model's files, or leave it out",
    )
