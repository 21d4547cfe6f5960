"""What the user sees of a chat, and the plainest way to show it.

Answers go to standard output, everything else to standard error. On a terminal both are the same
screen; elsewhere standard output carries the answers and nothing more.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from colibri_cli.errors import UsageError
from colibri_cli.terminal.answer_text import error_lines, visible
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_protocol.errors import ColibriError


class Screen(Protocol):
    """Where a chat is shown."""

    shows_reasoning: bool
    is_markdown: bool
    is_quiet: bool  # notices are left out

    def begin_answer(self, before: str = "") -> None:
        """An answer was asked for; `before` is the one that it continues, if it does."""
        ...

    def show_progress(self, done: int, total: int) -> None:
        """Prompt tokens processed so far."""
        ...

    def show_status(self, text: str) -> None:
        """Show what is waited for, as long as nothing else comes."""
        ...

    def show_reasoning(self, text: str) -> None:
        """Show more reasoning."""
        ...

    def show_text(self, text: str) -> None:
        """Show more of the answer."""
        ...

    def end_answer(self) -> None:
        """The answer is over, complete or not."""
        ...

    def notice(self, text: str) -> None:
        """Say something about the session."""
        ...

    def show_error(self, error: ColibriError) -> None:
        """Say what went wrong and what to do."""
        ...

    def show_message(self, text: str) -> None:
        """Show what the user sent."""
        ...

    def show_answer(self, text: str) -> None:
        """Show an answer of before, whole."""
        ...

    def show_reasoning_of(self, text: str) -> None:
        """Show reasoning of before, whole."""
        ...

    def show_view(self, name: str, figures: Any) -> None:  # noqa: ANN401 - the object of the view
        """Show a view of `terminal.chat_views`."""
        ...

    def copy(self, text: str) -> None:
        """Put text into the terminal's clipboard.

        Raises:
            UsageError: there is no terminal, or the text is too much for one.
        """
        ...


class PlainScreen:
    """Answers as plain text on standard output, the rest as plain lines on standard error."""

    def __init__(self, *, is_quiet: bool, shows_reasoning: bool) -> None:
        self.shows_reasoning = shows_reasoning
        self.is_markdown = False
        self.is_quiet = is_quiet
        self._open_stream: Any = None
        self._thought_since = 0.0

    def begin_answer(self, before: str = "") -> None:
        """Nothing is shown before the answer."""

    def show_progress(self, done: int, total: int) -> None:
        """Plain output has no progress."""

    def show_status(self, text: str) -> None:
        """Plain output does not say what is waited for."""

    def show_reasoning(self, text: str) -> None:
        """Write reasoning to standard error, between lines that say what it is."""
        if not self.shows_reasoning:
            return
        if not self._thought_since:
            self._thought_since = time.monotonic()
            self.notice("thinking")
        self._write(sys.stderr, visible(text))

    def show_text(self, text: str) -> None:
        """Write the answer as it is, except for what would steer a terminal, if it is one."""
        self._close_reasoning()
        self._write(sys.stdout, visible(text) if sys.stdout.isatty() else text)

    def end_answer(self) -> None:
        """End the line."""
        self._close_reasoning()
        self._end_line()

    def notice(self, text: str) -> None:
        """Write a line to standard error unless it should be quiet."""
        if not self.is_quiet:
            self._end_line()
            say(visible(text))

    def show_error(self, error: ColibriError) -> None:
        """Write the error to standard error."""
        self._end_line()
        say("\n".join(error_lines(error)))

    def show_message(self, text: str) -> None:
        """Write it behind a mark to standard error."""
        self.notice("> " + text.replace("\n", "\n  "))

    def show_answer(self, text: str) -> None:
        """Write it to standard error: standard output has the answers of this session."""
        self.notice(text)

    def show_reasoning_of(self, text: str) -> None:
        """Write it to standard error."""
        self.notice(text)

    def show_view(self, name: str, figures: Any) -> None:  # noqa: ANN401 - the object of the view
        """Write it as plain lines to standard error."""
        from colibri_cli.terminal.chat_views import view_as_text

        if sys.stderr.isatty():
            width = max(shutil.get_terminal_size().columns - 1, 1)
            self.notice(view_as_text(name, figures, width))
        else:
            self.notice(view_as_text(name, figures))

    def copy(self, text: str) -> None:
        """Refuse: a plain stream has no clipboard."""
        raise UsageError("only a chat on a terminal can copy", hint="/save writes a file")

    def _close_reasoning(self) -> None:
        if self._thought_since:
            self.notice(f"thought for {time.monotonic() - self._thought_since:.1f} s\n")
            self._thought_since = 0.0

    def _write(self, stream: Any, text: str) -> None:  # noqa: ANN401 - a text stream
        if self._open_stream is not None and self._open_stream is not stream:
            self._end_line()
        stream.write(text)
        stream.flush()
        if text:
            self._open_stream = None if text.endswith("\n") else stream

    def _end_line(self) -> None:
        stream, self._open_stream = self._open_stream, None
        if stream is not None:
            stream.write("\n")
            stream.flush()
