"""A look at files that are too large to be read whole: enough to tell other contents from these.

Equal sizes do not mean equal weights; two fine-tuned models of one base differ nearly everywhere.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_SAMPLE_BYTES: Final = 4096
_NUM_SAMPLES: Final = 256  # over all files: what even a slow disk gives in a few seconds
_FIRST_BYTES: Final = 1 << 20


class FileSample(NamedTuple):
    """What was looked at of one file.

    Args:
        path: The file.
        size: Its bytes.
        mtime_ns: When it was changed.
        parts: Its first MiB (the header) and samples spread over it.
    """

    path: Path
    size: int
    mtime_ns: int
    parts: list[bytes]


def sample_files(files: Sequence[Path]) -> Iterator[FileSample]:
    """Yield a look at each file.

    Raises:
        OSError: One cannot be read.
    """
    num_samples = max(1, _NUM_SAMPLES // max(1, len(files)))
    for path in files:
        with path.open("rb", buffering=0) as file:
            stat = os.fstat(file.fileno())
            parts = [file.read(_FIRST_BYTES)]
            for offset in _offsets(stat.st_size, num_samples):
                file.seek(offset)
                parts.append(file.read(_SAMPLE_BYTES))
        yield FileSample(path, stat.st_size, stat.st_mtime_ns, parts)


def samples_digest(files: Sequence[Path], label: Callable[[FileSample], str]) -> str:
    """Return a digest of a look at each file.

    Args:
        files: Which, in an order that matters.
        label: What besides the bytes tells a file from another.

    Raises:
        OSError: One cannot be read.
    """
    digest = hashlib.sha256()
    for sample in sample_files(files):
        digest.update(f"{label(sample)}\n".encode())
        for part in sample.parts:
            digest.update(part)
    return digest.hexdigest()


def _offsets(size: int, count: int) -> Iterable[int]:
    """Return where samples begin: spread evenly, the last one at the end."""
    last = max(size - _SAMPLE_BYTES, 0)
    return sorted({last * (index + 1) // count for index in range(count)})
