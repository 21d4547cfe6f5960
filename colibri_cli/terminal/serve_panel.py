"""The live panel of `coli serve`: scheduler table, tier bar, expert map, trend.

Takes the objects of `/health` and the raw telemetry; draws at most four times a second, and a
summary in text where the terminal is too small.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from colibri_cli.terminal.durations import duration
from colibri_cli.terminal.expert_heat import ExpertGrid, HitTimes, expert_heat
from colibri_cli.terminal.scheduler import scheduler_foot, scheduler_table
from colibri_cli.terminal.tier_bar import tier_bar
from colibri_cli.terminal.upstream_line import upstream_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from rich.console import RenderableType

    from colibri_cli.supervisor.telemetry import Telemetry

_INTERVAL_S: Final = 0.5
_MIN_SIZE: Final = (40, 12)
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_MAX_MAP_LINES: Final = 16  # two layers each: all of the demo
_MAX_BAR: Final = 60
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


class ServePanel:
    """Shows the panel while a block runs; log lines appear above it.

    Args:
        source: Where the figures come from.
        has_color: Colours may be used.
        console: Where to draw; None: standard error.
        lines_below: Lines that whoever draws the panel needs below it.
    """

    def __init__(
        self,
        source: PanelSource,
        *,
        has_color: bool,
        console: Console | None = None,
        lines_below: int = 0,
    ) -> None:
        self._lines_below = lines_below
        self._source = source
        self._has_color = has_color
        self._console = console or Console(
            stderr=True, highlight=False, no_color=True if not has_color else None
        )
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False)
        self._hits = HitTimes()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._live.start()
        _log_to(sys.stderr)  # what Live put there draws lines above the panel
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
        self._live.stop()
        _log_to(sys.stderr)

    async def _refresh(self) -> None:
        while True:
            self._live.update(self.render(await self._source.health()), refresh=True)
            await asyncio.sleep(_INTERVAL_S)

    def render(self, health: Mapping[str, Any]) -> RenderableType:
        """Return the whole panel."""
        width, height = self._console.size
        if width < _MIN_SIZE[0] or height < _MIN_SIZE[1]:
            return Group(_header(health, self._source.url), scheduler_foot(health))
        telemetry = self._source.telemetry()
        table = scheduler_table(health, width)
        parts: list[RenderableType] = [_header(health, self._source.url), table]
        parts.append(scheduler_foot(health))
        if (line := upstream_line(health)) is not None:
            parts.append(line)
        if tiers := health.get("tiers"):
            parts.append(tier_bar(tiers, min(width - 2, _MAX_BAR), has_color=self._has_color))
        if self._source.rates:
            parts.append(trend_line(self._source.rates))
        used = 3 + table.row_count + 4 + self._lines_below
        if telemetry.expert_map is not None and height - used >= 4:
            parts.append(self._map(telemetry, width, min(height - used - 1, _MAX_MAP_LINES)))
        return Group(*parts)

    def _map(self, telemetry: Telemetry, width: int, lines: int) -> Text:
        placed = telemetry.expert_map
        assert placed is not None
        now = time.monotonic()
        if telemetry.hits is not None:
            num_experts = placed.rows * placed.cols
            self._hits.note(telemetry.hits.bits, num_experts, telemetry.hits_seq, now)
        grid = ExpertGrid(placed.rows, placed.cols, placed.cells)
        return expert_heat(grid, self._hits, (width - 1, lines), now, has_color=self._has_color)


def trend_line(rates: Sequence[float]) -> Text:
    """Return the speed of the last answers as a row of bars, with last, median and most."""
    shown = list(rates)[-40:]
    most = max(shown)
    bars = "".join(
        _SPARKS[min(int(rate / most * len(_SPARKS)), len(_SPARKS) - 1)] for rate in shown
    )
    median = sorted(shown)[len(shown) // 2]
    return Text(f"{bars}  {shown[-1]:.1f} tok/s, median {median:.1f}, most {most:.1f}")


def _header(health: Mapping[str, Any], url: str) -> Text:
    status = str(health.get("status", "error"))
    text = Text()
    text.append(f"coli {health.get('version', '')} ")
    text.append(status, style=_STATES.get(status, "red"))
    text.append(f" · {health.get('model', '')} · {url} · up {duration(health.get('uptime_s', 0))}")
    if hardware := health.get("hwinfo"):
        text.append(f"\n{hardware['cpu']} · {hardware['cores']} cores", style="bright_black")
        text.append(f" · {hardware['ram_total_gb']:.0f} GB RAM", style="bright_black")
        if hardware["gpus"]:
            text.append(f" · {hardware['gpu']}", style="bright_black")
    return text


def _log_to(stream: Any) -> None:  # noqa: ANN401 - whatever stands in for standard error
    for handler in logging.getLogger("colibri_cli").handlers:
        if type(handler) is logging.StreamHandler:
            handler.setStream(stream)
