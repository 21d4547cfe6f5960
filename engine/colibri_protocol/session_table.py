"""The states of a request and what each message does to it: the table both sessions read.

What has no row is a violation. Ours is the stricter table, for what we send as an engine; as a
gateway we also take what engines without ACCEPT send.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from colibri_protocol import messages as m
from colibri_protocol.limits import ANY_SLOT
from colibri_protocol.messages import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class RequestState(Enum):
    """Where a request stands; one that is in no state is not open."""

    SENT = auto()
    ACCEPTED = auto()
    STREAMING = auto()
    STOPPING = auto()  # STOP was sent: only the end counts
    CANCELLING = auto()  # CANCEL was sent: only the end counts
    COUNTING = auto()
    QUERYING = auto()


class Step(Enum):
    """What a message does besides changing the state."""

    PASS = auto()  # it counts
    DROP = auto()  # legal, but nobody wants it any more
    END = auto()  # it counts, and the request is over


_S = RequestState
Row = tuple[Step, RequestState]
RequestMessage = (
    m.Accepted
    | m.Progress
    | m.TextDelta
    | m.TokenLogprobs
    | m.Finished
    | m.RequestFailed
    | m.Counted
    | m.StatsReport
)


def _rows() -> dict[tuple[RequestState, type], Row]:
    table: dict[tuple[RequestState, type], Row] = {
        (_S.SENT, m.Accepted): (Step.PASS, _S.ACCEPTED),
        (_S.COUNTING, m.Counted): (Step.END, _S.COUNTING),
        (_S.QUERYING, m.StatsReport): (Step.END, _S.QUERYING),
    }
    for state in (_S.ACCEPTED, _S.STREAMING):
        table[state, m.Progress] = (Step.PASS, state)
        table[state, m.TokenLogprobs] = (Step.PASS, _S.STREAMING)
        table[state, m.TextDelta] = (Step.PASS, _S.STREAMING)
    for state in (_S.STOPPING, _S.CANCELLING):
        for kind in (m.Accepted, m.Progress, m.TokenLogprobs, m.TextDelta):
            table[state, kind] = (Step.DROP, state)
    for state in (_S.SENT, _S.ACCEPTED, _S.STREAMING, _S.STOPPING, _S.CANCELLING):
        table[state, m.Finished] = (Step.END, state)
    for state in RequestState:
        table[state, m.RequestFailed] = (Step.END, state)
    return table


ENGINE_TABLE: Final[Mapping[tuple[RequestState, type], Row]] = _rows()
# Engines that send no ACCEPT exist: the first DATA commits them. Ours always sends it.
GATEWAY_TABLE: Final[Mapping[tuple[RequestState, type], Row]] = {
    **ENGINE_TABLE,
    (_S.SENT, m.TextDelta): (Step.PASS, _S.STREAMING),
    (_S.SENT, m.TokenLogprobs): (Step.PASS, _S.STREAMING),
    (_S.SENT, m.Progress): (Step.DROP, _S.SENT),
}
FIRST_STATE: Final[Mapping[type, RequestState]] = {
    m.Submit: _S.SENT,
    m.SubmitExtended: _S.SENT,
    m.Count: _S.COUNTING,
    m.StatsQuery: _S.QUERYING,
}
WORD_OF_ANSWER: Final[Mapping[type, Word]] = {
    m.Progress: Word.PROGRESS,
    m.TokenLogprobs: Word.LOGPROBS,
    m.Counted: Word.COUNT,
    m.StatsReport: Word.STATS,
    m.ModelInfo: Word.MODEL,
    m.Pong: Word.PING,
}


def words_needed(message: m.GatewayMessage) -> frozenset[Word]:
    """Return the words an engine must have announced before it may be sent this message."""
    match message:
        case m.SubmitExtended(slot=slot, options=options):
            wanted = {
                Word.OPTIONS: True,
                Word.SEGMENTS: True,
                Word.SLOTS: slot == ANY_SLOT,
                Word.STOPIDS: bool(options.stop_ids),
                Word.LOGPROBS: options.logprobs is not None,
                Word.GRAMMAR: options.grammar is not None,
                Word.DRAFT: options.draft is not None,
            }
            return frozenset(word for word, needed in wanted.items() if needed)
        case m.Count():
            return frozenset({Word.COUNT, Word.SEGMENTS})
        case m.StatsQuery():
            return frozenset({Word.STATS})
        case m.Ping():
            return frozenset({Word.PING})
        case _:
            return frozenset()


def missing_words(needed: Iterable[Word], words: frozenset[str]) -> str:
    """Name the words that were not announced, "" when all were."""
    return ", ".join(sorted(word.value for word in needed if word.value not in words))
