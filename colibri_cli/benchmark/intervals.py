"""Exact intervals for a handful of rounds: no distribution is assumed, nothing is drawn at random.

Rounds of one run share the machine's mood, so these tell chance from change within what two runs
saw; that a neighbour was busy during one of them they cannot know.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE: Final = 0.95
_TAIL: Final = (1 - CONFIDENCE) / 2
_MAX_EXACT: Final = 400  # pairs


@dataclass(frozen=True, slots=True)
class Interval:
    """A middle and the bounds around it; None where the rounds are too few for any."""

    middle: float
    low: float | None
    high: float | None


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median with an interval of at least 95 %, which takes six values.

    Source: Thompson (1936), order statistics around the median.
    """
    ordered, number = sorted(values), len(values)
    below, cut = 0.0, -1
    for count in range(number):
        below += math.comb(number, count) / 2**number
        if below > _TAIL:
            break
        cut = count
    middle = statistics.median(ordered)
    if cut < 0:
        return Interval(middle, None, None)
    return Interval(middle, ordered[cut], ordered[number - 1 - cut])


def ratio_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Return how many times larger one set of positive values is, with an interval of 95 % or more.

    The middle of all ratios, and those of them between which the exact rank test finds no
    difference; four rounds on both sides are enough. Sources: Hodges and Lehmann (1963), Mann and
    Whitney (1947).
    """
    ratios = sorted(new / old for new in after for old in before)
    cut = _cut(len(before), len(after))
    middle = math.exp(statistics.median(map(math.log, ratios)))
    if cut is None:
        return Interval(middle, None, None)
    return Interval(middle, ratios[cut], ratios[len(ratios) - 1 - cut])


def _cut(first: int, second: int) -> int | None:
    """Return how many ratios lie outside on each side; None: not even the extremes are enough."""
    if first * second > _MAX_EXACT:  # where counting is long, the normal curve is as good
        spread = math.sqrt(first * second * (first + second + 1) / 12)
        return int(first * second / 2 - statistics.NormalDist().inv_cdf(1 - _TAIL) * spread)
    everything = math.comb(first + second, first)
    below, cut = 0, None
    for rank in range(first * second + 1):
        below += _ways(first, second, rank)
        if below / everything > _TAIL:
            break
        cut = rank
    return cut


@cache
def _ways(first: int, second: int, rank: int) -> int:
    """Return in how many orders exactly `rank` pairs have the second value below the first."""
    if rank < 0:
        return 0
    if first == 0 or second == 0:
        return int(rank == 0)
    return _ways(first - 1, second, rank - second) + _ways(first, second - 1, rank)
