"""A chat on a terminal: a status line while nothing comes, reasoning, the answer, notices.

What is complete scrolls away and is never touched again; the rest is redrawn at most thirty times a
second, and less often when drawing takes long, so that it never uses more than a tenth of a
processor. Everything goes through one live region, so nothing is ever drawn over something else.
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli.console import stdout_console
from colibri_cli.errors import UsageError
from colibri_cli.terminal.answer_text import error_lines, visible
from colibri_cli.terminal.line_view import LineView
from colibri_cli.terminal.live_region import EMPTY, Line, LiveRegion, Size, TerminalOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from colibri_cli.terminal.answer_view import MarkdownAnswer, MarkedText, RawAnswer
    from colibri_protocol.errors import ColibriError

_MIN_INTERVAL_S: Final = 1 / 30
_SHARE: Final = 9  # times as long as drawing took until it is drawn again
_TICK_S: Final = 0.1
_MAX_CLIPBOARD: Final = 100_000  # what xterm and its kin take
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER: Final = "|/-\\"
_ASCII: Final = str.maketrans("·░▒▓█▁▂▃▄▅▆▇", "-.:%#_.,-=+*") | {ord("→"): "->", ord("…"): "..."}
MARKER: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


class TerminalScreen:
    """The screen of one chat.

    Args:
        is_quiet: Leave out notices.
        shows_reasoning: Show what is thought before an answer; else only for how long.
        is_markdown: Show answers as the Markdown they are; else the text itself.
        console: Knows the colours; None: standard output.
        output: Where it is drawn; None: standard output.
    """

    def __init__(
        self,
        *,
        is_quiet: bool = False,
        shows_reasoning: bool = True,
        is_markdown: bool = True,
        console: Console | None = None,
        output: TerminalOutput | None = None,
    ) -> None:
        self.shows_reasoning = shows_reasoning
        self.is_markdown = is_markdown
        self.is_quiet = is_quiet
        self._console = console or stdout_console()
        self._output = output or TerminalOutput.standard()
        self._size = self._output.size
        self._view = LineView(self._console)
        self._region = LiveRegion(self._output)
        self._final: list[Line] = []  # not drawn yet
        self._answer: MarkdownAnswer | RawAnswer | None = None
        self._reasoning: MarkedText | None = None
        self._status: str | None = None
        self._began = self._thought_since = 0.0
        self._has_text = False
        self._needs_drawing = False
        self._last_size: Size = (0, 0)
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # ---- an answer ----

    def begin_answer(self, before: str = "") -> None:
        """Show that the model is at work; `before` is the answer that is continued, if one is."""
        self._answer = self._new_answer(before)
        self._has_text = False
        self._began = time.monotonic()
        self._status = "working"
        self._change()

    def show_progress(self, done: int, total: int) -> None:
        """Show how much of the prompt is processed."""
        if total > 0:
            is_read = done >= total
            self.show_status(
                "working" if is_read else f"reading the prompt {100 * done // total} %"
            )

    def show_status(self, text: str) -> None:
        """Show what is waited for, as long as nothing else comes."""
        if self._answer is not None and not self._has_text:
            self._status = visible(text)
            self._change()

    def show_reasoning(self, text: str) -> None:
        """Show more reasoning, faint and behind a line at its left."""
        if not self._thought_since:
            self._thought_since = time.monotonic()
            if self.shows_reasoning:
                self._final.append(self._faint("thinking"))
        if not self.shows_reasoning:
            self._status = "thinking"
            return
        if self._reasoning is None:
            self._reasoning = self._new_reasoning()
        self._status = None
        self._reasoning.feed(text)
        self._change()

    def show_text(self, text: str) -> None:
        """Show more of the answer."""
        self._status = None
        self._close_reasoning()
        self._has_text = True
        if self._answer is not None:
            self._answer.feed(text)
        self._change()

    def end_answer(self) -> None:
        """Close everything that is open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._answer is None:
            return
        self._status = None
        self._close_reasoning()
        if self._has_text:
            self._final += self._answer.finish(self._size())
        self._answer = None
        self._draw()

    # ---- around answers ----

    def notice(self, text: str) -> None:
        """Show faint lines, wrapped between words."""
        if self.is_quiet:
            return
        width = max(self._size()[0] - 1, 1)
        rows = self._view.hung(Text(self._writable(visible(text)), style="faint"), width)
        self.print_lines([self._view.line(row) for row in rows])

    def show_message(self, text: str) -> None:
        """Show what the user sent, as it stands in the conversation."""
        mark = "> " if self._console.options.ascii_only else f"{MARKER} "
        first, *rest = visible(text).split("\n")
        lines = [Text.assemble((mark, "bold accent"), first), *(Text(f"  {line}") for line in rest)]
        self.print_lines([self._view.line(line) for line in lines])

    def show_error(self, error: ColibriError) -> None:
        """Show the error, its first line in red, wrapped between words."""
        first, *rest = error_lines(error)
        width = max(self._size()[0] - 1, 1)
        rows = [row for line in (Text(first, style="red"), *map(Text, rest))
                for row in self._view.hung(line, width)]  # fmt: skip
        self.print_lines([self._view.line(row) for row in rows])

    def show_answer(self, text: str) -> None:
        """Show an answer of before, whole."""
        answer = self._new_answer("")
        answer.feed(text)
        self.print_lines(answer.finish(self._size()))

    def show_reasoning_of(self, text: str) -> None:
        """Show reasoning of before, whole."""
        reasoning = self._new_reasoning()
        reasoning.feed(text)
        self.print_lines([self._faint("thinking"), *reasoning.finish(self._size()), EMPTY])

    def show_view(self, name: str, figures: Any) -> None:  # noqa: ANN401 - the object of the view
        """Show a view of `chat_views`."""
        width = max(self._size()[0] - 1, 1)
        console = self._console
        is_ascii = console.options.ascii_only
        has_color = console.color_system is not None and not console.no_color and not is_ascii
        from colibri_cli.terminal.chat_views import view_of

        view = view_of(name, figures, width, has_color=has_color)
        lines = self._view.rendered(view, width)
        self.print_lines([Line(self._writable(line.text), line.cells) for line in lines])

    def copy(self, text: str) -> None:
        """Put text into the clipboard, by the code that terminals have for it (OSC 52).

        Raises:
            UsageError: the text is too much for it.
        """
        data = base64.b64encode(text.encode("utf-8", "replace")).decode()
        if len(data) > _MAX_CLIPBOARD:
            raise UsageError(
                f"{len(text):,} characters are too many for the terminal's clipboard",
                hint="/save writes a file",
            )
        self._output.write(f"\x1b]52;c;{data}\x07")

    def print_lines(self, lines: Sequence[Line]) -> None:
        """Make lines permanent, above what is being drawn."""
        self._final += lines
        self._draw()

    # ---- drawing ----

    def _change(self) -> None:
        """Draw soon: at once where that is allowed."""
        self._needs_drawing = True
        if time.monotonic() >= self._not_before:
            self._draw()
        elif self._timer is None:
            self._wait(self._not_before - time.monotonic())

    def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(seconds, 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        is_moving = self._status is not None or self._size() != self._last_size
        if self._needs_drawing or is_moving:
            self._draw()
        elif self._answer is not None:
            self._wait(_TICK_S)

    def _draw(self) -> None:
        began = time.monotonic()
        size = self._last_size = self._size()
        final, self._final = self._final, []
        live: list[Line] = []
        if self._answer is not None:
            if self._reasoning is not None:
                more, live = self._reasoning.lines(size)
                final += more
            elif self._has_text:
                more, live = self._answer.lines(size)
                final += more
            if self._status is not None:
                live = [*live, self._status_line(began)]
        self._region.update(final, live)
        self._needs_drawing = False
        took = time.monotonic() - began
        self._not_before = began + took + max(_MIN_INTERVAL_S, _SHARE * took)
        if self._answer is not None and self._timer is None:
            self._wait(max(_TICK_S, self._not_before - time.monotonic()))

    def _close_reasoning(self) -> None:
        if not self._thought_since:
            return
        seconds = time.monotonic() - self._thought_since
        self._thought_since = 0.0
        if self._reasoning is not None:
            self._final += self._reasoning.finish(self._size())
            self._reasoning = None
        self._final += [self._faint(f"thought for {seconds:.1f} s"), EMPTY]

    def _status_line(self, now: float) -> Line:
        frames = _ASCII_SPINNER if self._console.options.ascii_only else _SPINNER
        frame = frames[int(now / _TICK_S) % len(frames)]
        text = f"{frame} {self._status} · {now - self._began:.0f} s"
        return self._faint(self._writable(text))

    def _faint(self, text: str) -> Line:
        return self._view.line(Text(text, style="faint"))

    def _writable(self, text: str) -> str:
        """Return text of ours in characters the terminal's encoding has."""
        return text.translate(_ASCII) if self._console.options.ascii_only else text

    def _new_answer(self, before: str) -> MarkdownAnswer | RawAnswer:
        # Highlighting and the parser are loaded while the model works, not before the first prompt.
        from colibri_cli.terminal.answer_view import MarkdownAnswer, RawAnswer
        from colibri_cli.terminal.markdown_view import MarkdownView

        if not self.is_markdown:
            return RawAnswer()
        return MarkdownAnswer(MarkdownView(self._console), before)

    def _new_reasoning(self) -> MarkedText:
        from colibri_cli.terminal.answer_view import MarkedText

        return MarkedText(self._view, "faint", "| " if self._console.options.ascii_only else "│ ")
