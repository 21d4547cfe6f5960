"""`coli bench disk`: the engine's job that measures a disk, and its figures as a table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import UsageError
from colibri_cli.model_store.engine_job import run_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)\s*([kKmMgG]?)(?:i?[bB])?")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_BLOCK: Final = 4096
_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """What is measured.

    Args:
        directory: On the disk.
        read_sizes: Bytes of one read, each a multiple of 4096.
        depths: Reads open at a time.
        seconds: For each measurement.
        file_bytes: Of the file that is read.
    """

    directory: Path
    read_sizes: tuple[int, ...]
    depths: tuple[int, ...]
    seconds: float
    file_bytes: int

    def arguments(self) -> list[str]:
        """Return those of the engine's job."""
        return [
            f"--directory={self.directory}",
            f"--read={','.join(map(str, self.read_sizes))}",
            f"--depth={','.join(map(str, self.depths))}",
            f"--seconds={self.seconds}",
            f"--file-bytes={self.file_bytes}",
        ]


@dataclass(slots=True)
class DiskResult:
    """What was measured, as the job said it."""

    plan: DiskPlan
    file: dict[str, Any] = field(default_factory=dict)
    rates: list[dict[str, Any]] = field(default_factory=list)
    choices: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `--json`."""
        return {
            "schema_version": _SCHEMA_VERSION,
            "directory": str(self.plan.directory),
            "file": self.file,
            "rates": self.rates,
            "choices": self.choices,
            "notes": self.notes,
        }

    def table(self) -> list[list[str]]:
        """Return the rows: one per load and way to read."""
        return [
            [
                size_text(rate["read_bytes"]),
                str(rate["depth"]),
                rate["pattern"],
                rate["mode"],
                _cache_text(rate),
                f"{rate['bytes_per_s'] / 1e9:.2f}",
            ]
            for rate in self.rates
        ]

    def summary(self) -> list[str]:
        """Return the lines below the table."""
        lines = []
        for choice in self.choices:
            way = f"{choice['mode']}, {'direct' if choice['direct'] else 'buffered'}"
            lines.append(
                f"reads of {size_text(choice['read_bytes'])}: the engine takes {way}: "
                f"{choice['reason']}"
            )
        return [*lines, *self.notes]


def measure_disk(plan: DiskPlan, on_progress: Callable[[int, int], None]) -> DiskResult:
    """Run the job.

    Raises:
        JobFailed: it failed; code, message and hint are the engine's.
    """
    result = DiskResult(plan)

    def on_line(word: str, rest: str) -> None:
        if word == "PROGRESS":
            done, total = rest.split(" ")
            on_progress(int(done), int(total))
        elif word == "RATE":
            result.rates.append(json.loads(rest))
        elif word == "CHOICE":
            result.choices.append(json.loads(rest))
        elif word == "FILE":
            result.file = json.loads(rest)
        elif word == "NOTE":
            result.notes.append(rest)

    run_job("disk-bench", plan.arguments(), on_line)
    return result


def parse_size(flag: str, text: str, *, low: int = 1, high: int = 1 << 40) -> int:
    """Return the bytes of "20M", "4096" or "1.5GiB"; units are powers of 1024.

    Raises:
        UsageError: it is no size, or out of range.
    """
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if not low <= size <= high:
        raise UsageError(
            f"{flag}: {text.strip()!r} is not a size in {size_text(low)}..{size_text(high)}",
            hint="sizes look like 4096, 512K, 20M or 1.5G",
        )
    return size


def parse_read_size(flag: str, text: str) -> int:
    """Return the bytes of one read.

    Raises:
        UsageError: it is no size, out of range, or not a multiple of 4096.
    """
    size = parse_size(flag, text, low=_BLOCK, high=1 << 30)
    if size % _BLOCK:
        raise UsageError(
            f"{flag}: {text.strip()!r} is not a multiple of 4096 bytes",
            hint=f"give {size // _BLOCK * _BLOCK} or {(size // _BLOCK + 1) * _BLOCK}",
        )
    return size


def size_text(size: int) -> str:
    """Return "20 MiB"; powers of 1024, as disks and pages are counted."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def _cache_text(rate: dict[str, Any]) -> str:
    if rate["direct_refused"]:
        return "direct refused, buffered"
    if rate["direct"]:
        return "direct"
    return "buffered" if rate["cold"] else "buffered, not cold"
