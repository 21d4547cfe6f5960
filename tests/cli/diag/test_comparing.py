"""How two reports are compared: each rule, each way a figure can be missing."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.diag.comparing import check_comparable, compare, tolerances, verdict
from colibri_cli.diag.metrics import METRICS, Metric, Rule
from colibri_cli.errors import UsageError


def report(cpu: str = "A", **figures: float) -> dict[str, Any]:
    engine = {"numerics": "default", "num_threads": 2}
    phases: dict[str, Any] = {
        "system": {"machine": {"cpu": cpu, "num_cores": 2}, "engine": engine, "model": {}}
    }
    names = {name.replace("__", "."): value for name, value in figures.items()}
    phases |= {name.partition(".")[0]: {} for name in names}
    metrics = {name: {"value": value, "unit": ""} for name, value in names.items()}
    return {"metrics": metrics, "phases": phases}


@pytest.mark.parametrize(
    ("rule", "now", "expected"),
    [
        (Rule.NOT_LOWER, 90.0, "ok"),
        (Rule.NOT_LOWER, 89.9, "worse"),
        (Rule.NOT_LOWER, 111.0, "better"),
        (Rule.NOT_HIGHER, 110.0, "ok"),
        (Rule.NOT_HIGHER, 110.1, "worse"),
        (Rule.NOT_HIGHER, 80.0, "better"),
        (Rule.SAME, 105.0, "ok"),
        (Rule.SAME, 111.0, "worse"),
        (Rule.SAME, 89.0, "worse"),
    ],
)
def test_a_figure_is_judged_by_its_rule(rule: Rule, now: float, expected: str) -> None:
    assert verdict(Metric("a.b", "", rule, 10), 100, now, 10) == expected
    assert verdict(Metric("a.b", "", rule, 0.1, is_share=True), 100, now, 0.1) == expected


def test_a_figure_that_is_gone_is_worse_and_a_new_one_is_new() -> None:
    now, before = report(quality__acc=50), report(quality__acc_norm=50)
    rows = {r["metric"]: r["verdict"] for r in compare(now, before, {})["rows"]}
    assert rows == {"quality.acc": "new", "quality.acc_norm": "worse"}


def test_phases_that_were_not_run_are_not_judged() -> None:
    before = report(quality__acc=50, throughput__decode=9)
    assert compare(report(quality__acc=50), before, {})["worse"] == []


def test_speed_is_not_judged_by_another_machine_but_correctness_is() -> None:
    before = report("B", quality__acc=50, throughput__decode=100)
    compared = compare(report("A", quality__acc=40, throughput__decode=1), before, {})
    assert compared["worse"] == ["quality.acc"]
    assert {r["verdict"] for r in compared["rows"]} == {"worse", "other machine"}


def test_answers_are_compared_letter_by_letter() -> None:
    before, now = report(), report()
    before["phases"]["smoke"] = {"cases": [{"name": n, "sha256": n} for n in "abc"]}
    now["phases"]["smoke"] = {"cases": [{"name": n, "sha256": n.replace("b", "x")} for n in "abc"]}
    row = compare(now, before, {})["rows"][-1]
    assert (row["metric"], row["baseline"], row["current"]) == ("smoke.same_answers", 3, 2)
    assert row["verdict"] == "worse"
    assert compare(now, before, tolerances(["smoke.same_answers=1"]))["worse"] == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("quality.ac=1", "quality.acc"),
        ("nothing", "nothing"),
        ("quality.acc", "at least 0"),
        ("quality.acc=-1", "'-1'"),
        ("quality.acc=nan", "'nan'"),
        ("quality.acc=inf", "'inf'"),
    ],
)
def test_a_wrong_tolerance_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        tolerances([text])
    assert named in f"{caught.value.message} {caught.value.hint}"


def test_another_model_is_refused_with_what_differs() -> None:
    now, before = report(), report()
    now["phases"]["system"]["model"] = {"num_layers": 30}
    before["phases"]["system"]["model"] = {"num_layers": 12}
    with pytest.raises(UsageError, match="num_layers 12, not 30"):
        check_comparable(now, before, "old.json")
    check_comparable(now, now, "old.json")


def test_every_figure_has_a_phase_and_a_sensible_tolerance() -> None:
    for name, metric in METRICS.items():
        assert metric.phase in {"system", "smoke", "diagnostic", "quality", "throughput"}, name
        assert 0 <= metric.tolerance <= 1, name
