"""Small text files that are replaced as a whole: written beside their place, then moved there.

Whoever reads one meanwhile, or after a crash, sees the old text or the new one, never a part.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_AS_USUAL = 0o666  # less what the umask takes


def write_whole(
    path: Path, text: str, *, mode: int | None = None, directory_mode: int = 0o777
) -> None:
    """Replace a file, or make it and its directory.

    Args:
        path: The file.
        text: All it will hold, in UTF-8.
        mode: Exactly the permissions it gets; None: those of any new file.
        directory_mode: Permissions of its directory where that is made, less the umask.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=directory_mode)
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
