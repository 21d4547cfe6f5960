"""What reading experts costs a step, from what the store has measured lately.

    seconds(rows) = experts(rows) x share that memory lacks x seconds waited per missing expert

Rows want fewer different experts together than apart. How many a row more adds is measured too: of
what it would add if rows chose independently, some share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

_MEMORY: Final = 0.95  # weight of a step for each one after it: the last 20 count
_USUAL_SHARE: Final = 0.7  # before any step of several rows was seen
_SHARE_WEIGHT: Final = 0.05  # of the latest such step


class ReadCounters(Protocol):
    """Sums since the start; see `colibri_engine.experts.store.StoreCounters`."""

    hits: int
    misses: int
    wait_s: float


@dataclass(slots=True)
class MeasuredReads:
    """Experts that are read when a step misses them.

    Args:
        counters: The store's.
        num_layers: Layers whose experts are read.
        num_experts: Experts of a layer.
        per_row: Experts a row chooses there.
    """

    counters: ReadCounters
    num_layers: int
    num_experts: int
    per_row: int
    _share: float = _USUAL_SHARE  # of the independent choices of further rows, that are new
    _wanted: float = 0.0  # sums of the recent steps
    _missed: float = 0.0
    _waited_s: float = 0.0
    _last: tuple[int, int, float] = field(init=False)

    def __post_init__(self) -> None:
        """Count from here on."""
        self._last = self._now()

    def begin_forward(self) -> None:
        """Leave out what was read since the last step: for a prompt, or for guessing."""
        self._last = self._now()

    def observe(self, rows: int) -> float:
        """Take note of a step of `rows` rows; return the seconds it waited."""
        before, self._last = self._last, self._now()
        hits, misses, waited_s = (now - old for now, old in zip(self._last, before, strict=True))
        self._wanted = _MEMORY * self._wanted + hits + misses
        self._missed = _MEMORY * self._missed + misses
        self._waited_s = _MEMORY * self._waited_s + waited_s
        if rows > 1 and hits + misses > 0:
            alone = self.num_layers * self.per_row
            independent = self._independent(rows) - alone
            share = min(max((hits + misses - alone) / independent, 0.0), 1.0)
            self._share += _SHARE_WEIGHT * (share - self._share)
        return waited_s

    def seconds(self, rows: int) -> float:
        """Return how long a step of `rows` rows is expected to wait for experts."""
        if self._missed <= 0:
            return 0.0
        alone = self.num_layers * self.per_row
        experts = alone + self._share * (self._independent(rows) - alone)
        return experts * (self._missed / self._wanted) * (self._waited_s / self._missed)

    def _independent(self, rows: int) -> float:
        """Return how many different experts rows want that have nothing in common."""
        kept = (1.0 - self.per_row / self.num_experts) ** rows
        return self.num_layers * self.num_experts * (1.0 - kept)

    def _now(self) -> tuple[int, int, float]:
        return self.counters.hits, self.counters.misses, self.counters.wait_s
