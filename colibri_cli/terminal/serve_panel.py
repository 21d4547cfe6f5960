"""The live panel of `coli serve`: scheduler table, tier bar, expert map, trend.

Takes the objects of `/health` and the raw telemetry; draws at most four times a second, and a
summary in text where the terminal is too small.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO

from rich.console import Console, Group
from rich.text import Text

from colibri_cli.terminal.durations import duration
from colibri_cli.terminal.expert_heat import ExpertGrid, HitTimes, Window, expert_heat
from colibri_cli.terminal.line_view import LineView
from colibri_cli.terminal.live_region import Line, LiveRegion, TerminalOutput
from colibri_cli.terminal.scheduler import scheduler_foot, scheduler_table
from colibri_cli.terminal.tier_bar import tier_bar
from colibri_cli.terminal.upstream_line import upstream_line
from colibri_cli.wrapping import flowed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from colibri_cli.supervisor.telemetry import Telemetry

_INTERVAL_S: Final = 0.5
_MIN_SIZE: Final = (40, 12)
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_MAX_SPARKS: Final = 40
_MIN_SPARKS: Final = 8
_WIDE: Final = 100
_GAP: Final = " · "
_MIN_MAP_LINES: Final = 3
_MAX_MAP_LINES: Final = 16  # two layers each: all of the demo
_STATES: Final = {"ok": "green", "loading": "yellow", "error": "red"}


class PanelSource(Protocol):
    """Where the figures come from."""

    @property
    def url(self) -> str:
        """Where the server listens."""
        ...

    @property
    def health(self) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        """Returns the object of `/health`."""
        ...

    @property
    def telemetry(self) -> Callable[[], Telemetry]:
        """Returns the latest figures of the engine."""
        ...

    @property
    def rates(self) -> Sequence[float]:
        """Tokens per second of the last answers."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the panel is wanted.

    Args:
        lines_below: Lines that its caller needs below it.
        hidden: Those of `PARTS` that are left out.
        window: Part of the map; None: all of it.
        order: Of the slots, one of `scheduler.ORDERS`.
    """

    lines_below: int = 0
    hidden: frozenset[str] = frozenset()
    window: Window | None = None
    order: str = "slot"


PARTS: Final = ("slots", "tiers", "speed", "map")
ALL: Final = Shown()


class ServePanel:
    """Shows the panel while a block runs; log lines appear above it.

    Args:
        source: Where the figures come from.
        has_color: Colours may be used.
        console: Knows colours and size; None: that of standard error.
        output: Where to draw; None: standard error.
    """

    def __init__(
        self,
        source: PanelSource,
        *,
        has_color: bool,
        console: Console | None = None,
        output: TerminalOutput | None = None,
    ) -> None:
        self._source = source
        self._has_color = has_color
        self._console = console or Console(
            stderr=True, highlight=False, no_color=True if not has_color else None
        )
        self._view = LineView(self._console)
        self._region = LiveRegion(output or self._standard_error())
        self._drawing = threading.RLock()  # log lines come from any thread
        self._lines: list[Line] = []
        self._before: TextIO | None = None
        self._hits = HitTimes()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._before = sys.stderr
        sys.stderr = _LinesAbove(self._print_above, self._before)
        _log_to(sys.stderr)
        self._task = asyncio.create_task(self._refresh())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._before is not None:
            sys.stderr = self._before
        _log_to(sys.stderr)
        with self._drawing:
            self._region.keep()

    async def _refresh(self) -> None:
        while True:
            picture = self.render(await self._source.health())
            self._lines = self._view.rendered(picture, self._console.width)
            self._draw([])
            await asyncio.sleep(_INTERVAL_S)

    def _print_above(self, lines: Sequence[str]) -> None:
        self._draw([Line.plain(line) for line in lines])

    def _draw(self, above: Sequence[Line]) -> None:
        with self._drawing:
            self._region.update(above, self._lines)

    def _standard_error(self) -> TerminalOutput:
        stream = sys.stderr

        def write(text: str) -> None:
            stream.write(text)
            stream.flush()

        return TerminalOutput(write, lambda: (self._console.width, self._console.height))

    def render(self, health: Mapping[str, Any], shown: Shown = ALL) -> RenderableType:
        """Return the whole panel, or those parts of it that are wanted."""
        width, height = self._console.size
        head = _header(health, self._source.url, width)
        foot = scheduler_foot(health, width)
        if width < _MIN_SIZE[0] or height < _MIN_SIZE[1]:
            return Group(head, foot)
        parts: list[RenderableType] = [head]
        used = 0
        if "slots" not in shown.hidden:
            table = scheduler_table(health, width, shown.order)
            parts += [table, foot]
            used += table.row_count + 1
        if (line := upstream_line(health, width)) is not None:
            parts.append(line)
        if (tiers := health.get("tiers")) and "tiers" not in shown.hidden:
            parts.append(tier_bar(tiers, width, has_color=self._has_color))
        if self._source.rates and "speed" not in shown.hidden:
            parts.append(trend_line(self._source.rates, width))
        used += sum(part.plain.count("\n") + 1 for part in parts if isinstance(part, Text))
        room = height - used - shown.lines_below - 1  # the cursor's line
        telemetry = self._source.telemetry()
        has_map = telemetry.expert_map is not None and "map" not in shown.hidden
        if has_map and room >= _MIN_MAP_LINES:
            size = (width - 1, min(room, _MAX_MAP_LINES))
            parts.append(self._map(telemetry, size, shown.window))
        return Group(*parts)

    def _map(self, telemetry: Telemetry, size: tuple[int, int], window: Window | None) -> Text:
        placed = telemetry.expert_map
        assert placed is not None
        now = time.monotonic()
        if telemetry.hits is not None:
            num_experts = placed.rows * placed.cols
            self._hits.note(telemetry.hits.bits, num_experts, telemetry.hits_seq, now)
        grid = ExpertGrid(placed.rows, placed.cols, placed.cells, window)
        return expert_heat(grid, self._hits, size, now, has_color=self._has_color)


def trend_line(rates: Sequence[float], width: int = _WIDE) -> Text:
    """Return the speed of the last answers as a row of bars, with last, median and most."""
    ordered = sorted(list(rates)[-_MAX_SPARKS:])
    median, most = ordered[len(ordered) // 2], ordered[-1]
    words = f"{rates[-1]:.2f} tok/s, median {median:.2f}, most {most:.2f}"
    room = width - len(words) - 2
    below = room < min(len(ordered), _MIN_SPARKS)  # then the figures take a line of their own
    shown = list(rates)[-min(_MAX_SPARKS, width if below else room) :]
    top = max(shown) or 1.0
    bars = "".join(_SPARKS[min(int(rate / top * len(_SPARKS)), len(_SPARKS) - 1)] for rate in shown)
    return Text(f"{bars}\n{words}" if below else f"{bars}  {words}")


def _header(health: Mapping[str, Any], url: str, width: int) -> Text:
    status = str(health.get("status", "error"))
    text = Text(f"coli {health.get('version', '')} ")
    text.append(status, style=_STATES.get(status, "red"))
    facts = [text.plain, str(health.get("model", "")), url]
    facts.append(f"up {duration(health.get('uptime_s', 0))}")
    first, *rest = flowed(facts, width, _GAP)
    for index in first[1:]:
        text.append(_GAP + facts[index])
    for row in rest:
        text.append("\n" + _GAP.join(facts[index] for index in row))
    if hardware := health.get("hwinfo"):
        facts = [hardware["cpu"], f"{hardware['cores']} cores"]
        facts.append(f"{hardware['ram_total_gb']:.0f} GB RAM")
        facts += [hardware["gpu"]] if hardware["gpus"] else []
        for row in flowed(facts, width, _GAP):
            text.append("\n" + _GAP.join(facts[index] for index in row), style="bright_black")
    return text


class _LinesAbove(io.TextIOBase):
    """Stands in for standard error while the panel is there: whole lines appear above it."""

    def __init__(self, show: Callable[[Sequence[str]], None], stream: TextIO) -> None:
        self._show = show
        self._stream = stream
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the terminal."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether somebody sees it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return that of the terminal."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def write(self, text: str) -> int:
        """Show the lines that are complete."""
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._show(lines)
        return len(text)


def _log_to(stream: Any) -> None:  # noqa: ANN401 - whatever stands in for standard error
    for handler in logging.getLogger("colibri_cli").handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            handler.setStream(stream)
