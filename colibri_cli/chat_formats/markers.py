"""Finding markers in a stream of text that arrives in arbitrary pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def held_length(text: str, markers: Iterable[str]) -> int:
    """Return the length of the longest suffix of `text` that may still grow into a marker."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest


def first_marker(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """Return offset and marker of the earliest occurrence; on a tie the first in the list."""
    best: tuple[int, str] | None = None
    for marker in markers:
        offset = text.find(marker)
        if offset >= 0 and (best is None or offset < best[0]):
            best = offset, marker
    return best


def is_start(text: str, *markers: str) -> bool:
    """Return whether the whole text may still grow into one of the markers."""
    return any(marker.startswith(text) for marker in markers)
