"""The report for people: `report.md` and the table on the screen, from the document alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.diag.report import Document

COLUMNS = (("figure", False), ("now", True), ("unit", False))
COMPARED_COLUMNS = (*COLUMNS, ("baseline", True), ("change", True), ("verdict", False))


def table_rows(document: Document) -> list[tuple[str, ...]]:
    """Return the rows of the table: figure, value, unit; baseline, change, verdict if compared."""
    comparison = document["comparison"]
    if comparison is None:
        return [
            (name, number(row["value"]), row["unit"]) for name, row in document["metrics"].items()
        ]
    return [
        (
            row["metric"],
            number(row["current"]),
            row["unit"],
            number(row["baseline"]),
            _change(row),
            row["verdict"],
        )
        for row in comparison["rows"]
    ]


def number(value: float | None) -> str:
    """Return a figure with as many decimals as it deserves."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def markdown(document: Document) -> str:
    """Return `report.md`."""
    system = document["phases"].get("system", {})
    parts = [
        f"# {document['kind']}: {document['status']}",
        "",
        *_facts(document, system),
        "",
        "## Figures",
        "",
        *_markdown_table(document),
        *_problems(document),
    ]
    for name, phase in document["phases"].items():
        parts += _phase(name, phase)
    return "\n".join(parts) + "\n"


def _facts(document: Document, system: Mapping[str, Any]) -> list[str]:
    lines = [f"- made {document['created_at']} by coli {document['version']}"]
    if "model" in system:
        model, engine = system["model"], system["engine"]
        machine = system["machine"] or {}
        cpu, cores = machine.get("cpu", "unknown"), machine.get("num_cores", "?")
        lines.append(f"- model: {model['id']}, {model['family']}")
        if server := system.get("server"):
            absent = ", ".join(system["absent"])
            return [*lines, f"- asked over HTTP at {server}, which does not tell: {absent}"]
        lines += [
            f"- size: {model['num_layers']} layers, experts each: {model['num_experts'] or 'none'}",
            f"- kernels {engine['isa']}, {engine['num_threads']} threads, {engine['numerics']}",
            f"- machine: {cpu}, {cores} cores, {machine.get('ram_total_gb', 0):.1f} GB",
        ]
    return lines


def _markdown_table(document: Document) -> list[str]:
    columns = COLUMNS if document["comparison"] is None else COMPARED_COLUMNS
    marks = ["---:" if is_number else "---" for _, is_number in columns]
    rows: list[Sequence[str]] = [[title for title, _ in columns], marks, *table_rows(document)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _problems(document: Document) -> list[str]:
    if not document["problems"]:
        return []
    return ["", "## Problems", "", *(f"- {_plain(problem)}" for problem in document["problems"])]


def _phase(name: str, phase: Mapping[str, Any]) -> list[str]:
    lines = ["", f"## {name} ({phase['state']}, {phase['seconds']:.1f} s)", ""]
    if phase["state"] != "done":
        return [*lines, _plain(phase.get("error") or phase.get("reason") or "")]
    if name == "smoke":
        lines += ["| prompt | answer | passed |", "|---|---|---|"]
        lines += [
            f"| {_plain(case['prompt'])} | {_plain(case['answer'])}"
            f"{' (repeats itself)' if case['is_repeating'] else ''} |"
            f" {'yes' if case['passed'] else 'no'} |"
            for case in phase["cases"]
        ]
    elif name == "quality":
        lines += ["| question | chosen | right |", "|---|---|---|"]
        lines += [
            f"| {_plain(q['context'])} … | {_plain(q['choices'][q['choice']])} |"
            f" {_plain(q['choices'][q['gold']])} |"
            for q in phase["questions"]
        ]
    elif name == "diagnostic":
        profile = phase.get("profile") or {}
        times = [f"{key.removesuffix('_s')} {profile[key]:.3f} s" for key in profile
                 if key.endswith("_s")]  # fmt: skip
        lines += [f"- {', '.join(times)}"] if times else []
        lines += [f"- answer: {_plain(phase['answer'])}"]
    elif name == "throughput":
        lines += [
            f"- {row['kind']} of {row['tokens']} tokens at context {row['context']}:"
            f" {row['tokens_per_second']:.2f} tokens/s in the middle,"
            f" {max(row['repeats']):.2f} at best"
            for row in phase["speed"]
        ]
    elif name == "system":
        lines += [f"- capabilities: {', '.join(phase['engine']['capabilities']) or 'none'}"]
    return lines


def _change(row: Mapping[str, Any]) -> str:
    now, before = row["current"], row["baseline"]
    if now is None or before is None:
        return "-"
    if row["is_share"]:
        return f"{100 * (now - before) / before:+.1f} %" if before else "-"
    return f"{now - before:+.4g}"


def _plain(text: str) -> str:
    """Return text on one line that no table or mark-up of Markdown takes for its own."""
    words = " ".join(text.split())
    return "".join(f"\\{c}" if c in "|`*_<>[]#\\" else c for c in words)
