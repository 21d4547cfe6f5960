"""One conversion per directory at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import ConversionError
from colibri_engine.loader.file_lock import try_lock
from colibri_engine.loader.opening import open_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK: Final = ".coli-convert.lock"


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of an output directory; a killed process gives it back.

    Raises:
        ConversionError: another process holds it.
        OSError: there is something in its place that is no file.
    """
    with open(directory / LOCK, "ab", opener=open_at_once) as file:
        if not try_lock(file.fileno()):
            raise ConversionError(
                f"{directory} is being written by another conversion",
                hint="wait for it, or give another directory",
            )
        yield
