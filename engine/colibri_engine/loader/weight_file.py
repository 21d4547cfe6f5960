"""Reading ranges of one file, completely or not at all.

Plain reads rather than a mapping: a file cut short while it is open then gives an error, where a
mapping would end the process. Thread-safe.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import CheckpointError, reason_of, unreadable
from colibri_engine.loader.opening import open_at_once

if TYPE_CHECKING:
    from pathlib import Path

_MAX_READ: Final = 1 << 30  # one call may move at most 2 GiB on Linux and less elsewhere


class WeightFile:
    """One file, opened for reading.

    Args:
        path: The file.

    Raises:
        CheckpointError: it cannot be opened, or is a pipe or a device.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = open(  # noqa: SIM115 - `close` does
                path, "rb", buffering=0, opener=open_at_once
            )
        except OSError as exc:
            raise unreadable(path, exc) from exc
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise CheckpointError(
                f"{path} is a pipe or a device, not a file",
                path=path,
                hint="put the file itself there: copy or pull the model again",
            )
        self.size = status.st_size

    def read(self, offset: int, count: int) -> npt.NDArray[np.uint8]:
        """Return `count` bytes from `offset` in a fresh array.

        Raises:
            CheckpointError: the file ends earlier or cannot be read.
        """
        if offset < 0 or count < 0 or offset + count > self.size:
            raise self._too_short(offset + count)
        data = np.empty(count, np.uint8)
        view = data.data
        done = 0
        while done < count:
            got = self._read_some(offset + done, view[done : done + _MAX_READ])
            if got == 0:  # cut since it was opened
                self.size = os.fstat(self._file.fileno()).st_size
                raise self._too_short(offset + count)
            done += got
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_some(self, offset: int, view: memoryview) -> int:
        try:
            if hasattr(os, "preadv"):
                return os.preadv(self._file.fileno(), [view], offset)
            with self._lock:
                self._file.seek(offset)
                return self._file.readinto(view)
        except (OSError, ValueError) as exc:  # ValueError: the file is closed
            raise CheckpointError(
                f"cannot read {self.path} at byte {offset}: {reason_of(exc)}",
                path=self.path,
                hint=f"check the disk of {self.path.name}; copy or pull the model again",
            ) from exc

    def _too_short(self, expected: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path} looks incomplete: expected at least {expected} bytes, found {self.size}",
            path=self.path,
            hint="pull or copy the model again",
        )
