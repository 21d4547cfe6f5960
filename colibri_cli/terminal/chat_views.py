"""What a chat shows of the engine behind it: tiers, experts, phases, queue, each once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.text import Text

from colibri_cli.terminal.expert_heat import ExpertGrid, HitTimes, expert_heat
from colibri_cli.terminal.phases import phase_bar
from colibri_cli.terminal.scheduler import scheduler_foot, scheduler_table
from colibri_cli.terminal.serve_panel import trend_line
from colibri_cli.terminal.tier_bar import tier_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import RenderableType

_MAX_MAP_LINES: Final = 24
_PLAIN_WIDTH: Final = 79


def view_of(name: str, figures: Any, width: int, *, has_color: bool) -> RenderableType:  # noqa: ANN401
    """Return a view.

    Args:
        name: `tiers`, `experts`, `phases` or `queue`.
        figures: The object it shows, as a server's route gives it.
        width: Columns there are.
        has_color: Colours may be used.
    """
    return _VIEWS[name](figures, width, has_color)


def view_as_text(name: str, figures: Any, width: int = _PLAIN_WIDTH) -> str:  # noqa: ANN401
    """Return a view as plain lines of at most this width."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    console.print(view_of(name, figures, width, has_color=False))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


def _tiers(tiers: Mapping[str, Any], width: int, has_color: bool) -> RenderableType:
    return tier_bar(tiers, width, has_color=has_color)


def _experts(experts: Mapping[str, Any], width: int, has_color: bool) -> RenderableType:
    rows, cols = int(experts["rows"]), int(experts["cols"])
    grid = ExpertGrid(rows, cols, bytes.fromhex(experts["map"]))
    # Shown once, what was just used would be white everywhere: an answer uses nearly all of them.
    lines = min(rows if not has_color else (rows + 1) // 2, _MAX_MAP_LINES)
    picture = expert_heat(grid, HitTimes(), (width, lines), 0.0, has_color=has_color)
    legend = "layers down, experts across; brighter is hotter"
    legend += "; green VRAM, blue RAM, grey disk" if has_color else ""
    return Group(picture, Text(legend, style="faint" if has_color else ""))


def _phases(turns: list[Mapping[str, Any]], width: int, has_color: bool) -> RenderableType:
    last = turns[-1]
    head = Text(
        f"last answer: {last['wall_s']:.2f} s, {last['prompt_tokens']} →"
        f" {last['completion_tokens']} tokens, {last['forwards']} steps"
    )
    rates = [turn["completion_tokens"] / turn["wall_s"] for turn in turns if turn["wall_s"]]
    parts: list[RenderableType] = [head, phase_bar(last, width, has_color=has_color)]
    if len(rates) > 1:
        parts.append(trend_line(rates, width))
    return Group(*parts)


def _queue(health: Mapping[str, Any], width: int, has_color: bool) -> RenderableType:
    return Group(scheduler_table(health, width), scheduler_foot(health, width))


_VIEWS: Final[dict[str, Callable[[Any, int, bool], RenderableType]]] = {
    "tiers": _tiers,
    "experts": _experts,
    "phases": _phases,
    "queue": _queue,
}
