"""Comparing two reports, figure by figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.diag.metrics import METRICS, Metric, Rule
from colibri_cli.diag.phases.smoke import same_answers
from colibri_cli.diag.report import identity, machine_of
from colibri_cli.errors import UsageError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.diag.report import Document

WORSE: Final = "worse"
_SAME_ANSWERS: Final = "smoke.same_answers"
_ROUNDING: Final = 1e-9


def tolerances(given: Sequence[str]) -> dict[str, float]:
    """Return the tolerances of `NAME=AMOUNT` texts, over those of the table.

    Raises:
        UsageError: naming the text.
    """
    wanted = {}
    for text in given:
        name, _, amount = text.partition("=")
        if name not in METRICS:
            near = nearest(name, METRICS)
            hint = f"did you mean {near}?" if near else "a report lists the figures"
            raise UsageError(f"--tolerance: there is no figure {name!r}", hint=hint)
        try:
            wanted[name] = float(amount)
        except ValueError:
            wanted[name] = -1.0
        if not 0 <= wanted[name] < float("inf"):
            kind = "a share of the baseline" if METRICS[name].is_share else METRICS[name].unit
            raise UsageError(
                f"--tolerance {name}: {amount!r} is not a number of at least 0",
                hint=f"write --tolerance {name}={METRICS[name].tolerance:g} ({kind})",
            )
    return wanted


def check_comparable(now: Document, before: Document, baseline: str) -> None:
    """Refuse a baseline of another model.

    Raises:
        UsageError: naming what differs.
    """
    ours, theirs = identity(now), identity(before)
    different = [
        f"{key} {theirs[key]}, not {ours[key]}" for key in ours if ours[key] != theirs[key]
    ]
    if different:
        raise UsageError(
            f"{baseline} is of another model or other numerics: {'; '.join(different)}",
            hint="compare with a report of the same model file and --numerics",
        )


def compare(now: Document, before: Document, allowed: Mapping[str, float]) -> dict[str, Any]:
    """Return the comparison: one row per figure that either report has, and the worse ones.

    Figures of phases that were not run this time are left out.
    """
    current = _values(now)
    baseline = _values(before)
    if _has_answers(now) and _has_answers(before):
        theirs = before["phases"]["smoke"]["cases"]
        current[_SAME_ANSWERS] = float(same_answers(now["phases"]["smoke"]["cases"], theirs))
        baseline[_SAME_ANSWERS] = float(len(theirs))
    is_same_machine = machine_of(now) == machine_of(before)
    rows = []
    for name, metric in METRICS.items():
        if metric.phase not in now["phases"] or not {name} & {*current, *baseline}:
            continue
        tolerance = allowed.get(name, metric.tolerance)
        row = {
            "metric": name,
            "unit": metric.unit,
            "baseline": baseline.get(name),
            "current": current.get(name),
            "tolerance": tolerance,
            "is_share": metric.is_share,
        }
        if metric.is_machines and not is_same_machine:
            row["verdict"] = "other machine"
        else:
            row["verdict"] = verdict(metric, baseline.get(name), current.get(name), tolerance)
        rows.append(row)
    worse = [row["metric"] for row in rows if row["verdict"] == WORSE]
    return {"is_same_machine": is_same_machine, "rows": rows, "worse": worse}


def verdict(metric: Metric, before: float | None, now: float | None, tolerance: float) -> str:
    """Return "ok", "better" or "worse"; a figure that is gone is worse, a new one "new"."""
    if now is None:
        return WORSE
    if before is None:
        return "new"
    room = (tolerance * abs(before) if metric.is_share else tolerance) + _ROUNDING
    change = now - before
    if abs(change) <= room:
        return "ok"
    if metric.rule is Rule.SAME:
        return WORSE
    is_worse = change < 0 if metric.rule is Rule.NOT_LOWER else change > 0
    return WORSE if is_worse else "better"


def _values(document: Document) -> dict[str, float]:
    found = {name: float(row["value"]) for name, row in document["metrics"].items()}
    return {name: value for name, value in found.items() if name in METRICS}


def _has_answers(document: Document) -> bool:
    smoke = document["phases"].get("smoke", {})
    return isinstance(smoke.get("cases"), list)
