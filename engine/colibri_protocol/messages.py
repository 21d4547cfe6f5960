"""One frozen dataclass per message of the engine protocol, in both directions.

Knows what a message says; `frames` knows how it is written, `session` when it may be sent. Every
request has an id that the gateway counts up from 1; telemetry has none. Source: docs/protocol.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from colibri_protocol.options import Grammar, RequestOptions
from colibri_protocol.telemetry import (
    ExpertHits,
    ExpertMap,
    ExpertMoved,
    GpuUsage,
    HardwareInfo,
    RequestTimings,
    RoutingEntropy,
    TierCounts,
    TokenCandidates,
    TurnProfile,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Accepted", "Cancel", "Caps", "Count", "Counted", "EngineMessage", "EngineStat", "ErrorCode",
    "ExpertHits", "ExpertMap", "ExpertMoved", "FinishReason", "Finished", "GatewayMessage",
    "GpuUsage", "Grammar", "HardwareInfo", "ModelInfo", "Ping", "Pong", "Progress", "Ready",
    "RequestFailed", "RequestOptions", "RequestTimings", "RoutingEntropy", "Segment", "SegmentKind",
    "StartFailed", "StatsQuery", "StatsReport", "Stop", "Submit", "SubmitExtended", "TextDelta",
    "TierCounts", "TokenAlternative", "TokenCandidates", "TokenLogprobs", "TurnProfile", "Word",
]  # fmt: skip


class Word(StrEnum):
    """Words of the CAPS line: each names an extended form the engine understands."""

    OPTIONS = "options"
    SEGMENTS = "segments"
    STOPIDS = "stopids"
    LOGPROBS = "logprobs"
    PROGRESS = "progress"
    COUNT = "count"
    STATS = "stats"
    MODEL = "model"
    PING = "ping"
    SLOTS = "slots"
    GRAMMAR = "grammar"
    DRAFT = "draft"


class ErrorCode(StrEnum):
    """First word of an ERROR line; an engine may also send free text or codes of its own."""

    BAD_FRAME = "BAD_FRAME"
    BAD_REQUEST = "BAD_REQUEST"
    SLOT_BUSY = "SLOT_BUSY"
    DUPLICATE_ID = "DUPLICATE_ID"
    EMPTY_PROMPT = "EMPTY_PROMPT"
    NOT_FOUND = "NOT_FOUND"
    CANCELLED = "CANCELLED"
    CONTEXT_EXCEEDED = "CONTEXT_EXCEEDED"
    INTERNAL = "INTERNAL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    READ_FAILED = "READ_FAILED"


class FinishReason(StrEnum):
    """Why a reply ended: a stop id, the token limit, or STOP."""

    STOP = "stop"
    LENGTH = "length"
    STOPPED = "stopped"


class SegmentKind(StrEnum):
    """CONTROL: special tokens are recognised. TEXT: never, whatever the characters spell."""

    CONTROL = "C"
    TEXT = "T"


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a prompt."""

    kind: SegmentKind
    text: str


# ---- gateway → engine ----


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask for a reply in the baseline form. `prompt` is UTF-8, fully rendered."""

    id: int
    slot: int
    prompt: bytes
    max_tokens: int
    temperature: float
    top_p: float
    grammar: bytes | None = None


@dataclass(frozen=True, slots=True)
class SubmitExtended:
    """Ask for a reply with options and a framed prompt; slot -1 leaves the choice to the engine."""

    id: int
    slot: int
    options: RequestOptions
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End a reply normally: DONE follows."""

    id: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Abort a reply: ERROR CANCELLED follows."""

    id: int


@dataclass(frozen=True, slots=True)
class Count:
    """Ask how many tokens a prompt has; uses no slot."""

    id: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class StatsQuery:
    """Ask for the raw counters."""

    id: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Heartbeat, answered between steps. `id` is any number, not a request id."""

    id: int


# ---- engine → gateway ----


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The engine cannot start (before READY, only to a gateway that set COLI_CAPS)."""

    code: str
    message: str
    hint: str | None
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded; all bytes before this mark mean nothing."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Extended forms the engine understands; may hold words unknown to us."""

    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class EngineStat:
    """First figures after READY (and CAPS)."""

    rss_gb: float
    completion_tokens: int = 0
    tokens_per_second: float = 0.0
    hit_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prompt was tokenized and fits. The last two fields exist only with CAPS."""

    id: int
    prompt_tokens: int
    reused_tokens: int | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Bytes of the reply, possibly a part of a character (DATA)."""

    id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """A token that could have been chosen."""

    token_id: int
    logprob: float
    token_bytes: bytes


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one token, sent before the DATA that carries it (TOKEN)."""

    id: int
    token_id: int
    logprob: float
    token_bytes: bytes
    top: tuple[TokenAlternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is complete (DONE). `finish` and `stop_id` exist only with CAPS.

    `stop_id` is the stop token met, -1 when there was none.
    """

    id: int
    completion_tokens: int
    tokens_per_second: float
    hit_percent: float
    rss_gb: float
    prompt_tokens: int = 0
    limited: bool = False
    reused_tokens: int = 0
    finish: FinishReason | None = None
    stop_id: int | None = None


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The request ended without a reply (ERROR).

    `code` is the leading upper-case word ("" for free text), `detail` the rest. Id 0: the engine
    could not tell which request it was.
    """

    id: int
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Prefill: `done` of `total` prompt tokens are processed."""

    id: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Answer to Count."""

    id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class StatsReport:
    """Answer to StatsQuery: raw counters."""

    id: int
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a gateway must know of the model (MODEL, once after the first telemetry)."""

    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping."""

    id: int


GatewayMessage = Submit | SubmitExtended | Stop | Cancel | Count | StatsQuery | Ping
EngineMessage = (
    StartFailed | Ready | Caps | EngineStat | Accepted | TextDelta | TokenLogprobs | Finished
    | RequestFailed | Progress | Counted | StatsReport | ModelInfo | Pong | HardwareInfo
    | TierCounts | ExpertMap | ExpertHits | TurnProfile | RequestTimings | RoutingEntropy | GpuUsage
    | TokenCandidates | ExpertMoved
)  # fmt: skip
