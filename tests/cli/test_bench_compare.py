"""`coli bench --compare`, its intervals and its charts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.benchmark.comparing import compare, unlike
from colibri_cli.benchmark.figures import BenchResult, SpeedRow
from colibri_cli.benchmark.intervals import median_interval, ratio_interval
from colibri_cli.terminal.interval_chart import ASCII, Bar, bar_chart, marks_for, ratio_chart
from tests.fakes.command_line import CommandLine

ROUNDS = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2)


def report(
    scale: float = 1.0, *, rounds: tuple[float, ...] = ROUNDS, **more: object
) -> dict[str, Any]:
    speeds = tuple(scale * value for value in rounds)
    result = BenchResult(
        "tiny",
        {"isa": "avx2", "num_threads": 2},
        "some cpu",
        warm_loads_s=tuple(1 / value for value in speeds),
        peak_memory_bytes=1000,
        rows=[SpeedRow("prefill", 64, 0, 1, speeds), SpeedRow("decode", 32, 16, 2, speeds)],
    )
    return {**result.document(), **more}


def verdicts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    return {row.name: row.verdict for row in compare(before, after)}


@pytest.mark.parametrize("number", [6, 7, 8, 9, 12])
def test_the_interval_of_a_median_holds_it_in_95_of_100_orders(number: int) -> None:
    values = list(range(number))
    found = median_interval(values)
    assert found.low is not None
    assert found.high is not None
    # Each value lies below the true median or above it, like a coin.
    below, above = values.index(int(found.low)), number - 1 - values.index(int(found.high))
    sides = itertools.product((0, 1), repeat=number)
    missed = sum(sum(side) <= below or number - sum(side) <= above for side in sides)
    assert missed / 2**number <= 0.05
    sides = itertools.product((0, 1), repeat=number)
    tighter = sum(sum(side) <= below + 1 or number - sum(side) <= above + 1 for side in sides)
    assert tighter / 2**number > 0.05


@pytest.mark.parametrize(
    ("first", "second", "outside"), [(4, 4, 0), (5, 5, 2), (6, 6, 5), (3, 7, 1)]
)
def test_the_interval_of_a_ratio_leaves_out_what_the_rank_test_does(
    first: int, second: int, outside: int
) -> None:
    before, after = [2.0**k for k in range(first)], [3.0**k for k in range(second)]
    ratios = sorted(b / a for a in before for b in after)
    found = ratio_interval(before, after)
    assert (found.low, found.high) == (ratios[outside], ratios[-1 - outside])
    # By counting: in how many orders do so few pairs stand the other way round?
    orders = list(itertools.combinations(range(first + second), first))
    pairs = [sum(place - rank for rank, place in enumerate(order)) for order in orders]
    share = [sum(pair <= cut for pair in pairs) / len(orders) for cut in (outside, outside + 1)]
    assert share[0] <= 0.025 < share[1]


def test_too_few_rounds_have_no_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]).low is None
    assert ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).low is None
    few = verdicts(report(rounds=(1.0, 2.0, 3.0)), report(rounds=(9.0, 9.5, 9.1)))
    assert list(few) == ["prefill 64", "decode at 16 x2", "load, warm", "peak memory"]
    assert set(few.values()) == {"too few rounds"}


def test_many_rounds_are_compared_too() -> None:
    many = [1.0 + k / 1000 for k in range(1000)]
    found = ratio_interval(many[:40], [2 * value for value in many[:40]])
    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.0 < found.high
    assert median_interval(many).low is not None


def test_faster_is_better_and_a_longer_load_is_worse() -> None:
    names = ("prefill 64", "decode at 16 x2", "load, warm")
    faster, slower = verdicts(report(), report(1.2)), verdicts(report(), report(0.8))
    assert [faster[name] for name in names] == ["better"] * 3
    assert [slower[name] for name in names] == ["worse"] * 3
    assert [verdicts(report(), report(1.001))[name] for name in names] == ["same"] * 3
    noisy = report(rounds=(50.0, 150.0, 70.0, 130.0, 90.0, 110.0))
    assert verdicts(report(), noisy)["prefill 64"] == "unclear"


def test_what_else_differs_is_named() -> None:
    other = report(model="other", engine={"isa": "amx", "num_threads": 2})
    assert unlike(report(), report()) == []
    assert unlike(report(), other) == [
        "model differs: tiny, then other",
        "isa differs: avx2, then amx",
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_bars_have_one_scale_and_fit(width: int) -> None:
    bars = [Bar("half", 50.0, 40.0, 60.0), Bar("all", 100.0, 100.0, 100.0)]
    lines = [line.plain for line in bar_chart(bars, width, ASCII)]
    assert {len(line) for line in lines} == {width}
    start = len("half ")
    middles = [line.index("o") - start for line in lines]
    assert abs(middles[0] * 2 - middles[1]) <= 1
    assert lines[0].rstrip().endswith("50.00")
    assert lines[0].index("[") < lines[0].index("o") < lines[0].index("]")
    assert "[" not in lines[1]


def test_ratios_stand_on_both_sides_of_one() -> None:
    bars = [Bar("a", 0.8, 0.75, 0.85), Bar("b", 1.0, 0.99, 1.01), Bar("c", 1.2, 1.15, 1.25)]
    slower, same, faster = (line.plain for line in ratio_chart(bars, 63, ASCII))
    line = slower.index("|")
    assert faster.index("|") == line
    assert same.index("o") == line
    assert slower.index("]") < line < faster.index("[")


def test_an_encoding_without_the_characters_gets_others() -> None:
    assert marks_for("ascii") == ASCII
    assert marks_for("no such encoding") == ASCII
    assert marks_for(None) == ASCII
    assert marks_for("utf-8") != ASCII


@pytest.mark.e2e
def test_two_saved_reports_are_compared(coli: CommandLine) -> None:
    for name, scale in (("a.json", 1.0), ("b.json", 1.2)):
        (coli.home / name).write_text(json.dumps(report(scale)))
    done = coli.run("bench", "--compare", "a.json", "b.json")
    assert done.returncode == 0, done.stderr
    assert "+20.0 %" in done.stdout
    assert "better" in done.stdout
    assert "\x1b" not in done.stdout
    body = json.loads(coli.run("bench", "--compare", "a.json", "b.json", "--json").stdout)
    row = body["comparison"][0]
    assert row["verdict"] == "better"
    assert row["ratio"]["low"] < 1.2 < row["ratio"]["high"]


@pytest.mark.e2e
@pytest.mark.parametrize("text", ["{}", "no json", '{"kind": "bench", "speed": 3}', "[]"])
def test_a_file_that_is_no_report_is_refused_by_name(coli: CommandLine, text: str) -> None:
    (coli.home / "a.json").write_text(text)
    (coli.home / "b.json").write_text(json.dumps(report()))
    for files in (("a.json", "b.json"), ("b.json", "a.json"), ("b.json", "none.json")):
        done = coli.run("bench", "--compare", *files)
        assert (done.returncode, done.stdout) == (2, "")
        assert next(name for name in files if name != "b.json") in done.stderr


@pytest.mark.e2e
def test_a_run_is_saved_and_compared_with_itself(served: CommandLine) -> None:
    arguments = ("--prompt", "16", "--generate", "4", "--rounds", "4", "--out", "a.json")
    done = served.run("bench", *arguments, "-q")
    assert done.returncode == 0, done.stderr
    body = json.loads((served.home / "a.json").read_text(encoding="utf-8"))
    assert {(row["kind"], row["state"]) for row in body["speed"]} >= {
        ("prefill", "warm"),
        ("decode", "warm"),
    }
    assert "prefill, tokens/s" in done.stdout
    assert "prefill, tokens/s" not in served.run("bench", *arguments, "-q", "--no-chart").stdout
    document = json.loads(served.run("bench", "--compare", "a.json", "a.json", "--json").stdout)
    assert {row["ratio"]["middle"] for row in document["comparison"]} == {1.0}
    assert document["differs"] == []


@pytest.mark.e2e
def test_where_nothing_can_be_written_nothing_is_measured(
    served: CommandLine, tmp_path: Path
) -> None:
    done = served.run("bench", "--out", str(tmp_path / "none" / "a.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--out" in done.stderr
    # Nobody may write there, not even root: what is measured is shown in any case.
    arguments = ("--rounds", "1", "--no-load", "--prompt", "4", "--generate", "4", "-q")
    done = served.run("bench", *arguments, "--out", "/proc/version")
    assert done.returncode in {1, 2}
    assert "/proc/version" in done.stderr
    assert "unexpected" not in done.stderr
