"""Which candidate wins, and why the others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from colibri_cli.tuning.search import Candidate, Outcome, Run, search

BASE = Run(10.0, 90.0, 0.1, "text")


def run(speed: float, *, hit: float = 90.0, p99: float = 0.1, text: str = "text") -> Run:
    return Run(speed, hit, p99, text)


def found(script: Mapping[str, Sequence[Run]], min_gain: float = 0.03) -> Outcome:
    """Search with what each measurement of a candidate gives, in turn."""
    calls: dict[str, int] = {}

    async def measure(candidate: Candidate) -> list[Run]:
        name = candidate.get("num_threads", "baseline")
        runs = script[name]
        turn = calls[name] = calls.get(name, 0) + 1
        return [runs[min(turn, len(runs)) - 1]]

    candidates = [(name, {"num_threads": name}) for name in script if name != "baseline"]
    return asyncio.run(search(candidates, measure, min_gain, lambda _: None))


def test_a_faster_candidate_is_accepted_with_its_gain() -> None:
    outcome = found({"baseline": [BASE], "2": [run(15)], "1": [run(8)]})
    assert outcome.winner is not None
    assert outcome.winner.settings == {"num_threads": "2"}
    assert outcome.gain == pytest.approx(0.5)
    assert [c.verdict for c in outcome.candidates] == ["better", "not clearly faster"]


def test_the_best_of_several_wins() -> None:
    outcome = found({"baseline": [BASE], "2": [run(15)], "4": [run(20)], "8": [run(20.3)]})
    assert outcome.winner is not None
    assert outcome.winner.name == "4"  # 8 is not clearly faster than 4


def test_what_only_drifted_is_found_out_by_the_reversed_order() -> None:
    outcome = found({"baseline": [BASE, run(15)], "2": [run(15)]})
    assert outcome.winner is None
    assert "did not hold" in outcome.reason


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [
        (run(10.3), "not clearly faster"),
        (run(15, p99=0.121), "its slowest tokens are slower"),
        (run(15, hit=89.4), "reads more from disk"),
        (run(15, text="other"), "the answer is another one"),
    ],
)
def test_a_candidate_that_is_worse_somewhere_is_refused(candidate: Run, verdict: str) -> None:
    outcome = found({"baseline": [BASE], "2": [candidate]})
    assert outcome.winner is None
    assert outcome.candidates[0].verdict == verdict
    assert outcome.gain == 0.0


def test_a_little_worse_in_the_rest_is_allowed() -> None:
    outcome = found({"baseline": [BASE], "2": [run(15, hit=89.5, p99=0.12)]})
    assert outcome.winner is not None
