"""What every dialect takes and gives.

A dialect module offers `parse_request`, `render_whole`, `open_stream` and `render_error`; a route
joins them with a running turn. Everything here is pure: bodies in, bytes out.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    TokenLogprob,
    ToolArguments,
    ToolCallAborted,
    ToolCallStarted,
    TurnAccepted,
    TurnCompleted,
    TurnEvent,
    TurnRequest,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from colibri_cli.gateway.http_types import Response
    from colibri_cli.gateway.services import ServeSettings

MAX_JSON_DEPTH: Final = 128  # the deepest JSON schemas of tools have about twenty levels, 3 each

RenderT = TypeVar("RenderT")
# What a call, and a token with its log-probability, take in an answer besides their texts.
_CALL_BYTES: Final = 160
_TOKEN_BYTES: Final = 64
_ENCODER: Final = json.JSONEncoder(  # one for all: making it costs more than most texts
    ensure_ascii=False, separators=(",", ":"), allow_nan=False
)


@dataclass(frozen=True, slots=True)
class Served:
    """What a request is checked against.

    Args:
        settings: Effective settings of the server.
        words: Extended forms the engine announced; empty for an engine of the baseline.
        family: Model family, as the engine or its model directory says.
        context_length: Tokens a context holds; None where unknown.
        can_think: The chat format has a switch for reasoning.
    """

    settings: ServeSettings
    words: frozenset[str] = frozenset()
    family: str = "unknown"
    context_length: int | None = None
    can_think: bool = False


@dataclass(frozen=True, slots=True)
class ParsedRequest(Generic[RenderT]):
    """A checked request body.

    Args:
        turn: What shall be generated.
        is_stream: The answer is wanted as an event stream.
        render: What the dialect must remember to write the answer.
    """

    turn: TurnRequest
    is_stream: bool
    render: RenderT


class StreamRenderer(Protocol):
    """Writes one turn as an event stream; every method returns complete frames, maybe none.

    The order is `begin`, then `feed` for every event and `keepalive` in silences, then `end` after
    the last event, or `fail` once if the turn broke after it was accepted.
    """

    def begin(self) -> list[bytes]:
        """Return what comes before any event: at least one frame, be it a comment."""
        ...

    def feed(self, event: TurnEvent) -> list[bytes]:
        """Return what an event adds."""
        ...

    def keepalive(self) -> list[bytes]:
        """Return a sign of life that no client takes for a part of the answer."""
        ...

    def fail(self, error: HttpError) -> list[bytes]:
        """Return the error event; the connection is closed after it."""
        ...

    def end(self) -> list[bytes]:
        """Return what comes after the last event."""
        ...


class Dialect(Protocol[RenderT]):
    """The functions of a dialect module."""

    def parse_request(
        self, body: Mapping[str, Any], served: Served, headers: Mapping[str, str]
    ) -> ParsedRequest[RenderT]:
        """Check a body and return what it asks for.

        Raises:
            HttpError: 400 naming the field, 404 for a model that is not served.
        """
        ...

    def render_whole(self, parsed: ParsedRequest[RenderT], answer: WholeAnswer) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        ...

    def open_stream(self, parsed: ParsedRequest[RenderT]) -> StreamRenderer:
        """Return the writer of a streamed answer."""
        ...

    def render_error(self, error: HttpError, request_id: str) -> Response:
        """Return an error in the dialect's envelope."""
        ...


