"""Changes to a directory that survive a crash: whole files under their names, forced to disk."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Put a file in place of any earlier one; a crash leaves the earlier or the new one.

    Args:
        path: The file.
        data: All it will hold.
        mode: Its permissions, less the umask.
    """
    temporary = path.with_name(f".{path.name}.partial")

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    try:
        with open(temporary, "wb", opener=opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_json(path: Path, body: object) -> None:
    """Put a JSON file in place of any earlier one, as `write_whole` does."""
    text = json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, text.encode())


def sync_directory(directory: Path) -> None:
    """Force the names of a directory to disk, where the system can do that."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:  # not possible on Windows, and not needed there
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


def make_own(directory: Path, mode: int = 0o700) -> None:
    """Make a directory and all that is missing above it, so that only its owner changes it.

    Whoever may write in a directory can put another file in the place of one there, however private
    that one is; so no directory of the user's is left to the umask.

    Args:
        directory: What there is already stays as it is.
        mode: Most permissions of each that is made; the umask may take more.

    Raises:
        OSError: it cannot be made, or is no directory.
    """
    missing = []
    place = directory
    while not place.exists() and place != place.parent:
        missing.append(place)
        place = place.parent
    for place in reversed(missing):
        place.mkdir(mode=mode, exist_ok=True)
    directory.mkdir(exist_ok=True)
