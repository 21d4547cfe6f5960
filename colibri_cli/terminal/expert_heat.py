"""The expert map: one spot per expert, or per few of them, in half-blocks.

Two rows of experts share a line of text: the upper half of a cell is the foreground colour, the
lower half the background. Hue is the tier most experts of the spot sit in, brightness the hottest
of them; what was just used is white and fades. Without colour, shades stand for brightness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

_FADE_S: Final = 1.2
_HOT: Final = 24  # heat at which a spot is as bright as it gets
_DIM: Final = 0.35
_SHADES: Final = " ░▒▓█"
_TIER_RGB: Final = ((140, 140, 140), (70, 130, 255), (60, 210, 110))  # disk, RAM, VRAM
_HEAT_MASK: Final = 0x3F
_NEVER: Final = float("-inf")

Rgb = tuple[int, int, int]


@dataclass(slots=True)
class HitTimes:
    """When each expert was used last, as far as it was told."""

    times: list[float] = field(default_factory=list)
    seq: int = 0

    def note(self, bits: bytes, num_experts: int, seq: int, now: float) -> None:
        """Take the latest hits: bit `i & 7` of byte `i >> 3` is expert `i`."""
        if len(self.times) != num_experts:
            self.times = [_NEVER] * num_experts
        if seq == self.seq:
            return
        self.seq = seq
        for index, byte in enumerate(bits):
            bit = 0
            while byte >> bit:
                expert = index * 8 + bit
                if byte >> bit & 1 and expert < num_experts:
                    self.times[expert] = now
                bit += 1

    def glow(self, experts: Sequence[int], now: float) -> float:
        """Return 1 for a spot just used, falling to 0."""
        if not self.times:
            return 0.0
        latest = max((self.times[e] for e in experts if e < len(self.times)), default=_NEVER)
        return max(0.0, 1.0 - (now - latest) / _FADE_S)


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a map: its first row and column, and how many there are of each."""

    top: int
    left: int
    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class ExpertGrid:
    """The map of `/experts`: rows (layers) times cols (experts), one byte each.

    Only the window is drawn, where there is one.
    """

    rows: int
    cols: int
    cells: bytes
    window: Window | None = None

    @property
    def part(self) -> Window:
        """What is drawn."""
        return self.window or Window(0, 0, self.rows, self.cols)

    def spots(self, width: int, height: int) -> list[list[list[int]]]:
        """Return the experts of each spot of a picture of at most this size."""
        part = self.part
        across, down = min(width, part.cols), min(height, part.rows)
        columns = [range(part.left + x * part.cols // across,
                         part.left + (x + 1) * part.cols // across)
                   for x in range(across)]  # fmt: skip
        lines = [range(part.top + y * part.rows // down, part.top + (y + 1) * part.rows // down)
                 for y in range(down)]  # fmt: skip
        return [[[r * self.cols + c for r in line for c in column] for column in columns]
                for line in lines]  # fmt: skip


def expert_heat(
    grid: ExpertGrid, hits: HitTimes, size: tuple[int, int], now: float, *, has_color: bool
) -> Text:
    """Return the picture.

    Args:
        grid: Tiers and heat.
        hits: What was used when.
        size: Columns and lines of text there is room for, the layer axis included.
        now: The time, on the clock of `hits`.
        has_color: Otherwise shades are used.
    """
    if grid.rows <= 0 or grid.cols <= 0 or len(grid.cells) < grid.rows * grid.cols:
        return Text("no experts", style="bright_black")
    axis = len(str(grid.rows - 1)) + 1
    per_line = 2 if has_color else 1
    spots = grid.spots(max(size[0] - axis, 1), max(size[1], 1) * per_line)
    text = Text(no_wrap=True)
    for top in range(0, len(spots), per_line):
        layer = grid.part.top + top * grid.part.rows // len(spots)
        text.append(f"{layer:>{axis - 1}} ", style="bright_black" if has_color else "")
        if has_color:
            below = spots[top + 1] if top + 1 < len(spots) else None
            _append_half_blocks(text, grid, hits, (spots[top], below), now)
        else:
            for spot in spots[top]:
                level = _brightness(grid, spot, hits.glow(spot, now))
                text.append(_SHADES[min(int(level * len(_SHADES)), len(_SHADES) - 1)])
        text.append("\n")
    text.right_crop(1)
    return text


def _append_half_blocks(
    text: Text,
    grid: ExpertGrid,
    hits: HitTimes,
    lines: tuple[list[list[int]], list[list[int]] | None],
    now: float,
) -> None:
    above, below = lines
    for column, spot in enumerate(above):
        upper = _color(grid, spot, hits.glow(spot, now))
        lower = None
        if below is not None:
            lower = _color(grid, below[column], hits.glow(below[column], now))
        text.append("▀", style=_style(upper, lower))


def _style(upper: Rgb, lower: Rgb | None) -> Style:
    background = None if lower is None else f"rgb({lower[0]},{lower[1]},{lower[2]})"
    return Style(color=f"rgb({upper[0]},{upper[1]},{upper[2]})", bgcolor=background)


def _color(grid: ExpertGrid, spot: Sequence[int], glow: float) -> Rgb:
    votes = [0, 0, 0]
    for expert in spot:
        votes[min(grid.cells[expert] >> 6, 2)] += 1
    base = _TIER_RGB[votes.index(max(votes))]
    level = _brightness(grid, spot, 0.0)
    red, green, blue = (round((1 - glow) * channel * level + glow * 255) for channel in base)
    return red, green, blue


def _brightness(grid: ExpertGrid, spot: Sequence[int], glow: float) -> float:
    heat = max(grid.cells[expert] & _HEAT_MASK for expert in spot)
    return max(_DIM + (1 - _DIM) * min(heat / _HOT, 1.0), glow)
