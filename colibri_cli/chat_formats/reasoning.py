"""Splitting reasoning from the answer while text streams in.

Families with `<think>`: reasoning runs until the first `</think>`; after that nothing toggles
back, and every further marker is deleted. Inkling: marked parts, each of which is one or the
other; gpt-oss likewise (see `harmony`). A marker split over pieces is held back until it is
complete.

The split knows nothing of stop texts: those are matched before it, on the raw text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from colibri_cli.chat_formats.base import SplitText, ThinkingStart
from colibri_cli.chat_formats.harmony import CALL_HEAD, HarmonySplitter
from colibri_cli.chat_formats.markers import first_marker, held_length

if TYPE_CHECKING:
    from collections.abc import Collection

OPEN_MARKER: Final = "<think>"
CLOSE_MARKER: Final = "</think>"
_MARKERS: Final = (OPEN_MARKER, CLOSE_MARKER)

THINKING_CHANNEL: Final = "<|content_thinking|>"
TEXT_CHANNEL: Final = "<|content_text|>"
CALL_CHANNEL: Final = "<|content_invoke_tool_json|>"
_CHANNEL_MARKER: Final = re.compile(
    r"<\|(?:content_[a-z_]+|end_message|message_[a-z_]+|audio_end|unused_[0-9]+)\|>"
)
_MARKER_START: Final = re.compile(r"<(?:\|(?:[a-z_0-9]{0,60}\|?)?)?\Z")
_MARKER_WORDS: Final = ("content_", "message_", "unused_", "end_message|>", "audio_end|>")
_AUTHOR: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


class Splitter(Protocol):
    """Feed raw text, get reasoning and answer; call `flush` once at the end."""

    @property
    def is_thinking(self) -> bool:
        """Whether the next text would be reasoning."""
        ...

    @property
    def held(self) -> str:
        """Text held back because it may become a marker."""
        ...

    def feed(self, text: str) -> SplitText:
        """Take the next piece of raw text."""
        ...

    def flush(self) -> SplitText:
        """Return what was held back; an incomplete marker is ordinary text."""
        ...


def splitter_for(start: ThinkingStart, kept_markers: Collection[str] = ()) -> Splitter:
    """Return the splitter for a text.

    Args:
        start: The state the text begins in.
        kept_markers: Control texts to leave in the answer, for a tool parser to find.
    """
    if start is ThinkingStart.CHANNELS:
        return ChannelSplitter(keeps_calls=CALL_CHANNEL in kept_markers)
    if start is ThinkingStart.HARMONY:
        return HarmonySplitter(keeps_calls=CALL_HEAD in kept_markers)
    return ReasoningSplitter(start)


class ReasoningSplitter:
    """The split at `</think>`."""

    def __init__(self, start: ThinkingStart) -> None:
        self._held = ""
        self._passes_through = start is ThinkingStart.UNKNOWN_TO_MODEL
        self._is_thinking = start is ThinkingStart.OPEN
        self._may_open = start is ThinkingStart.BY_MODEL

    @property
    def is_thinking(self) -> bool:
        """Whether the next text would be reasoning."""
        return self._is_thinking

    @property
    def held(self) -> str:
        """Text held back because it may become a marker."""
        return self._held

    def feed(self, text: str) -> SplitText:
        """Take the next piece of raw text."""
        if self._passes_through:
            return SplitText("", text)
        return self._drain(self._held + text, is_last=False)

    def flush(self) -> SplitText:
        """Return what was held back; an incomplete marker is ordinary text."""
        return self._drain(self._held, is_last=True)

    def _drain(self, pending: str, *, is_last: bool) -> SplitText:
        reasoning: list[str] = []
        answer: list[str] = []
        while (found := first_marker(pending, _MARKERS)) is not None:
            offset, marker = found
            self._emit(pending[:offset], reasoning, answer)
            self._apply(marker)
            pending = pending[offset + len(marker) :]
        held = 0 if is_last else held_length(pending, _MARKERS)
        kept = len(pending) - held
        self._emit(pending[:kept], reasoning, answer)
        self._held = pending[kept:]
        return SplitText("".join(reasoning), "".join(answer))

    def _emit(self, text: str, reasoning: list[str], answer: list[str]) -> None:
        if not text:
            return
        if text.strip():
            self._may_open = False  # the answer has begun: a later <think> is only deleted
        (reasoning if self._is_thinking else answer).append(text)

    def _apply(self, marker: str) -> None:
        if marker == CLOSE_MARKER:
            self._is_thinking = False
        elif self._may_open:
            self._is_thinking = True
        self._may_open = False


class ChannelSplitter:
    """The split of Inkling: starts in the answer, each part's mark names its side.

    Every other control marker is deleted. With `keeps_calls` the marker of a call stays in the
    answer, and the name that stands before it (its author, which the call repeats) goes.
    """

    def __init__(self, *, keeps_calls: bool = False) -> None:
        self._keeps_calls = keeps_calls
        self._may_be_author = keeps_calls
        self._held = ""
        self._is_thinking = False

    @property
    def is_thinking(self) -> bool:
        """Whether the next text would be reasoning."""
        return self._is_thinking

    @property
    def held(self) -> str:
        """Text held back because it may become a marker."""
        return self._held

    def feed(self, text: str) -> SplitText:
        """Take the next piece of raw text."""
        return self._drain(self._held + text, is_last=False)

    def flush(self) -> SplitText:
        """Return what was held back; an incomplete marker is ordinary text."""
        return self._drain(self._held, is_last=True)

    def _drain(self, pending: str, *, is_last: bool) -> SplitText:
        sides: tuple[list[str], list[str]] = ([], [])
        place = 0
        for match in _CHANNEL_MARKER.finditer(pending):
            before = pending[place : match.start()]
            is_author = self._may_be_author and _AUTHOR.match(before) is not None
            if not (is_author and match.group() == CALL_CHANNEL):
                self._emit(before, sides)
            self._apply(match.group(), sides)
            place = match.end()
        rest = pending[place:]
        kept = len(rest) if is_last else self._length_to_emit(rest)
        self._emit(rest[:kept], sides)
        self._held = rest[kept:]
        return SplitText("".join(sides[0]), "".join(sides[1]))

    def _length_to_emit(self, rest: str) -> int:
        start = _MARKER_START.search(rest)
        kept = len(rest)
        if start is not None and _may_become_marker(start.group()[2:]):
            kept = start.start()
        if self._may_be_author and (kept == 0 or _AUTHOR.match(rest[:kept])):
            return 0  # a name, if the marker of a call comes next
        return kept

    def _emit(self, text: str, sides: tuple[list[str], list[str]]) -> None:
        if text:
            self._may_be_author = False
            sides[0 if self._is_thinking else 1].append(text)

    def _apply(self, marker: str, sides: tuple[list[str], list[str]]) -> None:
        if marker == THINKING_CHANNEL:
            self._is_thinking = True
        elif marker in {TEXT_CHANNEL, CALL_CHANNEL}:
            self._is_thinking = False
        if marker == CALL_CHANNEL and self._keeps_calls:
            sides[1].append(marker)
        self._may_be_author = self._keeps_calls and marker.startswith("<|message_")


def _may_become_marker(word: str) -> bool:
    """Return whether what follows `<|` can still grow into a marker."""
    return any(word.startswith(known) or known.startswith(word) for known in _MARKER_WORDS)
