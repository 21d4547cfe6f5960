"""From the bytes of a reply to the parts of an answer: characters, stops, reasoning, calls.

Order of the stages: bytes become text with one incremental decoder, stop texts cut it, reasoning
is split off, calls are found in what is left. So a stop text also works inside reasoning, and
nothing held back is lost. Log-probabilities follow the text they belong to. Pure; no engine.
"""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_cli.backends.base import AnswerEvent, ReasoningDelta, TextDelta
from colibri_cli.chat_formats.base import ThinkingStart
from colibri_cli.chat_formats.reasoning import splitter_for
from colibri_cli.chat_formats.stop import StopFilter
from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallFinished,
    CallStarted,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from colibri_cli.chat_formats.tool_formats.base import ToolParser
    from colibri_protocol.messages import TokenLogprobs


@dataclass(frozen=True, slots=True)
class StopTexts:
    """What ends an answer: the client's texts, and role marks of the family.

    Role marks are always patient: before the first visible character they are deleted.
    """

    wanted: tuple[str, ...] = ()
    is_patient: bool = False
    role_marks: tuple[str, ...] = ()


class AnswerText:
    """Feed bytes, get events; `finish` once at the end.

    Args:
        stops: What ends the answer.
        start: State the text begins in.
        parser: Finds calls; None: they are just text.
        kept_markers: Control texts the parser needs to see.
        only_one_call: The answer is over after the first call.
    """

    def __init__(
        self,
        stops: StopTexts,
        start: ThinkingStart,
        parser: ToolParser | None = None,
        *,
        kept_markers: Collection[str] = (),
        only_one_call: bool = False,
    ) -> None:
        self._stops = stops
        self._start = start
        self._kept_markers = kept_markers
        self._parser = parser
        self._only_one_call = only_one_call
        self._has_call = False
        self.is_call_cut = False  # known after `finish`
        self._tokens: deque[TokenLogprobs] = deque()
        self._ready: list[TokenLogprobs] = []
        self._begin(start)

    def _begin(self, start: ThinkingStart) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._marks = StopFilter(self._stops.role_marks, is_patient=True)
        self._filter = StopFilter(self._stops.wanted, is_patient=self._stops.is_patient)
        self._splitter = splitter_for(start, self._kept_markers)
        self._held = ""  # text that came in and has not come out yet
        self._tokens.clear()

    @property
    def is_thinking(self) -> bool:
        """Whether the next text would be reasoning."""
        return self._splitter.is_thinking

    @property
    def stop_text(self) -> str | None:
        """The client's stop text that was met."""
        return self._filter.matched

    @property
    def is_over(self) -> bool:
        """Whether nothing more is wanted from the engine."""
        return (
            self._marks.matched is not None
            or self._filter.matched is not None
            or (self._only_one_call and self._has_call)
        )

    def feed(self, payload: bytes, tokens: Sequence[TokenLogprobs] = ()) -> list[AnswerEvent]:
        """Take more bytes, and the log-probabilities of the tokens they came from."""
        if self.is_over:
            return []
        text = self._decoder.decode(payload)
        shown = self._filter.feed(self._marks.feed(text))
        split = self._splitter.feed(shown)
        if tokens or self._tokens:
            self._tokens.extend(tokens)
            self._settle_tokens(text, split.reasoning + split.answer, is_answer=bool(split.answer))
        return self._events(split.reasoning, split.answer)

    def finish(self, *, was_cut: bool) -> list[AnswerEvent]:
        """Return what was held back.

        Args:
            was_cut: A limit ended the reply.
        """
        events = self._flushed()
        if self._parser is not None and not (self._only_one_call and self._has_call):
            held = self._parsed(self._parser.finish(was_cut=was_cut))
            self.is_call_cut = was_cut and any(map(_is_loose_end, held))
            events += held
        return events

    def end_thinking(self) -> list[AnswerEvent]:
        """Return what was held back; what is fed next is the answer, from its beginning."""
        events = self._flushed()
        is_marked = self._start is ThinkingStart.CHANNELS
        if self._start is ThinkingStart.HARMONY and self._parser is not None:
            is_marked = True  # the next message says itself whether it is a call
        self._begin(self._start if is_marked else ThinkingStart.CLOSED)
        return events

    def _flushed(self) -> list[AnswerEvent]:
        rest = self._filter.feed(self._marks.feed(self._decoder.decode(b"", final=True)))
        rest += self._filter.feed(self._marks.flush())
        split = self._splitter.feed(rest + self._filter.flush())
        tail = self._splitter.flush()
        answer = split.answer + tail.answer
        if answer:
            self._ready += self._tokens
        self._tokens.clear()
        return self._events(split.reasoning + tail.reasoning, answer)

    def _events(self, reasoning: str, answer: str) -> list[AnswerEvent]:
        events: list[AnswerEvent] = [ReasoningDelta(reasoning)] if reasoning else []
        if not answer:
            return events
        if self._parser is not None:
            return events + self._parsed(self._parser.feed(answer))
        events.append(TextDelta(answer, self._take_ready()))
        return events

    def _parsed(self, found: Sequence[object]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        for event in found:
            if isinstance(event, Text):
                events.append(TextDelta(event.text, self._take_ready()))
                continue
            if isinstance(event, CallStarted):
                self._ready.clear()  # the marker and the call are no text
            events.append(event)  # type: ignore[arg-type]  # every other ToolEvent is one of ours
            if isinstance(event, CallFinished):
                self._has_call = True
                if self._only_one_call:
                    break
        return events

    def _take_ready(self) -> tuple[TokenLogprobs, ...]:
        ready = tuple(self._ready)
        self._ready.clear()
        return ready

    def _settle_tokens(self, text: str, out: str, *, is_answer: bool) -> None:
        """Hand on the tokens whose text came out; drop those whose text became something else.

        Text comes out in the order it came in, less deleted markers, so what has not come out is
        its end: tokens that lie there wait, those before it that `out` does not reach were markers.
        """
        pending = self._held + text
        position = 0 if pending.startswith(out) else pending.rfind(out)
        self._held = pending[position + len(out) :] if out and position >= 0 else ""
        if not out and not self.is_over:
            self._held = pending
            return
        held_bytes = len(self._held.encode()) + len(self._decoder.getstate()[0])
        out_bytes = len(out.encode())
        total = sum(len(token.token_bytes) for token in self._tokens)
        end, start = total - held_bytes, total - held_bytes - out_bytes
        self._sort_tokens(start, end, is_answer=is_answer)
        if self.is_over:
            self._tokens.clear()

    def _sort_tokens(self, start: int, end: int, *, is_answer: bool) -> None:
        """Take the tokens before `end`; keep for the answer those that reach beyond `start`."""
        offset = 0
        while self._tokens and offset < end:
            token = self._tokens.popleft()
            offset += len(token.token_bytes)
            if is_answer and offset > start:
                self._ready.append(token)


def _is_loose_end(event: AnswerEvent) -> bool:
    """Whether an event that a parser held back to the end shows an incomplete call."""
    return isinstance(event, CallAborted) or (
        isinstance(event, TextDelta) and bool(event.text.strip())
    )
