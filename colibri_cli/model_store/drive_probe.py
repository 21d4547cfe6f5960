"""`.coli_ssd` beside a model: how fast its drive was measured to be, one line `v2 GB/s DEVICE`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = ".coli_ssd"

_LINE: Final = re.compile(r"v2 ([0-9]+(?:\.[0-9]+)?) ([0-9]+)")
_OLD_LINE: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")  # before it named the drive
_LIMIT: Final = 1000  # GB/s; more is no drive
_MAX_BYTES: Final = 256


class DriveProbe(NamedTuple):
    """What the file says.

    Args:
        state: "ok"; "absent"; "legacy", a figure that names no drive; "foreign", one of another
            drive; "garbage".
        gb_per_s: The figure where it may be believed.
    """

    state: str
    gb_per_s: float | None = None


def drive_probe(folder: Path) -> DriveProbe:
    """Return the kept measurement of the drive a folder is on."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            line = file.read(_MAX_BYTES).decode("ascii").strip()
    except UnicodeDecodeError:
        return DriveProbe("garbage")
    except OSError:
        return DriveProbe("absent")
    known = _LINE.fullmatch(line)
    if known is None:
        return DriveProbe("legacy" if _OLD_LINE.fullmatch(line) else "garbage")
    if not 0 < float(known[1]) < _LIMIT:
        return DriveProbe("garbage")
    if int(known[2]) != folder.stat().st_dev:
        return DriveProbe("foreign")
    return DriveProbe("ok", float(known[1]))
