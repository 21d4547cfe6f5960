"""The tier bar: how many experts sit in VRAM, in RAM and on disk, as one row of cells.

Widths follow the largest remainders, so they always add up, and no tier that holds an expert
disappears.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli.console import stdout_console
from colibri_cli.settings import given_columns
from colibri_cli.wrapping import flowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIER_NAMES: Final = ("VRAM", "RAM", "disk")
TIER_STYLES: Final = ("green", "blue", "bright_black")
_FIELDS: Final = ("vram", "ram", "disk")
MAX_BAR: Final = 60
MARK: Final = "■"
_PLAIN: Final = "#=."
_PLAIN_WIDTH: Final = 80
_GAP: Final = "   "


def cell_widths(counts: Sequence[int], width: int) -> list[int]:
    """Share `width` cells out in proportion to the counts.

    Every count above zero gets at least one cell where there are enough.
    """
    total = sum(counts)
    if total <= 0 or width <= 0:
        return [0] * len(counts)
    shares = [count * width / total for count in counts]
    widths = [int(share) for share in shares]
    by_remainder = sorted(range(len(counts)), key=lambda i: widths[i] - shares[i])
    for index in by_remainder[: width - sum(widths)]:
        widths[index] += 1
    for index, count in enumerate(counts):
        if count > 0 and widths[index] == 0 and (giver := _widest(widths)) is not None:
            widths[giver] -= 1
            widths[index] = 1
    return widths


def tier_bar(tiers: Mapping[str, Any], width: int, *, has_color: bool) -> Text:
    """Return bar and legend.

    Args:
        tiers: The `tiers` object of `/health`.
        width: Columns there are; a long bar is not easier to read, so it ends before.
        has_color: Otherwise each tier has a character of its own.
    """
    counts = [int(tiers[field]) for field in _FIELDS]
    text = Text()
    for index, cells in enumerate(cell_widths(counts, min(width, MAX_BAR))):
        character = "█" if has_color else _PLAIN[index]
        text.append(character * cells, style=TIER_STYLES[index] if has_color else "")
    text.append("\n")
    text.append_text(_legend(tiers, counts, width, has_color=has_color))
    return text


def print_tier_bar(tiers: Mapping[str, Any]) -> None:
    """Print bar and legend on standard output, coloured where that has colours."""
    console = stdout_console()
    has_color = console.is_terminal and console.color_system is not None and not console.no_color
    # Rich takes every dumb terminal for one of 80 columns.
    width = given_columns() or _PLAIN_WIDTH
    if console.is_terminal:
        width = shutil.get_terminal_size().columns
    console.print(tier_bar(tiers, width, has_color=has_color), soft_wrap=not console.is_terminal)


def legend(items: Sequence[tuple[str, str, str]], width: int, *, has_color: bool) -> Text:
    """Return what the colours or characters of a bar mean, no item broken.

    Args:
        items: Character, style and text of each.
        width: Columns there are.
        has_color: Otherwise the character stands for the colour.
    """
    marks = [MARK if has_color else character for character, _, _ in items]
    texts = [f"{mark} {text}" for mark, (_, _, text) in zip(marks, items, strict=True)]
    lines = []
    for row in flowed(texts, width, _GAP):
        line = Text()
        for index in row:
            line.append(_GAP if len(line) else "")
            line.append(marks[index], style=items[index][1] if has_color else "")
            line.append(texts[index][1:])
        lines.append(line)
    return Text("\n").join(lines)


def _legend(
    tiers: Mapping[str, Any], counts: Sequence[int], width: int, *, has_color: bool
) -> Text:
    sizes = (f" {tiers['vram_gb']:.1f} GB", f" {tiers['ram_gb']:.1f} GB", "")
    items = [
        (_PLAIN[index], TIER_STYLES[index], f"{name} {count:,} experts" + (size if count else ""))
        for index, (name, count, size) in enumerate(zip(TIER_NAMES, counts, sizes, strict=True))
    ]
    return legend(items, width, has_color=has_color)


def _widest(widths: Sequence[int]) -> int | None:
    index = max(range(len(widths)), key=lambda i: widths[i])
    return index if widths[index] > 1 else None