@dataclass(slots=True)
class WholeCall:
    """A complete tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class WholeChoice:
    """Everything one choice said, and how it ended."""

    reasoning: str = ""
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[WholeCall] = field(default_factory=list)
    completed: TurnCompleted | None = None

    @property
    def num_bytes(self) -> int:
        """About how much there is to write down."""
        calls = sum(_CALL_BYTES + len(call.arguments) for call in self.calls)
        tokens = sum(_TOKEN_BYTES * (1 + len(token.top)) for token in self.logprobs)
        return len(self.reasoning) + len(self.text) + calls + tokens


@dataclass(slots=True)
class WholeAnswer:
    """All choices of a turn, in order of their index."""

    choices: list[WholeChoice]
    accepted: TurnAccepted | None = None

    @property
    def usage(self) -> Usage:
        """Tokens of the whole turn: the prompt counts once, completions add up."""
        return total_usage([c.completed.usage for c in self.choices if c.completed is not None])

    @property
    def num_bytes(self) -> int:
        """About how much there is to write down."""
        return sum(choice.num_bytes for choice in self.choices)


def total_usage(usages: list[Usage]) -> Usage:
    """Return the tokens of several choices of one prompt together."""
    usages = usages or [Usage(0, 0)]
    return Usage(
        prompt_tokens=max(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reused_tokens=max(usage.reused_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


class AnswerBuilder:
    """Gathers the events of a turn into a whole answer."""

    def __init__(self, num_choices: int = 1) -> None:
        self._accepted: TurnAccepted | None = None
        self._choices = [WholeChoice() for _ in range(num_choices)]
        self._text: list[list[str]] = [[] for _ in range(num_choices)]
        self._reasoning: list[list[str]] = [[] for _ in range(num_choices)]
        self._calls: list[dict[int, WholeCall]] = [{} for _ in range(num_choices)]
        self._arguments: list[dict[int, list[str]]] = [{} for _ in range(num_choices)]

    def feed(self, event: TurnEvent) -> None:
        """Take the next event."""
        if isinstance(event, TextPiece):
            self._text[event.choice].append(event.text)
            self._choices[event.choice].logprobs.extend(event.logprobs)
        elif isinstance(event, ReasoningPiece):
            self._reasoning[event.choice].append(event.text)
        elif isinstance(event, ToolCallStarted):
            self._calls[event.choice][event.index] = WholeCall(event.id, event.name)
            self._arguments[event.choice][event.index] = []
        elif isinstance(event, ToolArguments):
            self._arguments[event.choice][event.index].append(event.text)
        elif isinstance(event, ToolCallAborted):
            self._calls[event.choice].pop(event.index, None)
        elif isinstance(event, TurnCompleted):
            self._choices[event.choice].completed = event
        elif isinstance(event, TurnAccepted):
            self._accepted = event

    def finish(self) -> WholeAnswer:
        """Return the answer; every choice must be complete."""
        for index, choice in enumerate(self._choices):
            assert choice.completed is not None, f"choice {index} did not end"
            choice.text = "".join(self._text[index])
            choice.reasoning = "".join(self._reasoning[index])
            for number, call in sorted(self._calls[index].items()):
                call.arguments = "".join(self._arguments[index][number]) or "{}"
                choice.calls.append(call)
        return WholeAnswer(self._choices, self._accepted)


async def collect(events: AsyncIterator[TurnEvent], num_choices: int = 1) -> WholeAnswer:
    """Run a turn to its end and return the whole answer."""
    builder = AnswerBuilder(num_choices)
    async for event in events:
        builder.feed(event)
    return builder.finish()


def parse_object(
    body: bytes | str, what: str = "the request body", *, may_repeat: bool = False
) -> dict[str, Any]:
    """Return a JSON object.

    Args:
        body: Its text.
        what: How errors call it.
        may_repeat: Of a name that stands twice in an object the later value counts, as models
            write it now and then; otherwise one of two wishes would be ignored.

    Raises:
        HttpError: 400 for anything else, for texts that are no Unicode, and for too deep nesting.
    """
    try:
        text = body if isinstance(body, str) else body.decode()
        members = None if may_repeat else _members
        value = json.loads(
            text,
            parse_float=_number,
            parse_constant=_refuse_constant,
            object_pairs_hook=members,
        )
    except RecursionError:
        raise _too_deep(what) from None
    except ValueError as exc:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise HttpError(400, f"{what} is not valid JSON: {_reason(exc)}") from None
    if not isinstance(value, dict):
        raise HttpError(400, f"{what} must be a JSON object")
    for part in _texts(value, what):
        _check_text(part, what)
    return value


def has_nul(value: object) -> bool:
    """Return whether a text anywhere in a JSON value holds the NUL character."""
    return any("\0" in text for text in _texts(value, "the value"))


def check_model(body: Mapping[str, Any], settings: ServeSettings) -> None:
    """Check that the served model is meant; a missing name means it.

    Raises:
        HttpError: 404 `model_not_found`.
    """
    name = body.get("model")
    names = (settings.model_id, *settings.aliases)
    if name is None or (isinstance(name, str) and name in names):
        return
    shown = repr(name[:200]) if isinstance(name, str) else "a name that is no text"
    raise HttpError(
        404,
        f"the model {shown} is not served here; served: {', '.join(names)}"
        " (further names: --model-alias)",
        code="model_not_found",
        param="model",
    )


def session_key_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return what the client says the requests of one conversation share."""
    metadata = body.get("metadata")
    candidates = (
        headers.get("x-session-id"),
        body.get("prompt_cache_key"),
        body.get("user"),
        metadata.get("user_id") if isinstance(metadata, dict) else None,
    )
    return next((text for text in candidates if isinstance(text, str) and text), None)


def new_id(prefix: str, num_digits: int) -> str:
    """Return a fresh id: the prefix and so many hexadecimal digits."""
    return prefix + secrets.token_hex(num_digits // 2)


def compact_json(value: object) -> str:
    """Return JSON without spaces, non-ASCII as it is."""
    return _ENCODER.encode(value)


def sse_frame(data: object, event: str | None = None) -> bytes:
    """Return one event of a stream, `data` as compact JSON."""
    head = f"event: {event}\n" if event is not None else ""
    # a lone surrogate that a model spelled as JSON escapes must not break the stream
    return f"{head}data: {compact_json(data)}\n\n".encode(errors="replace")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise ValueError(f"{twice[:60]!r} stands twice in one object")
    return members


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # it could be written down nowhere
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if "integer string conversion" in str(error):
        return "a number has too many digits"
    return str(error)[:200]


def _too_deep(what: str) -> HttpError:
    return HttpError(400, f"{what} is nested more than {MAX_JSON_DEPTH} levels deep")


def _texts(root: object, what: str) -> Iterator[str]:
    """Yield every text of a JSON value, names included; refuses nesting without end."""
    level: list[object] = [root]
    for _ in range(MAX_JSON_DEPTH + 1):  # the last level: what the deepest array or object holds
        deeper: list[object] = []
        for value in level:
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                yield from value
                deeper.extend(value.values())
            elif isinstance(value, list):
                deeper.extend(value)
        if not deeper:
            return
        level = deeper
    raise _too_deep(what)


def _check_text(text: str, what: str) -> None:
    """Refuse lone surrogates, which no UTF-8 can carry."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise HttpError(
            400,
            f"{what} holds the lone surrogate \\u{ord(text[exc.start]):04x}, which is no character",
        ) from None
