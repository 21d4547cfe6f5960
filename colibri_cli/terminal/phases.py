"""Where the time of one answer went: a bar of parts, and a line that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli.terminal.tier_bar import cell_widths

if TYPE_CHECKING:
    from collections.abc import Mapping

# part, its field, style, letter where there is no colour
_PARTS: Final = (
    ("disk", "expert_disk_s", "bright_black", "d"),
    ("wait", "expert_wait_s", "yellow", "w"),
    ("experts", "expert_matmul_s", "blue", "e"),
    ("attention", "attention_s", "magenta", "a"),
    ("head", "lm_head_s", "cyan", "h"),
    ("other", None, "white", "."),
)
_RESOLUTION: Final = 1_000_000  # parts are shared out as whole microseconds


def part_seconds(turn: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each part; what no part accounts for is "other"."""
    known = {name: float(turn[field]) for name, field, _, _ in _PARTS if field is not None}
    rest = max(0.0, float(turn["wall_s"]) - sum(known.values()))
    return {**known, "other": rest}


def phase_bar(turn: Mapping[str, Any], width: int, *, has_color: bool) -> Text:
    """Return the bar and its legend, two lines.

    Args:
        turn: One turn of `/profile`.
        width: Cells of the bar.
        has_color: Otherwise letters stand for colours.
    """
    seconds = part_seconds(turn)
    cells = cell_widths([round(s * _RESOLUTION) for s in seconds.values()], width)
    text = Text()
    for (_, _, style, letter), count in zip(_PARTS, cells, strict=True):
        text.append(
            (" " if has_color else letter) * count, style=f"on {style}" if has_color else ""
        )
    text.append("\n")
    total = sum(seconds.values()) or 1.0
    for index, (name, _, style, letter) in enumerate(_PARTS):
        share = 100 * seconds[name] / total
        if share >= 0.5:
            label = name if has_color else f"{letter}={name}"
            text.append(f"{label} {share:.0f} %  ", style=style if has_color and index else "")
    text.rstrip()
    return text
