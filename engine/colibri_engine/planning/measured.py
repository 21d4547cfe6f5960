"""Measured rates, kept in a file so that they are measured once for each machine and device.

An entry counts for one processor, number of threads and instruction set; one of a disk for one
device, size and way of reading. A file that cannot be read or written only costs time.
"""

from __future__ import annotations

import json
import logging
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from colibri_engine import kernels, machine
from colibri_engine.errors import ColibriError, reason_of
from colibri_engine.experts.disk_speed import Access, Load, is_on_disk, measure, spread
from colibri_engine.loader.durable import make_own, write_whole
from colibri_engine.planning.forecast import Disk
from colibri_engine.planning.rates import Rate, measure_call, measure_experts, measure_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_engine.planning.rates import ExpertShape

logger = logging.getLogger(__name__)

_VERSION: Final = 1
_MAX_BYTES: Final = 4 << 20
_DISK_SECONDS: Final = 0.5  # of one of two measurements
_MAX_TURNS: Final = 8
_MIN_READS: Final = 2


class MeasuredRates:
    """Rates of this machine with the threads the kernels have now.

    Args:
        path: Where they are kept; None: nowhere.
        numerics: How activations meet the weights.
        renew: Measure again what is there.
    """

    def __init__(self, path: Path | None, numerics: str, *, renew: bool = False) -> None:
        self._path = path
        self._numerics = numerics
        self._renew = renew
        self._entries: dict[str, list[float]] = _read(path)
        self._prefix = f"{machine.cpu_name()} | {kernels.num_threads()} threads"
        self._prefix += f" | {kernels.active_isa()} | {numerics} | "
        self.num_measured = 0

    def kind(self, kind: str) -> Rate:
        """Return the rate of a kind of weight."""
        return Rate(
            *self._get(self._prefix + kind, lambda: [*measure_kind(kind, self._numerics)], 3)
        )

    def experts(self, shape: ExpertShape, num_rows: int) -> Rate:
        """Return the rate of routed experts."""
        key = f"{self._prefix}experts {' '.join(map(str, shape))}, {num_rows} rows"
        return Rate(*self._get(key, lambda: [*measure_experts(shape, num_rows, self._numerics)], 3))

    def call_s(self) -> float:
        """Return the seconds of a kernel call that computes next to nothing."""
        return self._get(f"{self._prefix}call", lambda: [measure_call()], 1)[0]

    def disk(self, path: Path, read_bytes: int, depth: int, access: Access) -> Disk | None:
        """Return how fast records of a file come; None where that cannot be told.

        Args:
            path: A large file on the device.
            read_bytes: Bytes of a record.
            depth: Records that are read at the same time.
            access: How they are read.
        """
        key = f"disk {_device(path)} | {read_bytes} bytes, {depth} at a time, {access}"
        try:
            found = self._get(key, lambda: _measure_disk(path, read_bytes, depth, access), 2)
        except (OSError, RuntimeError, ColibriError) as exc:
            logger.warning("the disk of %s could not be measured: %s", path.parent, reason_of(exc))
            return None
        return Disk(*found)

    def save(self) -> None:
        """Keep what was measured."""
        if self._path is None or not self.num_measured:
            return
        body = {"version": _VERSION, "rates": self._entries}
        try:
            make_own(self._path.parent)
            write_whole(self._path, json.dumps(body, indent=1).encode())
        except OSError as exc:
            logger.warning("measured rates are not kept: %s", reason_of(exc))

    def _get(self, key: str, measure_it: Callable[[], list[float]], count: int) -> list[float]:
        found = self._entries.get(key)
        if found is not None and len(found) == count and not self._renew:
            return found
        found = self._entries[key] = measure_it()
        self.num_measured += 1
        return found


def _measure_disk(path: Path, read_bytes: int, depth: int, access: Access) -> list[float]:
    """Return bytes per second with `depth` reads open, and what one alone takes longer."""
    size = path.stat().st_size
    if not is_on_disk(path):
        raise OSError(f"{path.name} has holes: it says nothing about the disk")
    rates = []
    for number, at_once in enumerate((depth, 1)):
        load = Load(read_bytes, at_once)
        count = max(_MIN_READS, size // read_bytes)
        nbytes, passed = 0, 0.0
        # A small file is read again and again, as a small model is: what lies beneath may keep it,
        # so its first turn, which may be much slower, does not count.
        for turn in range(_MAX_TURNS):
            offsets = spread(size, load, count, seed=number + 2 * turn)
            if not offsets:
                raise OSError(f"{path.name} is smaller than one record")
            found = measure(path, offsets, load, access, _DISK_SECONDS)
            if turn == 1:
                nbytes, passed = 0, 0.0
            nbytes, passed = nbytes + found.nbytes, passed + found.seconds
            if passed >= _DISK_SECONDS:
                break
        rate = nbytes / passed if passed > 0 else 0.0
        if not rate > 0:
            raise OSError(f"nothing could be read from {path.name}")
        rates.append(rate)
    together, alone = rates
    return [together, max(0.0, read_bytes / alone - read_bytes / together)]


def _device(path: Path) -> str:
    """Return what tells one device from another."""
    text = f"device {path.stat().st_dev}"
    with suppress(OSError, AttributeError):
        found = os.statvfs(path)
        text += f" of {found.f_blocks * found.f_frsize} bytes"
    return text


def _read(path: Path | None) -> dict[str, list[float]]:
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            body: Any = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        logger.warning("%s cannot be read, rates are measured again: %s", path, reason_of(exc))
        return {}
    rates = body.get("rates") if isinstance(body, dict) else None
    if not isinstance(rates, dict) or body.get("version") != _VERSION:
        return {}
    return {key: values for key, values in rates.items() if _are_rates(values)}


def _are_rates(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
        for value in values
    )
