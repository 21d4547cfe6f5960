"""The search: one candidate after the other against the best so far, then the winner once more.

A candidate wins by a clear gain in speed, if it reads no more from disk and its slowest pieces are
not much slower. The confirmation measures the winner first and the baseline last, so that whatever
a later run gains from warm caches speaks for the baseline.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

_HIT_LOSS: Final = 0.5  # percentage points
_LATENCY_LOSS: Final = 1.2  # times

Candidate = dict[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: tokens per second, share of experts found in memory, slowest pieces, its text."""

    tokens_per_second: float
    hit_percent: float
    p99_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate and the medians of its runs."""

    name: str
    settings: Mapping[str, str]
    tokens_per_second: float
    hit_percent: float
    p99_s: float
    verdict: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "settings": dict(self.settings)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the search found.

    Args:
        baseline: Without any setting.
        winner: The best candidate; None: the baseline is kept.
        candidates: All that were measured, in order.
        gain: Of the confirmation; 0 when the baseline is kept.
        reason: Why it is kept, or "".
    """

    baseline: Measured
    winner: Measured | None
    candidates: tuple[Measured, ...]
    gain: float
    reason: str = ""


Measure = Callable[[Candidate], Awaitable[Sequence[Run]]]


async def search(
    candidates: Sequence[tuple[str, Candidate]],
    measure: Measure,
    min_gain: float,
    tell: Callable[[Measured], None],
) -> Outcome:
    """Measure the baseline and all candidates, and confirm the best.

    Args:
        candidates: Name and settings of each.
        measure: Runs one and returns its runs.
        min_gain: Share by which a candidate must be faster.
        tell: Called with each as it was measured.
    """
    baseline = await _measured("baseline", {}, measure)
    tell(baseline.medians)
    best: Measured | None = None
    seen = []
    for name, settings in candidates:
        runs = await _measured(name, settings, measure)
        least = (best or baseline.medians).tokens_per_second * (1 + min_gain)
        verdict = _objection(runs, baseline, least)
        found = runs.with_verdict(verdict or "better")
        tell(found)
        seen.append(found)
        if verdict is None:
            best = found
    if best is None:
        return Outcome(baseline.medians, None, tuple(seen), 0.0, "no candidate was clearly faster")
    again = await _measured(best.name, dict(best.settings), measure)
    last = await _measured("baseline", {}, measure)
    needed = last.medians.tokens_per_second * (1 + min_gain)
    objection = _objection(again, last, needed)
    if objection is not None:
        reason = f"{best.name} did not hold when measured again: {objection}"
        return Outcome(last.medians, None, tuple(seen), 0.0, reason)
    gain = again.medians.tokens_per_second / last.medians.tokens_per_second - 1
    return Outcome(last.medians, again.medians, tuple(seen), gain)


@dataclass(frozen=True, slots=True)
class _Series:
    medians: Measured
    texts: frozenset[str]

    def with_verdict(self, verdict: str) -> Measured:
        return Measured(**{**self.medians.document(), "verdict": verdict})


async def _measured(name: str, settings: Candidate, measure: Measure) -> _Series:
    runs = await measure(settings)
    medians = Measured(
        name,
        settings,
        statistics.median(run.tokens_per_second for run in runs),
        statistics.median(run.hit_percent for run in runs),
        statistics.median(run.p99_s for run in runs),
    )
    return _Series(medians, frozenset(run.text for run in runs))


def _objection(series: _Series, baseline: _Series, least: float) -> str | None:
    """Return what speaks against a candidate; None if nothing does."""
    found, base = series.medians, baseline.medians
    if series.texts != baseline.texts:
        return "the answer is another one"
    if found.tokens_per_second <= least:
        return "not clearly faster"
    if found.hit_percent < base.hit_percent - _HIT_LOSS:
        return "reads more from disk"
    if found.p99_s > base.p99_s * _LATENCY_LOSS:
        return "its slowest tokens are slower"
    return None
