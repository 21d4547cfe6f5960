"""Backend: what commands and routes may ask of whatever produces text.

Request level: conversations in, answer events out; no tokens, no frames, no HTTP. The native engine
is one backend, an upstream server can be another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallArguments,
    CallFinished,
    CallStarted,
)
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.chat_formats.tool_formats.base import CallChoice, DeclaredTool
    from colibri_cli.supervisor.telemetry import Telemetry
    from colibri_protocol.errors import ColibriError
    from colibri_protocol.messages import TokenLogprobs


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Functions the model may call, and what is to be done with them.

    Args:
        tools: At least one.
        choice: Anything but `none`.
        parallel: Whether one answer may hold several calls.
    """

    tools: Sequence[DeclaredTool]
    choice: CallChoice
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """How to generate: what the engine gets, and what we look after ourselves.

    Args:
        options: For the engine. A grammar constrains the answer, not the reasoning before it.
        stop: Texts that end the answer.
        slot: KV slot, -1 leaves it to the engine.
        is_stop_patient: Stop texts before the first visible character are deleted.
        tools: Look for calls of these, and force them as asked; None: calls are just text.
        thinking_budget: Reasoning tokens after which reasoning is ended; None without limit.
        draft_grammar: For engines of the baseline, which only guess ahead with it: GBNF or a JSON
            schema; it constrains nothing.
        next_slot: Asked for the slot of a continuation in the moment it is sent; None: `slot`, or
            where the engine finds the text if it can.
        label: What logs call the request.
        num_bytes: Size of the request it is asked for by, where that is known.
        start: Control tokens before a plain text.
    """

    options: RequestOptions = field(default_factory=RequestOptions)
    stop: tuple[str, ...] = ()
    slot: int = -1
    is_stop_patient: bool = False
    tools: ToolUse | None = None
    thinking_budget: int | None = None
    draft_grammar: str | None = None
    next_slot: Callable[[], int] | None = None
    label: str = ""
    num_bytes: int = 0
    start: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt fits and is being worked on, in this slot where the engine says so.

    Comes again, with the same figures, when the answer is continued, maybe in another slot.
    """

    prompt_tokens: int
    reused_tokens: int | None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """`done` of `total` prompt tokens are processed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer; log-probabilities of the tokens that made it, where asked for."""

    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """The answer is complete.

    `finish` is "stop" (the model ended, or a stop text matched), "length" (a token limit) or
    "stopped" (we asked for the end). Times are ours, tokens per second is the engine's figure.
    `is_call_cut`: the limit fell into what was, or was about to be, a call.
    """

    finish: str
    prompt_tokens: int
    completion_tokens: int
    reused_tokens: int
    tokens_per_second: float
    hit_percent: float
    rss_gb: float
    first_token_s: float | None
    total_s: float
    stop_text: str | None = None
    reasoning_tokens: int = 0
    is_call_cut: bool = False


AnswerEvent = (
    Started
    | PrefillProgress
    | ReasoningDelta
    | TextDelta
    | CallStarted
    | CallArguments
    | CallFinished
    | CallAborted
    | Completed
)


class Answer(Protocol):
    """A running answer: iterate over its events, stop it, or leave it (which cancels)."""

    def __aiter__(self) -> AsyncIterator[AnswerEvent]: ...

    @property
    def ended(self) -> asyncio.Future[bool]:
        """Resolved when nothing works on the answer any more, even if it was left early.

        The result tells whether it was made to its end; nobody need have taken its events.
        """
        ...

    def stop(self) -> None:
        """Ask for a normal end now; `Completed` still comes."""
        ...

    def abort(self, error: Exception) -> None:
        """Cancel; whoever iterates gets `error`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known about a served model; sizes in bytes, None where unknown.

    `capabilities` are the extended forms its engine announced; none for an engine of the baseline.
    Without slots of ours the server behind chooses where an answer is made.
    """

    id: str
    family: str
    context_length: int | None = None
    num_experts: int | None = None
    file_bytes: int | None = None
    resident_bytes: int | None = None
    has_chat_format: bool = False
    can_think: bool = False
    has_slots: bool = True
    capabilities: frozenset[str] = frozenset()
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Health:
    """State word (`ready`, `starting`, …), how often the engine ended unasked, and how last.

    `ready_in_s` are the seconds until it is expected to be ready, None where nobody knows.
    """

    state: str
    num_crashes: int = 0
    last_crash: str | None = None
    ready_in_s: float | None = None


class Backend(Protocol):
    """One source of answers."""

    async def open(self) -> None:
        """Get ready to answer.

        Raises:
            ColibriError: why that is not possible.
        """
        ...

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        """Begin the next assistant turn of a conversation."""
        ...

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        """Begin the continuation of a plain text."""
        ...

    async def count(self, conversation: Conversation) -> int:
        """Return the number of tokens of the prompt a conversation becomes."""
        ...

    async def count_text(self, text: str) -> int:
        """Return the number of tokens of a plain text."""
        ...

    async def counters(self) -> Mapping[str, object]:
        """Return the raw counters of the engine."""
        ...

    async def models(self) -> list[ModelCard]:
        """Return the models that can be asked for."""
        ...

    async def health(self) -> Health:
        """Return the state without waiting for anything."""
        ...

    def telemetry(self) -> Telemetry:
        """Return the latest figures."""
        ...

    async def close(self) -> None:
        """Release everything; safe to call twice."""
        ...


class ServableBackend(Backend, Protocol):
    """A backend that a server can stand on: it has a name before it is open, and may come back."""

    @property
    def model_id(self) -> str:
        """Name the model is served under, as far as it is known."""
        ...

    @property
    def last_end(self) -> str | None:
        """How what answers ended last, for people; None: it never did."""
        ...

    @property
    def failure(self) -> ColibriError | None:
        """Why there will be no answers any more, once that is so."""
        ...

    def note_port(self, port: int) -> None:
        """Learn where the server listens, before `open`."""
        ...
