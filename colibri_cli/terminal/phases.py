"""Where the time of one answer went: a bar of parts, and a line that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli.terminal.tier_bar import MAX_BAR, cell_widths, legend

if TYPE_CHECKING:
    from collections.abc import Mapping

# part, its field, style, letter where there is no colour
_PARTS: Final = (
    ("disk", "expert_disk_s", "bright_black", "d"),
    ("wait", "expert_wait_s", "yellow", "w"),
    ("experts", "expert_matmul_s", "blue", "e"),
    ("attention", "attention_s", "magenta", "a"),
    ("head", "lm_head_s", "cyan", "h"),
    ("other", None, "green", "."),  # white would be lost on a light background
)
_LEAST_PERCENT: Final = 0.5
_RESOLUTION: Final = 1_000_000  # parts are shared out as whole microseconds


def part_seconds(turn: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each part; what no part accounts for is "other"."""
    known = {name: float(turn[field]) for name, field, _, _ in _PARTS if field is not None}
    rest = max(0.0, float(turn["wall_s"]) - sum(known.values()))
    return {**known, "other": rest}


def phase_bar(turn: Mapping[str, Any], width: int, *, has_color: bool) -> Text:
    """Return the bar and its legend.

    Args:
        turn: One turn of `/profile`.
        width: Columns there are.
        has_color: Otherwise letters stand for colours.
    """
    seconds = part_seconds(turn)
    shares = [round(s * _RESOLUTION) for s in seconds.values()]
    text = Text()
    for (_, _, style, letter), count in zip(
        _PARTS, cell_widths(shares, min(width, MAX_BAR)), strict=True
    ):
        text.append(
            (" " if has_color else letter) * count, style=f"on {style}" if has_color else ""
        )
    text.append("\n")
    total = sum(seconds.values()) or 1.0
    items = [
        (letter, style, f"{name} {share:.0f} %")
        for name, _, style, letter in _PARTS
        if (share := 100 * seconds[name] / total) >= _LEAST_PERCENT
    ]
    text.append_text(legend(items, width, has_color=has_color))
    return text
