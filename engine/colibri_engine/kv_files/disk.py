"""One file of the disk, as far as saving conversations needs it: ranges, and when they are safe.

Readable by its owner only. One thread at a time.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, Self

from colibri_engine.kv_files.places import PARTIAL_SUFFIX
from colibri_engine.loader.durable import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    Data = bytes | bytearray | Numbers

_MODE = 0o600
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class DiskFile:
    """An open file.

    Args:
        path: The name it has, or gets by `publish`.
        descriptor: As `os.open` returns it; owned from now on.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._file = os.fdopen(descriptor, "r+b", buffering=0)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file that exists, and take it from the eyes of others.

        Raises:
            OSError: There is none, it is no plain file or another user's, or it cannot be read and
                written.
        """
        descriptor = os.open(path, _FLAGS)
        try:
            _make_private(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open a new file that has its name only once it is published.

        Raises:
            OSError: It cannot be made.
        """
        partial = _partial(path)
        partial.unlink(missing_ok=True)
        return cls(path, os.open(partial, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE))

    def publish(self) -> None:
        """Give a created file its name, in place of any other, once all of it is on the disk."""
        self.sync()
        if sys.platform == "win32":  # which renames no open file
            self._file.close()
        _partial(self.path).replace(self.path)
        if sys.platform == "win32":
            self._file = self.path.open("r+b", buffering=0)
        sync_directory(self.path.parent)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, into: bytearray | Numbers) -> int:
        """Fill a buffer from `offset` on; return how many bytes there were."""
        view = _bytes_of(into)
        self._file.seek(offset)
        done = 0
        while done < len(view):
            got = self._file.readinto(view[done:])
            if not got:
                break
            done += got
        return done

    def write(self, offset: int, data: Data) -> None:
        """Write all of a buffer."""
        view = _bytes_of(data)
        self._file.seek(offset)
        while view:
            view = view[self._file.write(view) or 0 :]

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._file.fileno())
        else:
            os.fsync(self._file.fileno())

    def cut(self, size: int) -> None:
        """Let the file end at `size`."""
        self._file.truncate(size)

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _bytes_of(data: Data) -> memoryview:
    view = memoryview(data) if isinstance(data, bytes | bytearray) else data.data
    return view.cast("B")


def _make_private(descriptor: int, path: Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    # Rows that somebody else made would answer in our name.
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    if stat.S_IMODE(found.st_mode) & 0o077 and hasattr(os, "fchmod"):
        os.fchmod(descriptor, _MODE)


def remove(path: Path) -> None:
    """Remove a file and what an interrupted creation left of it."""
    path.unlink(missing_ok=True)
    remove_partial(path)


def remove_partial(path: Path) -> None:
    """Remove what an interrupted creation left of a file."""
    _partial(path).unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL_SUFFIX)
