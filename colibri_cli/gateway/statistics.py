"""What turns cost: counters and histograms for `/metrics` and the terminal panel.

Filled by `generation`; times in seconds. One event loop, no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from colibri_cli.gateway.turns import Usage

_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_RATES: Final = (0.1, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_WINDOW: Final = 120  # turns whose speed the panel shows


class Histogram:
    """Counts of values in buckets; the last one takes everything above.

    Args:
        bounds: Upper bounds, rising.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


@dataclass(slots=True)
class TurnStatistics:
    """Sums over all turns since the start."""

    queue_wait_s: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    first_token_s: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    decode_rate: Histogram = field(default_factory=lambda: Histogram(_RATES))
    prefill_rate: Histogram = field(default_factory=lambda: Histogram(_RATES))
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused_tokens: int = 0
    reasoning_tokens: int = 0
    recent_rates: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def add_choice(self, usage: Usage, tokens_per_second: float) -> None:
        """Count a complete answer."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.reused_tokens += usage.reused_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        if tokens_per_second > 0:
            self.decode_rate.add(tokens_per_second)
            self.recent_rates.append(tokens_per_second)

    def add_first_token(self, seconds: float, computed_tokens: int) -> None:
        """Count the time to a first token, and how fast the prompt was read meanwhile."""
        self.first_token_s.add(seconds)
        if seconds > 0 and computed_tokens > 0:
            self.prefill_rate.add(computed_tokens / seconds)
