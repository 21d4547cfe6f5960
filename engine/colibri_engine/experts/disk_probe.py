"""What a disk gives through and around the page cache, measured once at a start and kept.

Bounded to some tenths of a second per disk. A measurement belongs to one disk (device, file system
and its size), one way of reading and one size of reads; it is forgotten after a week.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import reason_of
from colibri_engine.experts.disk_choice import DiskChoice, choose
from colibri_engine.experts.disk_speed import Access, Load, is_on_disk, measure, spread
from colibri_engine.loader.durable import make_own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

_SECONDS: Final = 0.12  # of each of two measurements
_LONGEST_READ: Final = 4 << 20  # a slow disk needs a while for more, and gains nothing from it
_DEPTH: Final = 4
_MIN_READS: Final = 8  # fewer tell nothing
_MAX_READS: Final = 256
_VERSION: Final = 1
_MAX_AGE_S: Final = 7 * 24 * 3600
_MAX_ENTRIES: Final = 64


def probe_disks(
    paths: Sequence[Path], read_bytes: int, mode: str, cache: Path | None
) -> dict[Path, DiskChoice]:
    """Return for each file what its disk gives; without those that cannot be measured.

    Args:
        paths: Files, any number on one disk.
        read_bytes: Of one read.
        mode: "io_uring" or "threads".
        cache: The file that keeps measurements; None: measure anew.
    """
    known = _read(cache)
    load = Load(min(read_bytes, _LONGEST_READ), _DEPTH)
    by_disk: dict[str, list[Path]] = {}
    for path in paths:
        by_disk.setdefault(_disk_of(path), []).append(path)
    found: dict[Path, DiskChoice] = {}
    has_new = False
    for disk, files in by_disk.items():
        key = f"{disk} {mode} {load.read_bytes}"
        choice = _entry(known.get(key), mode)
        if choice is None:
            choice = _measured(files, load, mode)
            if choice is None:
                continue
            has_new = True
            known[key] = {
                "direct": choice.access.is_direct,
                "bytes_per_s": round(choice.bytes_per_s),
                "reason": choice.reason,
                "at": int(time.time()),
            }
        logger.info("disk of %s: %s: %s", files[0].parent, choice.access, choice.reason)
        found.update(dict.fromkeys(files, choice))
    if has_new and cache is not None:
        _write(cache, known)
    return found


def _measured(files: Sequence[Path], load: Load, mode: str) -> DiskChoice | None:
    path = max(files, key=lambda file: file.stat().st_size)
    offsets = spread(path.stat().st_size, load, _MAX_READS, seed=os.getpid())
    if len(offsets) < _MIN_READS or not is_on_disk(path):
        return None
    try:
        rates = [
            measure(path, offsets[half::2], load, Access(mode, is_direct), _SECONDS)
            for half, is_direct in enumerate((True, False))
        ]
    except OSError as exc:  # reading will tell, and name the place
        logger.warning("the disk of %s could not be measured: %s", path, exc.strerror)
        return None
    return choose(rates) if all(rate.nbytes for rate in rates) else None


def _disk_of(path: Path) -> str:
    """Return what tells one disk from another, also after a file system took another's place."""
    status = path.stat()
    if not hasattr(os, "statvfs"):
        return str(status.st_dev)
    system = os.statvfs(path)
    return f"{status.st_dev}-{system.f_fsid:x}-{system.f_blocks}"


def _entry(body: object, mode: str) -> DiskChoice | None:
    """Return a kept measurement, if it is one and not too old."""
    match body:
        case {
            "direct": bool(is_direct),
            "bytes_per_s": int(bytes_per_s),
            "reason": str(reason),
            "at": int(at),
        } if bytes_per_s > 0 and 0 <= time.time() - at < _MAX_AGE_S:
            return DiskChoice(Access(mode, is_direct), bytes_per_s, f"{reason}, as measured before")
    return None


def _read(cache: Path | None) -> dict[str, Any]:
    if cache is None:
        return {}
    try:
        body = json.loads(cache.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    disks = body.get("disks") if isinstance(body, dict) and body.get("version") == _VERSION else {}
    return disks if isinstance(disks, dict) and len(disks) < _MAX_ENTRIES else {}


def _write(cache: Path, disks: Mapping[str, Any]) -> None:
    """Keep measurements where that is possible; the next start measures otherwise."""
    part = cache.with_name(f"{cache.name}.{os.getpid()}.part")
    text = json.dumps({"version": _VERSION, "disks": disks}, indent=1)
    try:
        make_own(cache.parent)
        part.write_text(text, "utf-8")
        part.replace(cache)
    except OSError as exc:
        logger.info("measurements of disks are not kept: %s", reason_of(exc))
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
