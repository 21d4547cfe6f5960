"""Bars with the range of what was measured: one line each, from zero, all to one scale."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_BAR: Final = 10
_FIGURE: Final = 9


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, the middle of its rounds, the least and the greatest."""

    label: str
    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a chart: bar, range, its two ends, middle, and where nothing changed."""

    bar: str = "\u2501"
    span: str = "\u2500"
    low: str = "\u251c"
    high: str = "\u2524"
    middle: str = "\u25cf"
    one: str = "\u2502"


ASCII: Final = Marks("=", "-", "[", "]", "o", "|")


def marks_for(encoding: str | None) -> Marks:
    """Return characters a stream of this encoding can write."""
    marks = Marks()
    try:
        "".join((marks.bar, marks.span, marks.low, marks.high, marks.middle, marks.one)).encode(
            encoding or "ascii"
        )
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return marks


def bar_chart(bars: Sequence[Bar], width: int, marks: Marks | None = None) -> list[Text]:
    """Return one line per bar.

    Args:
        bars: What to show; none is negative.
        width: Columns there are.
        marks: Characters to draw with; None: those of standard output.
    """
    marks = marks or marks_for(sys.stdout.encoding)
    label_width = max(len(bar.label) for bar in bars)
    room = max(_MIN_BAR, width - label_width - _FIGURE - 1)
    scale = (room - 1) / (max(bar.high for bar in bars) or 1.0)
    lines = []
    for bar in bars:
        low, middle, high = (round(value * scale) for value in (bar.low, bar.middle, bar.high))
        line = Text(f"{bar.label:<{label_width}} ", no_wrap=True)
        line.append(marks.bar * low, style="brand")
        line.append_text(_span(low, middle, high, marks))
        line.append(f"{' ' * (room - high - 1)}{bar.middle:>{_FIGURE}.2f}")
        lines.append(line)
    return lines


def ratio_chart(bars: Sequence[Bar], width: int, marks: Marks | None = None) -> list[Text]:
    """Return one line per ratio, around a line where nothing changed.

    Args:
        bars: Ratios, all above zero; a range that does not reach 1 is a difference.
        width: Columns there are.
        marks: Characters to draw with; None: those of standard output.
    """
    marks = marks or marks_for(sys.stdout.encoding)
    label_width = max(len(bar.label) for bar in bars)
    room = max(_MIN_BAR, width - label_width - 1)
    reach = max(0.05, *(abs(value - 1) for bar in bars for value in (bar.low, bar.high)))
    half = (room - 1) // 2

    def place(value: float) -> int:
        return half + round((value - 1) / reach * half)

    lines = []
    for bar in bars:
        low, middle, high = place(bar.low), place(bar.middle), place(bar.high)
        cells = Text(" " * low)
        cells.append_text(_span(low, middle, high, marks))
        cells.append(" " * (room - high - 1))
        if not low <= half <= high:
            cells = Text.assemble(cells[:half], (marks.one, "faint"), cells[half + 1 :])
        lines.append(Text.assemble(f"{bar.label:<{label_width}} ", cells, no_wrap=True))
    return lines


def _span(low: int, middle: int, high: int, marks: Marks) -> Text:
    """Return a range with its middle, `high - low + 1` columns wide."""
    cells = [marks.span] * (high - low + 1)
    cells[0], cells[-1] = marks.low, marks.high
    cells[middle - low] = marks.middle
    text = Text("".join(cells), style="accent")
    text.stylize("bold", middle - low, middle - low + 1)
    return text
