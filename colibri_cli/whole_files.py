"""Small text files that are replaced as a whole: written beside their place, then moved there.

Whoever reads one meanwhile, or after a crash, sees the old text or the new one, never a part.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = 0o755  # a directory others may look into: each file says itself who may read it
_AS_USUAL = 0o666  # less what the umask takes


def write_whole(path: Path, text: str, *, mode: int | None = None) -> None:
    """Replace a file, or make it and its directory.

    Args:
        path: The file.
        text: All it will hold, in UTF-8.
        mode: Exactly the permissions it gets; None: those of any new file. Directories made for a
            file of the owner alone are the owner's too.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    if mode is not None and not mode & 0o077:
        make_own(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(beside, flags, _AS_USUAL if mode is None else mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


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
