"""One request on its way through the engine: what was asked, and the stream that answers.

Chooses the wire form the engine understands, and turns its error lines into our errors.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Self, TypeVar

from colibri_cli.errors import CapabilityMissing, EmptyPrompt, RequestRefused
from colibri_protocol.errors import (
    BadOption,
    ColibriError,
    ContextLengthExceeded,
    ExpertReadFailed,
    OutOfKvBlocks,
)
from colibri_protocol.limits import ANY_SLOT
from colibri_protocol.messages import (
    Accepted,
    Cancel,
    ErrorCode,
    Finished,
    Progress,
    RequestFailed,
    RequestOptions,
    Segment,
    Stop,
    Submit,
    SubmitExtended,
    TextDelta,
    TokenLogprobs,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number = TypeVar("Number", int, float)
RequestEvent = Accepted | Progress | TokenLogprobs | TextDelta | Finished

# What an engine gets that must be told everything and was told nothing.
_BASELINE_MAX_TOKENS: Final = 1024
_BASELINE_TEMPERATURE: Final = 0.7
_BASELINE_TOP_P: Final = 0.9

_OPTION_NAMES: Final = tuple(entry.name for entry in fields(RequestOptions))
_NO_OPTIONS: Final = RequestOptions()
_OPTION_PROBLEM: Final = re.compile(r"([a-z_]+)(?:\.[a-z_]+)?: (.+)", re.DOTALL)
_BASELINE_OPTIONS: Final = frozenset({"max_tokens", "temperature", "top_p"})
_OPTION_WORDS: Final = {
    "logprobs": Word.LOGPROBS,
    "stop_ids": Word.STOPIDS,
    "grammar": Word.GRAMMAR,
    "draft": Word.DRAFT,
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt with its options; slot -1 leaves the choice of the KV slot to the engine."""

    segments: tuple[Segment, ...]
    options: RequestOptions = field(default_factory=RequestOptions)
    slot: int = ANY_SLOT
    draft_grammar: str | None = None  # baseline only, see `Submit.grammar`


def encode_request(
    request: EngineRequest, request_id: int, caps: frozenset[str]
) -> Submit | SubmitExtended:
    """Return the message that carries the request to an engine with these capabilities.

    Raises:
        CapabilityMissing: an option was asked for that the engine did not announce.
    """
    is_extended = Word.OPTIONS in caps and Word.SEGMENTS in caps
    for name in _given_options(request.options):
        word = _OPTION_WORDS.get(name)
        if (word is not None and word not in caps) or not (
            is_extended or name in _BASELINE_OPTIONS
        ):
            raise CapabilityMissing(
                f"the engine does not support {name}",
                option=name,
                hint=f"leave {name} out, or use an engine that announces it",
            )
    if is_extended:
        slot = request.slot if request.slot >= 0 or Word.SLOTS in caps else 0
        return SubmitExtended(request_id, slot, request.options, request.segments)
    options = request.options
    return Submit(
        id=request_id,
        slot=max(request.slot, 0),
        prompt="".join(segment.text for segment in request.segments).encode(),
        max_tokens=_or_default(options.max_tokens, _BASELINE_MAX_TOKENS),
        temperature=_or_default(options.temperature, _BASELINE_TEMPERATURE),
        top_p=_or_default(options.top_p, _BASELINE_TOP_P),
        grammar=None if request.draft_grammar is None else request.draft_grammar.encode(),
    )


def error_of(failure: RequestFailed, model: Mapping[str, object] | None = None) -> ColibriError:
    """Return the error an ERROR line of an engine with this model stands for."""
    if failure.code == ErrorCode.CONTEXT_EXCEEDED:
        context = (model or {}).get("context_length")
        return ContextLengthExceeded.from_detail(
            failure.detail, context if isinstance(context, int) else None
        )
    if failure.code == ErrorCode.OUT_OF_MEMORY:
        return OutOfKvBlocks()
    if failure.code == ErrorCode.READ_FAILED:
        return ExpertReadFailed.from_detail(failure.detail)
    if failure.code == ErrorCode.EMPTY_PROMPT:
        return EmptyPrompt("the prompt is empty", hint="write at least one character")
    option = _OPTION_PROBLEM.fullmatch(failure.detail)
    if failure.code == ErrorCode.BAD_REQUEST and option and option[1] in _OPTION_NAMES:
        return BadOption(option[1], option[2])
    text = f"{failure.code} {failure.detail}".strip() or "no reason given"
    return RequestRefused(f"the engine refused the request: {text}")


class RequestStream:
    """Events of one request, in order; ends after `Finished`, raises what made it fail.

    Leaving the stream early (`aclose`, or the `async with` block) cancels the request. `ended` is
    resolved when the engine has let go of the request, which for a cancelled one is later;
    `is_finished` then tells whether it did all that was asked.
    """

    def __init__(self, request_id: int, send: Callable[[Stop | Cancel], None]) -> None:
        self.id = request_id
        self._events: deque[RequestEvent | Exception] = deque()
        self._filled: asyncio.Future[None] | None = None  # while somebody waits for an event
        self._send = send
        self.is_done = False
        self.is_finished = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, event: RequestEvent | ColibriError) -> None:
        """Add what the engine said about this request."""
        is_last = isinstance(event, Finished | ColibriError)
        if is_last and not self.ended.done():
            self.ended.set_result(None)
        if not self.is_done:
            self.is_done = is_last
            self.is_finished = isinstance(event, Finished)
            self._add(event)

    def stop(self) -> None:
        """Ask for a normal end now; `Finished` follows."""
        if not self.is_done:
            self._send(Stop(self.id))

    def cancel(self) -> None:
        """Abort: nothing more comes out of this stream."""
        if not self.is_done:
            self.is_done = True
            self._send(Cancel(self.id))

    def abort(self, error: Exception) -> None:
        """Cancel, and raise `error` where the events are awaited."""
        self.cancel()
        self._add(error)

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> RequestEvent:
        while not self._events:
            if self.is_done:
                raise StopAsyncIteration
            self._filled = asyncio.get_running_loop().create_future()
            try:
                await self._filled
            finally:
                self._filled = None
        event = self._events.popleft()
        if isinstance(event, Exception):
            raise event
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the stream; an unfinished request is cancelled."""
        self.cancel()

    def _add(self, event: RequestEvent | Exception) -> None:
        self._events.append(event)
        if self._filled is not None and not self._filled.done():
            self._filled.set_result(None)


def _given_options(options: RequestOptions) -> list[str]:
    return [n for n in _OPTION_NAMES if getattr(options, n) != getattr(_NO_OPTIONS, n)]


def _or_default(value: Number | None, default: Number) -> Number:
    return default if value is None else value
