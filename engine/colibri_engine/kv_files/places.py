"""Where saved conversations lie, and who may write there.

The first of these directories that can be written: the one a setting names, the model's own, the
user's state directory. One process at a time: whoever holds the lock file.
"""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.loader.durable import make_own
from colibri_engine.loader.file_lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME: Final = ".coli_kv"
LOCK_SUFFIX: Final = ".lock"
PARTIAL_SUFFIX: Final = ".partial"


class Occupied(Exception):
    """Another process holds the lock.

    Args:
        directory: Where.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(f"another engine saves its conversations in {directory}")


@dataclass(slots=True)
class Place:
    """A locked directory and the common beginning of the files' names in it."""

    directory: Path
    stem: str
    _lock: int | None

    def path(self, slot: int) -> Path:
        """Return the file of a slot."""
        return self.directory / (self.stem if slot == 0 else f"{self.stem}.{slot}")

    def slots_with_files(self) -> list[int]:
        """Return the slots that have a file, ascending."""
        found = []
        for path in self.directory.iterdir():
            if not path.name.startswith(self.stem):
                continue
            rest = path.name.removeprefix(self.stem)
            if rest == "":
                found.append(0)
            elif rest[0] == "." and rest[1:].isdecimal() and str(int(rest[1:])) == rest[1:]:
                found.append(int(rest[1:]))
        return sorted(found)

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def take_place(model_path: Path, kv_dir: Path | None, state_dir: Path) -> Place:
    """Lock the directory that the conversations of a model are saved in.

    Args:
        model_path: Directory or file.
        kv_dir: The only directory to use, if the user names one.
        state_dir: The user's state directory of this program.

    Raises:
        Occupied: Another process uses it.
        OSError: None can be written.
    """
    model_path = model_path.absolute()
    failure: OSError = OSError(errno.EACCES, os.strerror(errno.EACCES), str(model_path))
    for directory, is_ours in _candidates(model_path, kv_dir, state_dir):
        try:
            if is_ours:
                make_own(directory)
            return _lock(directory, _stem(model_path))
        except OSError as exc:
            failure = exc
    raise failure


def _candidates(
    model_path: Path, kv_dir: Path | None, state_dir: Path
) -> Iterator[tuple[Path, bool]]:
    """Yield directories, and whether they are made where they are absent."""
    if kv_dir is not None:
        yield kv_dir, True
        return
    yield model_path if model_path.is_dir() else model_path.parent, False
    digest = hashlib.sha256(os.fsencode(model_path)).hexdigest()[:12]
    yield state_dir / "kv" / f"{model_path.stem}-{digest}", True


def _stem(model_path: Path) -> str:
    """Return the name of slot 0's file: several GGUF files may share a directory."""
    return NAME if model_path.is_dir() else f".{model_path.name}{NAME}"


def _lock(directory: Path, stem: str) -> Place:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(directory / f"{stem}{LOCK_SUFFIX}", flags, 0o600)
    try:
        is_held = try_lock(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    if not is_held:
        os.close(descriptor)
        raise Occupied(directory)
    return Place(directory, stem, descriptor)
