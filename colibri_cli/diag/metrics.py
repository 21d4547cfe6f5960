"""The figures that a report is judged by: what each means and how far it may move.

A figure is compared by its rule: it may not fall, may not rise, or may not change by more than its
tolerance, which is a share of the baseline or an amount. Correctness moves by nothing or by
rounding; speed by what another load on the machine may cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    """In which direction a figure gets worse."""

    NOT_LOWER = "not lower"
    NOT_HIGHER = "not higher"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Args:
        name: `<phase>.<what>`.
        unit: What it is counted in.
        rule: When it is worse.
        tolerance: How far it may move.
        is_share: Whether the tolerance is a share of the baseline, else an amount.
        is_machines: Whether it says something only beside figures of the same machine.
    """

    name: str
    unit: str
    rule: Rule
    tolerance: float
    is_share: bool = False
    is_machines: bool = False

    @property
    def phase(self) -> str:
        """The phase it comes from."""
        return self.name.partition(".")[0]


_LOAD: Final = 1.0  # a disk that others use, a cache that is cold
_SPEED: Final = 0.4  # what a busy neighbour takes from one run
_MEMORY: Final = 0.1

_ROWS: Final = (
    Metric("system.load_s", "s", Rule.NOT_HIGHER, _LOAD, is_share=True, is_machines=True),
    Metric("system.resident_gb", "GB", Rule.NOT_HIGHER, _MEMORY, is_share=True),
    Metric("smoke.passed", "prompts", Rule.NOT_LOWER, 0),
    Metric("smoke.repeating", "prompts", Rule.NOT_HIGHER, 0),
    Metric("smoke.same_answers", "prompts", Rule.NOT_LOWER, 0),
    Metric("diagnostic.same_together", "answers", Rule.NOT_LOWER, 0),
    Metric("diagnostic.same_from_cache", "answers", Rule.NOT_LOWER, 0),
    Metric("diagnostic.tokens_per_forward", "tokens", Rule.NOT_LOWER, 0.1, is_share=True),
    Metric("diagnostic.selections_per_token", "experts", Rule.SAME, 0.001, is_share=True),
    Metric("diagnostic.hit_percent", "%", Rule.NOT_LOWER, 0.5),
    Metric("quality.logprob_per_token", "nats", Rule.SAME, 0.002),
    Metric("quality.choice_logprob", "nats", Rule.SAME, 0.02),
    Metric("quality.acc", "%", Rule.NOT_LOWER, 0),
    Metric("quality.acc_norm", "%", Rule.NOT_LOWER, 0),
    Metric(
        "throughput.prefill", "tokens/s", Rule.NOT_LOWER, _SPEED, is_share=True, is_machines=True
    ),
    Metric(
        "throughput.decode", "tokens/s", Rule.NOT_LOWER, _SPEED, is_share=True, is_machines=True
    ),
    Metric(
        "throughput.draft_gain", "times", Rule.NOT_LOWER, _SPEED, is_share=True, is_machines=True
    ),
)

METRICS: Final = {row.name: row for row in _ROWS}
