"""What the keys of `coli top` change: parts shown, part of the map, order of the slots."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.terminal.expert_heat import Window
from colibri_cli.terminal.scheduler import ORDERS
from colibri_cli.terminal.serve_panel import PARTS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

HELP: Final = "q quit · p pause · ? keys"
KEYS: Final = (
    "q, Esc    quit",
    "p, Space  pause, go on",
    "1 to 5    show or hide slots, tiers, speed, map, phases",
    "+ and -   zoom the map; arrows move in it, 0 shows all of it",
    "s         order slots by number, tokens, age",
    "?         show or hide these lines",
)
_ALL: Final = (*PARTS, "phases")
_MAX_ZOOM: Final = 16
_ARROWS: Final = {"A": (-1, 0), "B": (1, 0), "C": (0, 1), "D": (0, -1)}
_KEY: Final = re.compile(r"\x1b[\[O]([A-Z~0-9;]*)|.", re.DOTALL)


@dataclass(slots=True)
class TopState:
    """How somebody wants it shown; `place` is the middle of the window, as shares of the map."""

    is_over: bool = False
    is_paused: bool = False
    shows_keys: bool = False
    hidden: set[str] = field(default_factory=set)
    zoom: int = 1
    place: tuple[float, float] = (0.5, 0.5)
    order: str = ORDERS[0]

    def press(self, typed: str) -> None:
        """Take what was typed; keys nobody knows change nothing."""
        if typed in {"", "\x1b"}:
            self.is_over = True
        for key in _KEY.finditer(typed):
            if arrow := _ARROWS.get((key[1] or " ")[-1]):
                self._move(*arrow)
            elif key[0] != "\x1b":
                self._key(key[0].lower())

    def window(self, rows: int, cols: int) -> Window | None:
        """Return the part of a map of this size, None for all of it."""
        if self.zoom == 1:
            return None
        height, width = max(1, rows // self.zoom), max(1, cols // self.zoom)
        top = round(self.place[0] * rows - height / 2)
        left = round(self.place[1] * cols - width / 2)
        return Window(
            min(max(top, 0), rows - height), min(max(left, 0), cols - width), height, width
        )

    def _key(self, key: str) -> None:
        if key == "q":
            self.is_over = True
        elif key in {"p", " "}:
            self.is_paused = not self.is_paused
        elif key == "?":
            self.shows_keys = not self.shows_keys
        elif key == "s":
            self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        elif key in {"+", "=", "-"}:
            zoom = self.zoom // 2 if key == "-" else self.zoom * 2
            self.zoom = min(max(zoom, 1), _MAX_ZOOM)
        elif key == "0":
            self.zoom, self.place = 1, (0.5, 0.5)
        elif key.isdecimal() and int(key) <= len(_ALL):
            self.hidden ^= {_ALL[int(key) - 1]}

    def _move(self, down: int, right: int) -> None:
        """Move by half a window, no further than the edges."""
        step, edge = 0.5 / self.zoom, 0.5 / self.zoom
        moved = (self.place[0] + down * step, self.place[1] + right * step)
        row, column = (min(max(share, edge), 1 - edge) for share in moved)
        self.place = (row, column)


class Keys:
    """Keys of the terminal, while a block runs; nothing where there is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_keys: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_keys = on_keys
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
        self._loop.add_reader(sys.stdin, self._read)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        import termios

        self._loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        # All at once: an arrow is three characters, of which the first alone is Escape.
        self._on_keys(os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace"))
