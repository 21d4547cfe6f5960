"""An answer of the native engine while it is made: one engine request, or two in a row.

A second request continues the first one's text under other rules: when reasoning has used up its
budget, the prompt grows by it and by its closing marker; when the answer is to follow a grammar,
reasoning runs free and the grammar begins after it. The engine still holds what they share.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from colibri_cli.backends import base
from colibri_cli.supervisor.requests import EngineRequest
from colibri_protocol import messages
from colibri_protocol.errors import ContextLengthExceeded
from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from colibri_cli.backends.answer_text import AnswerText
    from colibri_cli.supervisor.requests import RequestEvent, RequestStream
    from colibri_protocol.messages import Grammar

    Submit = Callable[[EngineRequest], RequestStream]


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """What is done when reasoning ends, or has to.

    Args:
        is_open: The prompt opened reasoning; otherwise the model may.
        next_slot: Returns the slot of the continuation when that is sent; -1 leaves it to the
            engine, which knows where the text is.
        budget: Tokens of reasoning after which it is ended; None without limit.
        grammar: Constraint on what follows it, or None.
        splits: The grammar knows no reasoning: it is applied only once that has ended.
        open_marker: What the model writes to begin reasoning.
        close_marker: What ends it and begins the answer.
        end_marker: The first part of that; empty: it has only one.
        gap: What stands between the end of reasoning and the answer.
        answer_marker: What begins an answer that had no reasoning before it.
    """

    is_open: bool
    next_slot: Callable[[], int]
    budget: int | None = None
    grammar: Grammar | None = None
    splits: bool = False
    open_marker: str = "<think>"
    close_marker: str = "</think>"
    end_marker: str = ""
    gap: str = "\n\n"
    answer_marker: str = ""

    def segments(self, raw: str) -> tuple[Segment, ...]:
        """Return what the prompt grows by: the reasoning in `raw`, closed."""
        before, opened, reasoning = raw.partition(self.open_marker)
        if not opened:
            if not self.is_open:  # there was no reasoning
                begin = Segment(SegmentKind.CONTROL, self.answer_marker)
                return (begin,) if self.answer_marker else ()
            before, reasoning = "", raw
        parts = (
            Segment(SegmentKind.CONTROL, before + opened),
            Segment(SegmentKind.TEXT, reasoning.partition(self.end_marker or self.close_marker)[0]),
            Segment(SegmentKind.CONTROL, self.close_marker + self.gap),
        )
        return tuple(part for part in parts if part.text)


class StreamedAnswer:
    """An answer of the native engine.

    Args:
        submit: Sends a request.
        request: The first one.
        text: Makes events of bytes.
        plan: For answers that may begin with reasoning; None: nothing is ever continued.
    """

    def __init__(
        self,
        submit: Submit,
        request: EngineRequest,
        text: AnswerText,
        plan: ThinkingPlan | None = None,
    ) -> None:
        self._submit = submit
        self._request = request
        self._text = text
        self._plan = plan
        self._next_slot = plan.next_slot if plan is not None else None
        self._sequel: EngineRequest | None = None
        self._raw = bytearray()
        self._tokens: list[messages.TokenLogprobs] = []
        self._num_seen = 0  # tokens of the present request
        self._num_before = 0  # of the one before
        self._num_reasoning = 0
        self._accepted: messages.Accepted | None = None
        self._submitted = time.monotonic()
        self._first_token_s: float | None = None
        self._events: deque[base.AnswerEvent] = deque()
        self._is_complete = False  # everything was told
        self._is_over = False  # nobody listens any more
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._stream = self._begin(request)

    def stop(self) -> None:
        """Ask for a normal end now."""
        self._plan = self._sequel = None
        self._stream.stop()

    def abort(self, error: Exception) -> None:
        """Cancel; whoever iterates gets `error`."""
        self._stream.abort(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        await self._stream.aclose()
        self._note_end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> base.AnswerEvent:
        while not self._events:
            if self._is_complete:
                raise StopAsyncIteration
            await self._advance()
        return self._events.popleft()

    def _begin(self, request: EngineRequest) -> RequestStream:
        stream = self._submit(request)
        stream.ended.add_done_callback(lambda _: self._note_end())
        return stream

    def _note_end(self) -> None:
        """Resolve `ended` once the engine is done and nothing more will be asked of it."""
        may_go_on = self._plan is not None or self._sequel is not None
        if not self._stream.ended.done() or self.ended.done() or (may_go_on and not self._is_over):
            return
        self.ended.set_result(self._stream.is_finished)

    async def _advance(self) -> None:
        """Wait for the next event of the engine, or begin the second request."""
        try:
            self._events += self._made_of(await anext(self._stream))
        except StopAsyncIteration:
            if self._sequel is None:
                self._is_complete = True
                self._plan = None
                self._note_end()
                return
            assert self._next_slot is not None, "only a plan makes a sequel"
            self._request, self._sequel = replace(self._sequel, slot=self._next_slot()), None
            self._num_before, self._num_seen = self._num_before + self._num_seen, 0
            self._stream = self._begin(self._request)
        except ContextLengthExceeded:
            if self._num_before == 0:
                raise
            self._is_complete = True  # no room for more than the reasoning
            self._events.append(self._completed("length", None))

    def _made_of(self, event: RequestEvent) -> list[base.AnswerEvent]:
        if isinstance(event, messages.TextDelta):
            return self._text_events(event.payload)
        if isinstance(event, messages.TokenLogprobs):
            self._tokens.append(event)
            return []
        if isinstance(event, messages.Finished):
            return self._end_events(event)
        if isinstance(event, messages.Progress):
            return [] if self._num_before else [base.PrefillProgress(event.done, event.total)]
        first = self._accepted = self._accepted or event
        return [base.Started(first.prompt_tokens, first.reused_tokens, event.slot)]

    def _text_events(self, payload: bytes) -> list[base.AnswerEvent]:
        if self._sequel is not None:
            return []
        if self._first_token_s is None and payload:
            self._first_token_s = time.monotonic() - self._submitted
        num_tokens = len(self._tokens) or 1
        was_thinking = self._text.is_thinking
        events = self._text.feed(payload, self._tokens)
        self._tokens = []
        self._num_seen += num_tokens
        if was_thinking or self._text.is_thinking:
            self._num_reasoning += num_tokens
        if self._text.is_over:
            self._plan = None
            self._stream.stop()
        elif self._plan is not None:
            self._raw += payload
            events = self._planned(self._plan, events)
        return events

    def _planned(
        self, plan: ThinkingPlan, events: list[base.AnswerEvent]
    ) -> list[base.AnswerEvent]:
        """Interrupt the reply where reasoning ends or has to."""
        is_thinking = self._text.is_thinking
        has_ended = not is_thinking and (self._num_reasoning > 0 or _has_answer(events))
        if is_thinking and plan.budget is not None and self._num_reasoning >= plan.budget:
            return [*events, *(self._interrupt(plan) or ())]
        if has_ended and plan.splits:
            return [*_reasoning_of(events), *(self._interrupt(plan) or ())]
        if has_ended:
            self._plan = None
        return _reasoning_of(events) if plan.splits else events

    def _interrupt(self, plan: ThinkingPlan) -> list[base.AnswerEvent] | None:
        """End this request; the next one continues it under the other rules.

        None: no tokens are left for it.
        """
        self._plan = None
        options = self._request.options
        if options.max_tokens is not None:
            left = options.max_tokens - self._num_seen
            if left <= 0:
                return None
            options = replace(options, max_tokens=left)
        grown = plan.segments(self._raw.decode("utf-8", "ignore"))
        self._sequel = EngineRequest(
            segments=(*self._request.segments, *grown),
            options=replace(options, grammar=plan.grammar),
        )
        self._stream.stop()
        return _reasoning_of(self._text.end_thinking())

    def _end_events(self, finished: messages.Finished) -> list[base.AnswerEvent]:
        is_limited = finished.limited or finished.finish is messages.FinishReason.LENGTH
        if self._sequel is not None:
            return []
        if self._plan is not None and self._plan.splits and not is_limited:
            continued = self._interrupt(self._plan)  # it ended without an answer
            if continued is not None:
                return continued
        finish = "length" if is_limited else "stop"
        if finished.finish is not None:
            finish = finished.finish.value
        if self._text.is_over:
            finish = "stop"
        events = self._text.finish(was_cut=finish == "length")
        return [*events, self._completed(finish, finished)]

    def _completed(self, finish: str, finished: messages.Finished | None) -> base.Completed:
        first = self._accepted
        last = finished or messages.Finished(0, 0, 0.0, 0.0, 0.0)
        is_sequel = first is not None and self._num_before > 0
        return base.Completed(
            finish=finish,
            prompt_tokens=first.prompt_tokens if is_sequel and first else last.prompt_tokens,
            completion_tokens=self._num_before + last.completion_tokens,
            reused_tokens=(first.reused_tokens or 0) if is_sequel and first else last.reused_tokens,
            tokens_per_second=last.tokens_per_second,
            hit_percent=last.hit_percent,
            rss_gb=last.rss_gb,
            first_token_s=self._first_token_s,
            total_s=time.monotonic() - self._submitted,
            stop_text=self._text.stop_text,
            reasoning_tokens=self._num_reasoning,
            is_call_cut=self._text.is_call_cut,
        )


def _reasoning_of(events: list[base.AnswerEvent]) -> list[base.AnswerEvent]:
    return [event for event in events if isinstance(event, base.ReasoningDelta)]


def _has_answer(events: list[base.AnswerEvent]) -> bool:
    return any(isinstance(e, base.TextDelta) and e.text.strip() for e in events)
