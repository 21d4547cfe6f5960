"""The scheduler table: what runs in which slot, and what became of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from colibri_cli.terminal.durations import duration
from colibri_cli.wrapping import flowed

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS: Final = (
    ("Slot", False),
    ("State", False),
    ("Request", False),
    ("Prompt tok", True),
    ("Gen tok", True),
    ("tok/s", True),
    ("Wait", True),
    ("Age", True),
)


_NARROW: Final = frozenset({"Slot", "State", "Gen tok", "tok/s", "Age"})
_WHOLE_WIDTH: Final = 64
_MAX_ROWS: Final = 16  # as many contexts as our engine has at most; others run hundreds at once
_GAP: Final = " · "
_SORT_KEYS: Final = {"tokens": "generated", "age": "age_s"}
ORDERS: Final = ("slot", *_SORT_KEYS)


def scheduler_table(
    health: Mapping[str, Any], width: int = _WHOLE_WIDTH, order: str = "slot"
) -> Table:
    """Return one row per slot; free slots are shown too, where there are few.

    Args:
        health: The answer of `/health`.
        width: Columns of the terminal; where they are few, some of the table are left out.
        order: One of `ORDERS`; by anything but the slot, free ones come last.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    shown = [row for row in _COLUMNS if width >= _WHOLE_WIDTH or row[0] in _NARROW]
    for title, is_number in shown:
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    running = list(health.get("slots", ()))
    if (num_slots := int(health.get("kv_slots", 0))) > _MAX_ROWS:
        rows = [("?" if e["slot"] is None else str(e["slot"]), e) for e in running]
    else:
        by_slot = {entry["slot"]: entry for entry in running if entry["slot"] is not None}
        rows = [(str(slot), by_slot.get(slot)) for slot in range(num_slots)]
        rows += [("?", entry) for entry in running if entry["slot"] is None]
    if (key := _SORT_KEYS.get(order)) is not None:
        rows.sort(key=lambda row: -1.0 if row[1] is None else row[1][key], reverse=True)
    for name, entry in rows if num_slots <= _MAX_ROWS else rows[:_MAX_ROWS]:
        _add_row(table, name, entry, width)
    return table


def scheduler_foot(health: Mapping[str, Any], width: int = _WHOLE_WIDTH) -> Text:
    """Return the counters, in one line where there is room."""
    counts = health.get("scheduler", {})
    if not counts:
        return Text("")
    num_slots = int(health.get("kv_slots", 0))
    words = [
        *([f"running {counts['active']}/{num_slots}"] if num_slots > _MAX_ROWS else []),
        f"queued {counts['queued']}/{counts['max_queue']}",
        f"completed {counts['completed']}",
        *(
            f"{name.replace('_', ' ')} {counts[name]}"
            for name in ("failed", "aborted", "rejected", "timed_out", "cancelled")
            if counts.get(name)
        ),
    ]
    rows = flowed(words, width, _GAP)
    lines = [_GAP.join(words[index] for index in row) for row in rows]
    return Text("\n".join(lines), style="bright_black")


def _add_row(table: Table, slot: str, entry: Mapping[str, Any] | None, width: int) -> None:
    if entry is None:
        table.add_row(slot, Text("free", style="bright_black"))
        return
    prompt = str(entry["prompt_tokens"])
    state = entry["state"]
    if state == "prefill":
        prompt = f"{entry['prefilled_tokens']}/{prompt}"
    cells: dict[str, str | Text] = {
        "Slot": slot,
        "State": Text(state, style="yellow" if state == "prefill" else "green"),
        "Request": str(entry.get("request", ""))[:16],
        "Prompt tok": prompt,
        "Gen tok": str(entry["generated"]),
        "tok/s": f"{rate:.2f}" if (rate := entry.get("tokens_per_second", 0)) else "",
        "Wait": _duration(entry["wait_s"]),
        "Age": _duration(entry["age_s"]),
    }
    shown = [cell for title, cell in cells.items() if width >= _WHOLE_WIDTH or title in _NARROW]
    table.add_row(*shown)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else duration(seconds)
