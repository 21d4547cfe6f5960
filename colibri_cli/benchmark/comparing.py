"""Comparing two reports of `coli bench`, figure by figure, with a verdict on each."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.benchmark.figures import KIND, label_of
from colibri_cli.benchmark.intervals import ratio_interval
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from colibri_cli.benchmark.intervals import Interval

_MAX_BYTES: Final = 64 * 1024 * 1024
SAME: Final = 0.05  # a difference that surely is smaller than this share is none
_HINT: Final = "name what `coli bench --json` or `--out` wrote"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both reports.

    Args:
        name: What was measured.
        unit: "tokens/s", "s" or "bytes".
        before: The first report's middle.
        after: The second report's.
        ratio: after / before, with its interval where there are rounds enough.
        verdict: "better", "worse", "same", "unclear", or "too few rounds".
    """

    name: str
    unit: str
    before: float
    after: float
    ratio: Interval
    verdict: str


def read_report(path: Path) -> dict[str, Any]:
    """Return a report.

    Raises:
        UsageError: the file cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
        if body["kind"] != KIND:
            raise UsageError(f"{path} is no report of `coli bench`", hint=_HINT)
        rounds = [value for figures in _figures(body).values() for value in figures.rounds]
        if not all(0 < value < float("inf") for value in rounds):
            raise UsageError(f"{path} has figures that cannot be", hint=_HINT)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})", hint=_HINT) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no report of `coli bench`", hint=_HINT) from error
    report: dict[str, Any] = body
    return report


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return what both reports have, in the order of the second.

    Raises:
        UsageError: they have nothing in common.
    """
    ours, theirs = _figures(after), _figures(before)
    shared = [name for name in ours if name in theirs]
    if not shared:
        raise UsageError(
            "the two reports measured nothing alike", hint="run both with the same options"
        )
    return [_difference(name, theirs[name], ours[name]) for name in shared]


def unlike(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what else differs between the reports, one line each: model, engine, processor."""
    pairs = [("model", before["model"], after["model"]), ("cpu", before["cpu"], after["cpu"])]
    old_server, new_server = ((report.get("server") or {}).get("url") for report in (before, after))
    pairs.append(("server", old_server, new_server))
    engines = before["engine"], after["engine"]
    names = ("isa", "num_threads", "numerics", "file_bytes")
    pairs += [(name, *(engine.get(name) for engine in engines)) for name in names]
    return [f"{name} differs: {old}, then {new}" for name, old, new in pairs if old != new]


@dataclass(frozen=True, slots=True)
class _Rounds:
    unit: str
    rounds: tuple[float, ...]
    is_more_better: bool


def _figures(report: Mapping[str, Any]) -> dict[str, _Rounds]:
    """Return all figures of a report by name."""
    return dict(_each_figure(report))


def _each_figure(report: Mapping[str, Any]) -> Iterator[tuple[str, _Rounds]]:
    for row in report["speed"]:
        name = label_of(
            row["kind"], row["tokens"], row["context"], row["batch"],
            is_cold=row["state"] == "cold",
        )  # fmt: skip
        yield name, _Rounds("tokens/s", tuple(row["repeats"]), is_more_better=True)
    for state in ("cold", "warm"):
        if rounds := tuple(report["load"][f"{state}_rounds"]):
            yield f"load, {state}", _Rounds("s", rounds, is_more_better=False)
    if (peak := report["peak_memory_bytes"]) is not None:
        yield "peak memory", _Rounds("bytes", (peak,), is_more_better=False)


def _difference(name: str, old: _Rounds, new: _Rounds) -> Difference:
    ratio = ratio_interval(old.rounds, new.rounds)
    middles = statistics.median(old.rounds), statistics.median(new.rounds)
    return Difference(
        name, new.unit, *middles, ratio, _verdict(ratio, is_more_better=new.is_more_better)
    )


def _verdict(ratio: Interval, *, is_more_better: bool) -> str:
    if ratio.low is None or ratio.high is None:
        return "too few rounds"
    if ratio.low > 1 - SAME and ratio.high < 1 + SAME:
        return "same"
    if ratio.low <= 1 <= ratio.high:
        return "unclear"
    return "better" if (ratio.low > 1) is is_more_better else "worse"
