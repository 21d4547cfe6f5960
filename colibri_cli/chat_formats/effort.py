"""How much reasoning: the levels clients know, and the nearest that a model knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

LEVELS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def nearest_level(level: str, known: Collection[str]) -> str:
    """Return the one of `known` levels that is nearest to `level`, the higher of two."""
    wanted = LEVELS.index(level)
    places = sorted((LEVELS.index(word) for word in known), reverse=True)
    return LEVELS[min(places, key=lambda place: abs(place - wanted))]
