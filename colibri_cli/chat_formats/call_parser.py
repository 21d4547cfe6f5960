"""The frame of a tool parser: text up to an opening marker, then a box that a reader reads.

What a syntax writes inside the box is its reader's business. The frame holds back as little text
as possible, gives text back when a box turns out to be prose, and keeps calls of functions nobody
declared until their box is closed.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from colibri_cli.chat_formats.markers import held_length
from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallFinished,
    CallStarted,
    Text,
    ToolEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from colibri_cli.chat_formats.tool_formats.base import ToolParser

logger = logging.getLogger(__name__)


class Verdict(Enum):
    """What a reader knows about its box."""

    READING = "reading"  # not complete yet
    DONE = "done"  # complete
    TEXT = "text"  # no box: what was read since the last call is text
    DROPPED = "dropped"  # a box without a call: it is left out
    BROKEN = "broken"  # the call that was begun cannot be completed


_ENDINGS: Final = {
    Verdict.READING: "it is no call",
    Verdict.DONE: "what was there is complete",
    Verdict.TEXT: "it is kept as text",
    Verdict.DROPPED: "it is left out",
    Verdict.BROKEN: "it is no call",
}


class BoxReader(Protocol):
    """Reads what follows an opening marker."""

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Return how many characters were used, what they gave and what the box is by now.

        Stops after the end of each call. What was not used comes again, with more behind it.
        """
        ...

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """Return the last events and the verdict; `unread` is what feed left over."""
        ...


class OutsideText:
    """The answer outside calls: leading white space goes; trailing goes where there are calls."""

    def __init__(self) -> None:
        self._space = ""
        self._has_begun = False

    def add(self, text: str) -> str:
        """Return what can be shown now."""
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = bool(text)
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        return shown

    def end(self, *, has_calls: bool) -> str:
        """Return the rest."""
        return "" if has_calls else self._space


class CallParser:
    """A tool parser.

    Args:
        opener: The text that opens a box.
        make_reader: Makes the reader of a box; told whether the box began with the opener.
        declared: Names of the functions that were offered.
        opens_answer: An answer that begins with this text is a box without an opener.
    """

    def __init__(
        self,
        opener: str,
        make_reader: Callable[[bool], BoxReader],
        declared: Collection[str],
        opens_answer: str = "",
    ) -> None:
        self._opener = opener
        self._make_reader = make_reader
        self._declared = frozenset(declared)
        self._opens_answer = opens_answer
        self._pending = ""
        self._outside = OutsideText()
        self._reader: BoxReader | None = None
        self._raw: list[str] = []  # of the box, since the last complete call
        self._withheld: list[ToolEvent] | None = None  # of a call nobody declared
        self._is_started = False
        self._has_calls = False
        self._events: list[ToolEvent] = []

    def feed(self, text: str) -> list[ToolEvent]:
        """Take the next piece of the answer."""
        self._pending += text
        while self._advance():
            pass
        return self._taken()

    def finish(self, *, was_cut: bool) -> list[ToolEvent]:
        """Return what was held back."""
        if self._reader is not None:
            events, verdict = self._reader.finish(self._pending, was_cut=was_cut)
            self._raw.append(self._pending)
            self._pending = ""
            self._take(events)
            logger.warning("an answer ended inside a tool call: %s", _ENDINGS[verdict])
            final = Verdict.BROKEN if verdict is Verdict.READING else verdict
            self._close(final, is_kept=not was_cut)
        self._text(self._pending)
        self._pending = ""
        rest = self._outside.end(has_calls=self._has_calls)
        if rest:
            self._events.append(Text(rest))
        return self._taken()

    def _advance(self) -> bool:
        """Do one step; returns whether another may be possible."""
        if self._reader is None:
            return self._find_box()
        used, events, verdict = self._reader.feed(self._pending)
        self._raw.append(self._pending[:used])
        self._pending = self._pending[used:]
        self._take(events)
        if verdict is not Verdict.READING:
            self._close(verdict)
            return bool(self._pending)
        return used > 0 and bool(self._pending)

    def _find_box(self) -> bool:
        if self._opens_answer:
            self._pending = self._pending.lstrip()
            if not self._pending:
                return False
            opens = self._pending.startswith(self._opens_answer)
            self._opens_answer = ""
            if opens:
                self._reader = self._make_reader(False)
                return True
        before, opener, after = self._pending.partition(self._opener)
        if opener:
            self._text(before)
            self._pending = after
            self._raw.append(opener)
            self._reader = self._make_reader(True)
            return True
        kept = len(before) - held_length(before, (self._opener,))
        self._text(before[:kept])
        self._pending = before[kept:]
        return False

    def _take(self, events: list[ToolEvent]) -> None:
        for event in events:
            if isinstance(event, CallStarted):
                self._is_started = True
                if event.name not in self._declared:
                    self._withheld = []
            if self._withheld is None:
                self._events.append(event)
                self._has_calls = True
            else:
                self._withheld.append(event)
            if isinstance(event, CallFinished):
                if self._withheld is not None:
                    self._events += self._withheld
                    self._withheld = None
                    self._has_calls = True
                self._is_started = False
                self._raw.clear()

    def _close(self, verdict: Verdict, *, is_kept: bool = True) -> None:
        """End the box.

        Args:
            verdict: What it was.
            is_kept: What is no call is shown as text. A call that a limit cut is not: the limit is
                the reason the client is told.
        """
        raw = "".join(self._raw)
        is_shown = self._is_started and self._withheld is None
        if is_shown:
            self._events.append(CallAborted(raw))
            if is_kept:
                self._text(raw)
        elif verdict in {Verdict.TEXT, Verdict.BROKEN}:
            self._text(raw)
        self._reader = None
        self._raw.clear()
        self._withheld = None
        self._is_started = False

    def _text(self, text: str) -> None:
        shown = self._outside.add(text) if text else ""
        if shown:
            self._events.append(Text(shown))

    def _taken(self) -> list[ToolEvent]:
        events, self._events = self._events, []
        return events


class FirstCallOnly:
    """A parser of which only the first complete call, and the text, is passed on."""

    def __init__(self, parser: ToolParser) -> None:
        self._parser = parser
        self._has_call = False

    def feed(self, text: str) -> list[ToolEvent]:
        """Take the next piece of the answer."""
        return self._passed(self._parser.feed(text))

    def finish(self, *, was_cut: bool) -> list[ToolEvent]:
        """Return what was held back."""
        return self._passed(self._parser.finish(was_cut=was_cut))

    def _passed(self, events: list[ToolEvent]) -> list[ToolEvent]:
        passed: list[ToolEvent] = []
        for event in events:
            if self._has_call and not isinstance(event, Text):
                continue
            passed.append(event)
            self._has_call = self._has_call or isinstance(event, CallFinished)
        return passed


def limited(parser: ToolParser, *, parallel: bool) -> ToolParser:
    """Return the parser, or one that passes on only the first call."""
    return parser if parallel else FirstCallOnly(parser)
