"""Writing a prompt down as control and text segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable

_BREAK = "\u2060"  # word joiner: invisible, and no control token holds one


class PromptWriter:
    """Collects a prompt; neighbours of one kind become one segment."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def control(self, text: str) -> None:
        """Add our own text, in which control tokens count."""
        self._add(SegmentKind.CONTROL, text)

    def text(self, text: str) -> None:
        """Add text from outside, which can never be a control token."""
        self._add(SegmentKind.TEXT, text)

    def segments(self) -> tuple[Segment, ...]:
        """Return the prompt so far."""
        return tuple(self._segments)

    def _add(self, kind: SegmentKind, text: str) -> None:
        if not text:
            return
        if self._segments and self._segments[-1].kind is kind:
            text = self._segments.pop().text + text
        self._segments.append(Segment(kind, text))


def neutralised(segments: Iterable[Segment], control_tokens: Iterable[str]) -> str:
    """Return a prompt as one text in which control tokens from outside are broken up.

    For engines that know no segments and find control tokens anywhere. A marker that text spells
    out, alone or together with its neighbours, gets an invisible character inside.

    Args:
        segments: The prompt.
        control_tokens: Texts such an engine reads as control tokens.
    """
    parts = list(segments)
    text = "".join(part.text for part in parts)
    breaks: set[int] = set()
    for token in {token for token in control_tokens if len(token) > 1}:
        start = text.find(token)
        while start >= 0:
            if (place := _place_in_text(parts, start, start + len(token))) is not None:
                breaks.add(place)
            start = text.find(token, start + 1)
    pieces, last = [], 0
    for place in sorted(breaks):
        pieces += [text[last:place], _BREAK]
        last = place
    return "".join([*pieces, text[last:]])


def _place_in_text(parts: list[Segment], start: int, end: int) -> int | None:
    """Return where to break the span: beside a character of it that came from outside."""
    offset = 0
    for part in parts:
        first, last = max(start, offset), min(end, offset + len(part.text))
        if part.kind is SegmentKind.TEXT and first < last:
            return first if first > start else first + 1
        offset += len(part.text)
    return None
