"""Whether a draft pays, and how long it should be.

A step of r rows takes T(r) seconds and, with the guesses of a draft coming true with chance a each,
one of g guesses gives 1 + a + a^2 + ... + a^g tokens. A draft is as long as makes the tokens per
second of the whole step largest, and is left out where that is with none. Both terms are measured:

- T(r) is a line through the recent steps without prompt rows, kept as a mean and a slope. Where
  experts are read from disk, time spent waiting for them is taken out of the line and put back as
  what reading is expected to take for r rows: more rows want more different experts.
- a is counted for each kind of proposal, over all replies and, once it has seen some, in this one.

Nothing is switched off for good: a kind that does not pay is tried with one guess after it was
passed over some times, and a step now and then goes without, so that both terms stay known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from colibri_engine.sequence import Sequence

RETRY_AFTER: Final = 64  # proposals passed over before one is tried again
PLAIN_EVERY: Final = 128  # drafted steps before one goes without
_CAUTION: Final = 0.94  # of an expected gain: neither it nor its price is known better
_TIME_MEMORY: Final = 0.98  # weight of a step for each one after it: the last 50 count
_SLOPE_PRIOR: Final = 0.1  # cost of a further row, as a share of a step, before any was seen
_SLOPE_WEIGHT: Final = 2.0  # how many rows' worth of steps that guess counts for
_OUTLIER: Final = 3.0  # a step this many times as long as expected was disturbed
_GUESS_MEMORY: Final = 64.0  # guesses after which the older ones count half
_PRIOR_WEIGHT: Final = 4.0  # guesses that the first estimate counts for
_REPLY_WEIGHT: Final = 8.0  # likewise for all replies' estimate against this one's
# How often guesses come true before any was seen, by kind. Longer matches are surer.
_FIRST_RATES: Final = {
    "grammar": 0.9, "guide": 0.6, "mtp": 0.7,
    "ngram 2": 0.35, "ngram 3": 0.5, "ngram 4": 0.6, "ngram 6": 0.7, "ngram 9": 0.8,
    "ngram 16": 0.9,
}  # fmt: skip
_FIRST_RATE: Final = 0.5
_OWN_BOUND: Final = frozenset({"grammar", "guide"})


class ReadCosts(Protocol):
    """What reading experts adds to a step; see `reads.MeasuredReads`."""

    def begin_forward(self) -> None:
        """Count from here on."""

    def observe(self, rows: int) -> float:
        """Take note of a step of `rows` rows; return the seconds it waited for experts."""

    def seconds(self, rows: int) -> float:
        """Return how long a step of `rows` rows is expected to wait for experts."""


class Policy(Protocol):
    """Decides about drafts. Engine thread only."""

    def begin_step(self, num_sequences: int) -> None:
        """Start a step in which that many sequences decode."""

    def plan(self, sequence: Sequence, kind: str, limit: int, guess_s: float) -> int:
        """Return how many tokens are worth guessing, at `guess_s` seconds each."""

    def choose(self, sequence: Sequence, kind: str, available: int) -> int:
        """Return how many of the guessed tokens are worth their rows, and count them in."""

    def learn(self, sequence: Sequence, kind: str, drafted: int, accepted: int) -> None:
        """Take note of what became of a draft."""

    def begin_forward(self) -> None:
        """Be told that the drafts of a step are made, and the model runs now."""

    def observe_step(self, num_rows: int, seconds: float) -> None:
        """Take note of the time of a step without prompt rows."""


class FixedDepth:
    """Always as many as there are: for those who want a number of guesses whatever it costs.

    Args:
        depth: Guesses per step; a grammar's own bound holds for its own.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def begin_step(self, num_sequences: int) -> None:
        """Nothing is counted."""

    def plan(self, sequence: Sequence, kind: str, limit: int, guess_s: float) -> int:
        """Return the depth."""
        return limit if kind in _OWN_BOUND else min(limit, self._depth)

    def choose(self, sequence: Sequence, kind: str, available: int) -> int:
        """Return the depth."""
        return self.plan(sequence, kind, available, 0.0)

    def learn(self, sequence: Sequence, kind: str, drafted: int, accepted: int) -> None:
        """Nothing is learned."""

    def begin_forward(self) -> None:
        """Nothing is counted."""

    def observe_step(self, num_rows: int, seconds: float) -> None:
        """Nothing is learned."""


class StepTimes:
    """A line through the times of recent steps: base + slope x (rows - 1)."""

    def __init__(self) -> None:
        self._weight = self._mean_x = self._mean_t = self._sxx = self._sxt = 0.0
        self._slope_share = _SLOPE_PRIOR  # of a step, where rows have not varied lately

    def observe(self, rows: int, seconds: float) -> None:
        """Add a step."""
        if self._weight > 0:
            seconds = min(seconds, _OUTLIER * self.seconds(rows))
        self._weight *= _TIME_MEMORY
        self._sxx *= _TIME_MEMORY
        self._sxt *= _TIME_MEMORY
        self._weight += 1.0
        dx, dt = rows - 1 - self._mean_x, seconds - self._mean_t
        self._mean_x += dx / self._weight
        self._mean_t += dt / self._weight
        self._sxx += dx * (rows - 1 - self._mean_x)
        self._sxt += dx * (seconds - self._mean_t)
        base, slope = self._line()
        if self._sxx > _SLOPE_WEIGHT and base > 0:
            self._slope_share = slope / base

    def seconds(self, rows: int) -> float:
        """Return the expected time of a step; in units of one row's while none was seen."""
        if self._mean_t <= 0:
            return 1.0 + self._slope_share * (rows - 1)
        base, slope = self._line()
        return base + slope * (rows - 1)

    def _line(self) -> tuple[float, float]:
        """Return base and slope; the slope leans to the last one that was well known."""
        flat = self._mean_t / (1.0 + self._slope_share * self._mean_x)
        prior = _SLOPE_WEIGHT * self._slope_share * flat
        slope = max((self._sxt + prior) / (self._sxx + _SLOPE_WEIGHT), 0.0)
        return max(self._mean_t - slope * self._mean_x, 0.1 * self._mean_t), slope


