"""Accuracy, intervals and the comparison of two runs: figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.errors import UsageError
from colibri_cli.quality.results import ItemResult, chance_of, compare, summary, wilson


def item(number: int, *, gold: int, logprobs: tuple[float, ...]) -> ItemResult:
    return ItemResult("t", str(number), gold, logprobs, (1, 10))


def test_the_likeliest_is_chosen_plainly_and_by_length() -> None:
    result = item(0, gold=1, logprobs=(-2.0, -5.0))
    assert not result.is_right
    assert result.is_right_by_length  # -0.5 a character against -2
    found = summary("t", [result, item(1, gold=0, logprobs=(-2.0, -5.0))])
    assert (found["acc"], found["acc_norm"], found["n"]) == (50.0, 50.0, 2)


def test_intervals_are_wilsons() -> None:
    assert wilson(50, 100) == [40.38, 59.62]
    assert wilson(0, 10) == [0.0, 27.75]
    assert wilson(10, 10)[1] == 100.0


@pytest.mark.parametrize(
    ("lost", "won", "p"), [(0, 0, 1.0), (1, 1, 1.0), (0, 5, 0.0625), (2, 8, 0.109375)]
)
def test_the_chance_of_a_split_is_exact(lost: int, won: int, p: float) -> None:
    assert chance_of(lost, won) == pytest.approx(p)
    assert chance_of(won, lost) == pytest.approx(p)


def report(rights: str) -> dict[str, Any]:
    items = [
        {"task": "t", "id": str(n), "right": r == "1", "right_by_length": True}
        for n, r in enumerate(rights)
    ]
    return {"items": items}


def test_two_runs_are_compared_question_by_question() -> None:
    plain, normed = compare(report("1100000000"), report("1011110000"))
    assert (plain["n"], plain["won"], plain["lost"], plain["difference"]) == (10, 4, 1, 30.0)
    low, high = plain["interval"]
    assert low < 30 < high
    assert (low + high) / 2 == pytest.approx(30)
    assert (normed["difference"], normed["p"]) == (0.0, 1.0)


def test_only_shared_questions_count_and_some_must_be() -> None:
    assert compare(report("11"), report("1"))[0]["n"] == 1
    with pytest.raises(UsageError, match="share no question"):
        compare(report("1"), {"items": []})
