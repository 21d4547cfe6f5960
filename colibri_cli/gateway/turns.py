"""A turn: one request for text, free of any vendor's JSON, and the events that answer it.

Dialects make `TurnRequest`s out of request bodies and render `TurnEvent`s back; `generation` runs
the one and yields the other. Pure data; knows no HTTP and no engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from colibri_cli.backends.base import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.chat_formats.base import Conversation


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """A function the model may call.

    Args:
        name: Its name.
        parameters: JSON schema of its arguments, an object schema.
        declaration: The function object as the client sent it, for the prompt.
        is_strict: The arguments must satisfy the schema, guaranteed by a grammar.
    """

    name: str
    parameters: Mapping[str, Any]
    declaration: Mapping[str, Any]
    is_strict: bool = False


class ToolMode(StrEnum):
    """What the client wants done with the tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A mode, and for NAMED the function's name."""

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A constraint on the whole answer.

    Its kind is "json_object", "json_schema", "regex", "lark" or "gbnf"; its text is a JSON schema
    as JSON text, a pattern or a grammar, and empty for json_object.
    """

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One request for text.

    Args:
        conversation: The messages of a chat; None for a plain completion.
        prompt: The text to continue; None for a chat.
        generation: Sampling options, stop texts; its slot is ignored, see `cache_slot`.
        tools: Declared functions.
        tool_choice: What to do with them.
        parallel_tool_calls: Whether one answer may hold several calls.
        response_format: Constraint on the answer.
        num_choices: Answers wanted.
        thinking_budget: Reasoning tokens after which thinking is ended; None without limit.
        cache_slot: Slot the client demands, or None.
        session_key: What the client says all requests of one conversation share, or None.
        ignore_leading_stop: Stop texts before the first visible character are deleted.
    """

    conversation: Conversation | None = None
    prompt: str | None = None
    generation: Generation = field(default_factory=Generation)
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    num_choices: int = 1
    thinking_budget: int | None = None
    cache_slot: int | None = None
    session_key: str | None = None
    ignore_leading_stop: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token: its text, bytes, log-probability and the likeliest alternatives."""

    text: str
    token_bytes: bytes
    logprob: float
    top: tuple[tuple[str, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TurnAccepted:
    """The prompt fits and is being worked on: only now may a status line be sent."""

    prompt_tokens: int
    reused_tokens: int
    queue_wait_ms: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class TurnProgress:
    """`done` of `total` prompt tokens are processed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """More reasoning of one choice."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More of the answer of one choice; logprobs of the tokens that made it, where asked for."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call begins; `index` counts the calls of the choice from 0."""

    index: int
    id: str
    name: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """More of a call's arguments: a piece of JSON text; all pieces together are one object."""

    index: int
    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """The call is complete."""

    index: int
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallAborted:
    """The call that was started will never be complete: it is none.

    A whole answer leaves it out; `raw` is what the model wrote. A stream has already shown its
    beginning and just ends it. The choice's finish reason is then not `tool_calls` on its account.
    """

    index: int
    raw: str = ""
    choice: int = 0


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    STOP_SEQUENCE = "stop_sequence"  # one of the client's stop texts
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer: prompt, of it reused from a slot; completion, of it reasoning."""

    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnCompleted:
    """One choice is complete. With several choices the last one ends the turn.

    `hit_percent` is the share of expert reads that memory served, `rss_gb` the engine's resident
    memory, both as the engine says.
    """

    finish: Finish
    usage: Usage
    stop_text: str | None = None
    choice: int = 0
    tokens_per_second: float = 0.0
    hit_percent: float = 0.0
    rss_gb: float = 0.0


TurnEvent = (
    TurnAccepted
    | TurnProgress
    | ReasoningPiece
    | TextPiece
    | ToolCallStarted
    | ToolArguments
    | ToolCallFinished
    | ToolCallAborted
    | TurnCompleted
)


def shows_progress(event: TurnEvent) -> bool:
    """Whether the prompt has been read when this event comes."""
    return not isinstance(event, TurnAccepted | TurnProgress)
