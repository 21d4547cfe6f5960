"""`coli top`: the panel of a server elsewhere, from its `/health`, `/experts`, `/profile`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from colibri_cli.supervisor.telemetry import Telemetry
from colibri_cli.terminal.phases import phase_bar
from colibri_cli.terminal.serve_panel import ServePanel
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import ExpertHits, ExpertMap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import RenderableType

    from colibri_cli.plugin_types import View

_MAX_BAR: Final = 60
_BELOW: Final = 3  # lines of the phases and of the keys
_HELP: Final = "q quit · p pause"

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
        self._panel = ServePanel(source, has_color=has_color, console=console, lines_below=_BELOW)

    def render(self, note: str = "") -> RenderableType:
        """Return the whole picture."""
        parts: list[RenderableType] = [self._panel.render(self._source.figures["health"])]
        if turns := self._source.turns:
            width = min(self._console.width - 2, _MAX_BAR)
            parts.append(phase_bar(turns[-1], width, has_color=self._has_color))
        parts += [Text("\n".join(lines)) for lines in map(self._lines, self._views)]
        if note:
            parts.append(Text(note, style="bright_black" if self._has_color else ""))
        return Group(*parts)

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
        is_ended, is_paused = asyncio.Event(), False

        def on_key() -> None:
            nonlocal is_paused
            key = sys.stdin.read(1)
            if key in {"q", "Q", "\x1b", ""}:
                is_ended.set()
            elif key in {"p", "P", " "}:
                is_paused = not is_paused

        with _Keys(on_key), Live(console=self._console, screen=True, auto_refresh=False) as live:
            shown = 0
            while not is_ended.is_set() and (count is None or shown < count):
                note = _HELP
                if is_paused:
                    note = f"paused · {_HELP}"
                else:
                    try:
                        self._source.take(await asyncio.to_thread(fetch))
                        shown += 1
                    except ColibriError as error:
                        note = f"{error.message} · {_HELP}"
                live.update(self.render(note), refresh=True)
                try:
                    await asyncio.wait_for(is_ended.wait(), interval_s)
                except TimeoutError:
                    continue


class _Keys:
    """Single keys of the terminal, while a block runs; nothing where there is none."""

    def __init__(self, on_key: Callable[[], None]) -> None:
        self._on_key = on_key
        self._before: list[Any] | None = None

    def __enter__(self) -> None:
        if not sys.stdin.isatty():
            return
        try:
            import termios
            import tty
        except ImportError:  # no such terminals on Windows; Ctrl-C ends it
            return
        self._before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        asyncio.get_running_loop().add_reader(sys.stdin, self._on_key)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        import termios

        asyncio.get_running_loop().remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
