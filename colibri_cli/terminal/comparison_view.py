"""A comparison of two benchmark reports as a table and as ranges around one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.terminal.interval_chart import Bar
from colibri_cli.terminal.sizes import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.benchmark.comparing import Difference

COLUMNS: Final = (
    ("what", False),
    ("A", True),
    ("B", True),
    ("change", True),
    ("95 %", False),
    ("verdict", False),
)


def rows_of(found: Sequence[Difference]) -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    return [
        (
            row.name,
            _amount(row.before, row.unit),
            _amount(row.after, row.unit),
            _percent(row.ratio.middle),
            _range(row),
            row.verdict,
        )
        for row in found
    ]


def ratio_bars(found: Sequence[Difference]) -> list[Bar]:
    """Return the ratios that have an interval."""
    return [
        Bar(row.name, row.ratio.middle, row.ratio.low, row.ratio.high)
        for row in found
        if row.ratio.low is not None and row.ratio.high is not None
    ]


def _amount(value: float, unit: str) -> str:
    return size(value) if unit == "bytes" else f"{value:.2f}{' s' if unit == 's' else ''}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _range(row: Difference) -> str:
    if row.ratio.low is None or row.ratio.high is None:
        return "-"
    return f"{100 * (row.ratio.low - 1):+.1f} to {100 * (row.ratio.high - 1):+.1f}"