@dataclass(slots=True)
class Acceptance:
    """How often the next guess of a draft comes true; the recent ones count most."""

    hits: float = 0.0
    trials: float = 0.0

    def add(self, drafted: int, accepted: int) -> None:
        """Add a draft: guesses behind the first wrong one were not tried."""
        tried = accepted + (accepted < drafted)
        fade = 0.5 ** (tried / _GUESS_MEMORY)
        self.hits = self.hits * fade + accepted
        self.trials = self.trials * fade + tried

    def rate(self, prior: float, weight: float) -> float:
        """Return the estimate, starting from `prior`."""
        return (self.hits + weight * prior) / (self.trials + weight)


@dataclass(slots=True)
class CostPolicy:
    """Drafts where it pays.

    Args:
        reads: What reading experts costs; None: all are in memory.
    """

    reads: ReadCosts | None = None
    times: StepTimes = field(default_factory=StepTimes)
    _of_kind: dict[str, Acceptance] = field(default_factory=dict)
    _passed_over: dict[str, int] = field(default_factory=dict)
    _of_reply: WeakKeyDictionary[Sequence, dict[str, Acceptance]] = field(
        default_factory=WeakKeyDictionary
    )
    _since_plain: int = 0  # drafted steps
    _has_drafted: bool = False
    _is_plain: bool = False
    _rows: int = 0  # of the step that is being made up
    _tokens: float = 0.0  # it is expected to give

    def begin_step(self, num_sequences: int) -> None:
        """Start a step in which that many sequences decode."""
        if self._is_plain:
            self._since_plain = 0
        elif self._has_drafted:
            self._since_plain += 1
        self._is_plain = self._since_plain >= PLAIN_EVERY
        self._has_drafted = False
        self._rows = num_sequences
        self._tokens = float(num_sequences)

    def plan(self, sequence: Sequence, kind: str, limit: int, guess_s: float) -> int:
        """Return how many tokens are worth guessing, at `guess_s` seconds each."""
        return self._depth(self._rate(sequence, kind), kind, limit, guess_s)

    def choose(self, sequence: Sequence, kind: str, available: int) -> int:
        """Return how many of the guessed tokens are worth their rows, and count them in."""
        rate = self._rate(sequence, kind)
        depth = self._depth(rate, kind, available, 0.0)
        if depth:
            self._has_drafted = True
            self._passed_over[kind] = 0
        self._rows += depth
        self._tokens += _gain(rate, depth)
        return depth

    def learn(self, sequence: Sequence, kind: str, drafted: int, accepted: int) -> None:
        """Take note of what became of a draft."""
        for table in (self._of_kind, self._of_reply.setdefault(sequence, {})):
            table.setdefault(kind, Acceptance()).add(drafted, accepted)

    def begin_forward(self) -> None:
        """Be told that the drafts of a step are made, and the model runs now."""
        if self.reads is not None:
            self.reads.begin_forward()

    def observe_step(self, num_rows: int, seconds: float) -> None:
        """Take note of the time of a step without prompt rows."""
        if self.reads is not None:
            seconds = max(seconds - self.reads.observe(num_rows), 0.0)
        self.times.observe(num_rows, seconds)

    def _depth(self, rate: float, kind: str, limit: int, guess_s: float) -> int:
        if self._is_plain or limit < 1:
            return 0
        depth = self._best(rate, limit, guess_s)
        if depth == 0:
            passed_over = self._passed_over.get(kind, 0) + 1
            self._passed_over[kind] = passed_over
            return 1 if passed_over > RETRY_AFTER else 0
        return depth

    def _rate(self, sequence: Sequence, kind: str) -> float:
        first = _FIRST_RATES.get(kind, _FIRST_RATE)
        rate = self._of_kind.get(kind, Acceptance()).rate(first, _PRIOR_WEIGHT)
        own = self._of_reply.get(sequence, {})
        return own.get(kind, Acceptance()).rate(rate, _REPLY_WEIGHT)

    def _best(self, rate: float, limit: int, guess_s: float) -> int:
        """Return the depth with the most tokens per second; 0 if none beats no draft."""
        best, best_speed = 0, self._tokens / self._seconds(self._rows)
        for depth in range(1, limit + 1):
            seconds = self._seconds(self._rows + depth) + depth * guess_s
            speed = (self._tokens + _CAUTION * _gain(rate, depth)) / seconds
            if speed > best_speed:
                best, best_speed = depth, speed
        return best

    def _seconds(self, rows: int) -> float:
        return self.times.seconds(rows) + (0.0 if self.reads is None else self.reads.seconds(rows))


def _gain(rate: float, depth: int) -> float:
    """Return the expected number of guesses that come true: rate + rate^2 + ... + rate^depth."""
    if rate >= 1.0:
        return float(depth)
    return rate * (1.0 - rate**depth) / (1.0 - rate)
