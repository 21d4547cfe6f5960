"""A plan in words: rows of a table with a column for each plan, and lines around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Plan = dict[str, Any]
Row = tuple[str, Callable[[Plan], str]]

_NONE: Final = "-"


def heading(report: Plan) -> list[str]:
    """Return lines about the model and the machine."""
    model, machine = report["model"], report["machine"]
    kind = f"{model['layers']} layers"
    if model["expert_layers"]:
        kind += (
            f", {model['expert_layers']} x {model['experts']} experts of "
            f"{size(model['typical_expert_bytes'])}, {model['experts_per_token']} per token"
        )
    memory = machine["memory"]
    there = f"{size(memory['available_bytes'])} of {size(memory['total_bytes'])} available"
    if memory["limit"] is not None:
        there += f", limited by {memory['limit']['name']} to {size(memory['limit']['bytes'])}"
    rates = machine["rates"]["decode_bytes_per_s"]
    speeds = [f"{kind} {rate / 1e9:.1f}" for kind, rate in rates.items()]
    experts = machine["rates"]["experts_decode_bytes_per_s"]
    speeds += [] if experts is None else [f"experts {experts / 1e9:.1f}"]
    lines = [
        f"model    {model['family']}, {size(model['model_bytes'])}, {kind}",
        f"machine  {machine['cpu']}, {machine['threads']} threads, {machine['isa']}",
        f"memory   {there}",
        f"rates    GB/s of weights: {', '.join(speeds)}",
    ]
    if machine["disk"] is not None:
        lines.append(f"disk     {machine['disk']['bytes_per_s'] / 1e9:.2f} GB/s for experts")
    return lines


def rows(plans: list[Plan]) -> list[list[str]]:
    """Return the table's rows: a title, and a cell for each plan."""
    return [
        [title, *(cell(plan) for plan in plans)]
        for title, cell in _ROWS
        if any(cell(plan) != _NONE for plan in plans)
    ]


def remarks(plan: Plan) -> list[str]:
    """Return what is to be said of one plan."""
    if not plan["runs"]:
        return [f"does not fit: {plan['reason']}", f"remedy: {plan['hint']}"]
    found = []
    if plan["mode"] == "streamed":
        share = plan["decode"]["hidden_share"]
        found.append(
            f"hits are expected from {_SOURCES[plan['hit_source']]}; {share:.0%} of the reads are "
            "hidden behind computing"
        )
    return found


def tiers(plan: Plan) -> dict[str, Any] | None:
    """Return what the tier bar takes; None where there are no experts, or nothing runs."""
    if not plan["runs"]:
        return None
    found = plan["tiers"]
    counts = {name: found[name]["experts"] for name in ("vram", "ram", "disk")}
    if not sum(counts.values()):
        return None
    sizes = {
        "vram_gb": found["vram"]["hot_expert_bytes"] / 1e9,
        "ram_gb": found["ram"]["warm_expert_bytes"] / 1e9,
    }
    return {**counts, **sizes}


def size(nbytes: float) -> str:
    """Return "1.2 GB" or "34.5 MB"."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"


_SOURCES: Final = {
    "history": "this model's history",
    "usual shares": "the usual shares (there is no history yet)",
}
_MODES: Final = {"resident": "in memory", "streamed": "from disk", "refused": "does not fit"}


def _budget(plan: Plan) -> str:
    return size(plan["tiers"]["ram"]["budget_bytes"])


def _in_ram(key: str) -> Callable[[Plan], str]:
    def cell(plan: Plan) -> str:
        nbytes = plan["tiers"]["ram"][key] if plan["runs"] else 0
        return size(nbytes) if nbytes else _NONE

    return cell


def _slots(plan: Plan) -> str:
    if not plan["runs"] or plan["mode"] != "streamed":
        return _NONE
    ram = plan["tiers"]["ram"]
    low, high = ram["cache_slots_per_layer"], ram["max_slots_per_layer"]
    return str(low) if low == high else f"{low}-{high}"


def _on_disk(plan: Plan) -> str:
    nbytes = plan["tiers"]["disk"]["cold_expert_bytes"] if plan["runs"] else 0
    return size(nbytes) if nbytes else _NONE


def _hits(plan: Plan) -> str:
    return f"{plan['hit_rate']:.0%}" if plan["runs"] and plan["mode"] == "streamed" else _NONE


def _missing(plan: Plan) -> str:
    return _NONE if plan["runs"] else size(plan["missing_bytes"])


def _speed(step: str) -> Callable[[Plan], str]:
    def cell(plan: Plan) -> str:
        return f"{plan[step]['tokens_per_second']:.2f} tok/s" if plan["runs"] else _NONE

    return cell


def _term(name: str) -> Callable[[Plan], str]:
    def cell(plan: Plan) -> str:
        seconds = plan["decode"]["terms"][name] if plan["runs"] else 0.0
        if not seconds:
            return _NONE
        sign = "-" if name == "hidden_s" else ""
        return f"{sign}{seconds:.2f} s" if seconds >= 1 else f"{sign}{seconds * 1e3:.2f} ms"

    return cell


def _limit(plan: Plan) -> str:
    return plan["bottleneck"] if plan["runs"] else _NONE


def _missed(plan: Plan) -> str:
    nbytes = plan["decode"]["missed_bytes"] if plan["runs"] else 0
    return size(nbytes) if nbytes else _NONE


_ROWS: Final[tuple[Row, ...]] = (
    ("runs", lambda plan: _MODES[plan["mode"]]),
    ("memory budget", _budget),
    ("missing", _missing),
    ("  weights", _in_ram("dense_bytes")),
    ("  conversations", _in_ram("conversations_bytes")),
    ("  steps", _in_ram("steps_bytes")),
    ("  process", _in_ram("process_bytes")),
    ("  experts", _in_ram("warm_expert_bytes")),
    ("  reads", _in_ram("reads_bytes")),
    ("  free", _in_ram("free_bytes")),
    ("slots per layer", _slots),
    ("experts on disk", _on_disk),
    ("expected hits", _hits),
    ("decode", _speed("decode")),
    ("  weights", _term("weights_s")),
    ("  experts", _term("experts_s")),
    ("  attention", _term("attention_s")),
    ("  calls", _term("calls_s")),
    ("  reads", _term("read_s")),
    ("  hidden", _term("hidden_s")),
    ("read per token", _missed),
    ("prefill", _speed("prefill")),
    ("limited by", _limit),
)
