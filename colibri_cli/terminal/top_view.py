"""`coli top`: the panel of a server elsewhere, from its `/health`, `/experts`, `/profile`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from colibri_cli.supervisor.telemetry import Telemetry
from colibri_cli.terminal.phases import phase_bar
from colibri_cli.terminal.serve_panel import ServePanel, Shown
from colibri_cli.terminal.top_keys import HELP, KEYS, Keys, TopState
from colibri_cli.wrapping import hung
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import ExpertHits, ExpertMap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import RenderableType

    from colibri_cli.plugin_types import View


Figures = dict[str, dict[str, Any]]


@dataclass(slots=True)
class RemoteSource:
    """Figures of a server, in the shape the panel takes."""

    url: str
    figures: Figures = field(default_factory=dict)
    _seen: Telemetry = field(default_factory=Telemetry)

    def take(self, figures: Figures) -> None:
        """Keep the latest answers of `/health`, `/experts` and `/profile`."""
        self.figures = figures
        experts = figures.get("experts", {})
        rows, cols = int(experts.get("rows", 0)), int(experts.get("cols", 0))
        if rows and cols:
            self._seen.expert_map = ExpertMap(rows, cols, bytes.fromhex(experts["map"]))
        if experts.get("hits"):
            self._seen.hits = ExpertHits(rows, cols, bytes.fromhex(experts["hits"]))
            self._seen.hits_seq = int(experts["seq"])

    @property
    def health(self) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        """Returns the object of `/health`."""

        async def latest() -> Mapping[str, Any]:
            return self.figures.get("health", {})

        return latest

    @property
    def telemetry(self) -> Callable[[], Telemetry]:
        """Returns the expert map and the hits."""
        return lambda: self._seen

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The last turns, oldest first."""
        return list(self.figures.get("profile", {}).get("turns", ()))

    @property
    def rates(self) -> Sequence[float]:
        """Tokens per second of the last answers, their prompts included."""
        return [turn["completion_tokens"] / turn["wall_s"] for turn in self.turns if turn["wall_s"]]


class TopView:
    """Draws a source.

    Args:
        source: Where the figures are.
        console: Where to draw.
        has_color: Colours may be used.
        views: Parts of plugins, by title; one that fails is replaced by what it said.
    """

    def __init__(
        self,
        source: RemoteSource,
        console: Console,
        *,
        has_color: bool,
        views: Mapping[str, View] | None = None,
    ) -> None:
        self._source = source
        self._views = dict(views or {})
        self._console = console
        self._has_color = has_color
        self._state = TopState()
        self._panel = ServePanel(source, has_color=has_color, console=console)

    def render(self, note: str = "") -> RenderableType:
        """Return the whole picture."""
        below: list[Text] = []
        width = self._console.width
        state = self._state
        if (turns := self._source.turns) and "phases" not in state.hidden:
            below.append(phase_bar(turns[-1], width, has_color=self._has_color))
        below += [Text("\n".join(lines)) for lines in map(self._lines, self._views)]
        if state.shows_keys:
            below.append(Text("\n".join(row for key in KEYS for row in hung(key, width))))
        if note:
            below.append(Text(note, style="bright_black" if self._has_color else ""))
        num_lines = sum(text.plain.count("\n") + 1 for text in below)
        placed = self._source.telemetry().expert_map
        shown = Shown(
            lines_below=num_lines,
            hidden=frozenset(state.hidden),
            window=None if placed is None else state.window(placed.rows, placed.cols),
            order=state.order,
        )
        return Group(self._panel.render(self._source.figures["health"], shown), *below)

    def _lines(self, title: str) -> list[str]:
        try:
            lines = list(self._views[title](self._source.figures))
        except ColibriError as error:
            lines = [error.message]
            self._views[title] = lambda _: lines  # said once, not tried again
        return [title, *(f"  {line}" for line in lines)]

    async def run(self, fetch: Callable[[], Figures], interval_s: float, count: int | None) -> None:
        """Show the figures until `q`, Ctrl-C, or as many times as asked for.

        Args:
            fetch: Asks the server; blocks.
            interval_s: Seconds between two questions.
            count: How often; None: until told otherwise.
        """
        changed, state = asyncio.Event(), self._state

        def on_keys(typed: str) -> None:
            state.press(typed)
            changed.set()

        loop = asyncio.get_running_loop()
        with (
            Keys(loop, on_keys),
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            shown, problem, next_look = 0, "", loop.time()
            while not state.is_over and (count is None or shown < count):
                if loop.time() >= next_look and not state.is_paused:
                    problem = await self._look(fetch)
                    shown += not problem
                    next_look = loop.time() + interval_s
                notes = ["paused" if state.is_paused else problem, HELP]
                live.update(self.render(" · ".join(filter(None, notes))), refresh=True)
                await _wait(changed, interval_s if state.is_paused else next_look - loop.time())

    async def _look(self, fetch: Callable[[], Figures]) -> str:
        """Take the latest figures; return what kept them away, if something did."""
        try:
            self._source.take(await asyncio.to_thread(fetch))
        except ColibriError as error:
            return error.message
        return ""


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    """Wait until a key was pressed, or for the time."""
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await changed.wait()
    except TimeoutError:
        return
    changed.clear()
