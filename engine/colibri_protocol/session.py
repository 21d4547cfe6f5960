"""Who may send what, and when: one object per side of a running engine.

Theory of operation. Each request is in one `RequestState` on both sides; `session_table` says what
each engine message does to it, so the two sides cannot disagree. What has no row is a violation:
the sending side raises LocalProtocolError, the receiving side gives that one request up. Ids only
grow; an id that is not open is over, and whatever arrives for it is dropped. Rules for editing: a
new message that belongs to a request gets a row per state it is allowed in; a new extended form
gets its word in `words_needed` or `WORD_OF_ANSWER`.

Sans-IO and without locks: a session belongs to one thread or loop. After each `receive_data`,
write what `data_to_send` returns: answers that need no thought (bad requests, unknown ids, CANCEL
for a request that was given up).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_protocol import messages as m
from colibri_protocol.errors import LocalProtocolError, RemoteProtocolError
from colibri_protocol.frames import EngineLineDecoder, GatewayLineDecoder, encode
from colibri_protocol.session_table import (
    ENGINE_TABLE,
    FIRST_STATE,
    GATEWAY_TABLE,
    WORD_OF_ANSWER,
    RequestMessage,
    RequestState,
    Row,
    Step,
    missing_words,
    words_needed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VIOLATION", "EngineSession", "GatewaySession", "RequestState", "words_needed"]

VIOLATION: Final = "PROTOCOL_VIOLATION"  # code of a request given up here; never on the wire
_S = RequestState


class _Session:
    """What both sides share: open requests, the highest id, bytes to send."""

    def __init__(self) -> None:
        self._states: dict[int, RequestState] = {}
        self._last_id = 0
        self._outgoing: list[bytes] = []

    @property
    def open_ids(self) -> tuple[int, ...]:
        """Ids of the requests that have not ended, oldest first."""
        return tuple(self._states)

    def state(self, request_id: int) -> RequestState | None:
        """Return where a request stands, or None when it is not open."""
        return self._states.get(request_id)

    def data_to_send(self) -> bytes:
        """Return, once, what the session itself has to say."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def _apply(self, message: RequestMessage, row: Row) -> None:
        step, state = row
        if step is Step.END:
            del self._states[message.id]
        else:
            self._states[message.id] = state


class GatewaySession(_Session):
    """The side that asks.

    Args:
        handshake: False when the handshake has already been read.
    """

    def __init__(self, *, handshake: bool = True) -> None:
        super().__init__()
        self._decoder = EngineLineDecoder(handshake=handshake)
        self._is_closed = False
        self.words: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent: the handshake is complete and nothing broke."""
        return self._decoder.is_open and not self._is_closed

    @property
    def num_ignored(self) -> int:
        """How many unknown lines and malformed telemetry lines were ignored."""
        return self._decoder.num_ignored

    @property
    def last_ignored(self) -> bytes:
        """How the latest ignored line began."""
        return self._decoder.last_ignored

    def next_id(self) -> int:
        """Return the id for the next request."""
        return self._last_id + 1

    def send(self, message: m.GatewayMessage) -> bytes:
        """Return the bytes of a message; b"" for STOP or CANCEL of what has already ended.

        Raises:
            LocalProtocolError: Not now, not to this engine, or a field is out of range.
        """
        if not self.is_open:
            raise LocalProtocolError(f"{type(message).__name__} while the engine is not ready")
        if missing := missing_words(words_needed(message), self.words):
            raise LocalProtocolError(f"the engine has not announced: {missing}")
        if isinstance(message, m.Stop | m.Cancel):
            return self._send_end(message)
        if isinstance(message, m.Ping):
            return encode(message)
        if message.id <= self._last_id:
            raise LocalProtocolError(f"id {message.id} after {self._last_id}: ids only grow")
        data = encode(message)
        self._last_id = message.id
        self._states[message.id] = FIRST_STATE[type(message)]
        return data

    def receive_data(self, data: bytes) -> list[m.EngineMessage]:
        """Take bytes of the engine and return what counts.

        A request given up because the engine broke its order comes out as RequestFailed with the
        code VIOLATION. `RequestFailed(0, …)` is only for the log: each request it ends follows.

        Raises:
            RemoteProtocolError: The framing is broken; `messages` holds what counted before. The
                session is closed then; `abandon` returns the requests that were open.
        """
        try:
            found = self._decoder.feed(data)
        except RemoteProtocolError as exc:
            exc.messages = tuple(self._filtered(exc.messages))  # type: ignore[arg-type]
            self._is_closed = True
            raise
        return self._filtered(found)

    def receive_eof(self) -> None:
        """Take the end of the engine's output; the session is closed.

        Raises:
            RemoteProtocolError: It ended before the handshake or inside a message.
        """
        self._is_closed = True
        self._decoder.feed_eof()

    def abandon(self, code: str, detail: str = "") -> list[m.RequestFailed]:
        """Close the session and return the failure of every open request."""
        self._is_closed = True
        failed = [m.RequestFailed(request, code, detail) for request in self._states]
        self._states.clear()
        self._outgoing.clear()
        return failed

    def _send_end(self, message: m.Stop | m.Cancel) -> bytes:
        if not 1 <= message.id <= self._last_id:
            raise LocalProtocolError(f"id {message.id} was never used")
        state = self._states.get(message.id)
        if state in {_S.COUNTING, _S.QUERYING}:
            del self._states[message.id]  # its answer will be dropped
            return b""
        if state is None or state is _S.CANCELLING:
            return b""
        if isinstance(message, m.Stop):
            if state is _S.STOPPING:
                return b""
            self._states[message.id] = _S.STOPPING
        else:
            self._states[message.id] = _S.CANCELLING
        return encode(message)

    def _filtered(self, found: Iterable[m.EngineMessage]) -> list[m.EngineMessage]:
        passed: list[m.EngineMessage] = []
        for message in found:
            if type(message) is m.TextDelta and self._states.get(message.id) is _S.STREAMING:
                passed.append(message)  # what its row says, without looking it up each time
                continue
            if isinstance(message, m.Caps):
                self.words = message.words
            if isinstance(message, m.RequestFailed) and message.id == 0:
                passed += (message, *self._fail_unaccepted(message))
            elif isinstance(message, RequestMessage):
                passed += self._receive(message)
            else:
                passed.append(message)
        return passed

    def _receive(self, message: RequestMessage) -> list[m.EngineMessage]:
        state = self._states.get(message.id)
        if state is None:
            return []
        row = GATEWAY_TABLE.get((state, type(message)))
        if row is None:
            name = type(message).__name__
            return [self._give_up(message.id, VIOLATION, f"{name} while {state.name.lower()}")]
        self._apply(message, row)
        return [] if row[0] is Step.DROP else [message]

    def _give_up(self, request: int, code: str, detail: str) -> m.RequestFailed:
        """End a request here and tell the engine to end it there."""
        if self._states.pop(request) not in {_S.COUNTING, _S.QUERYING}:
            self._outgoing.append(encode(m.Cancel(request)))
        return m.RequestFailed(request, code, detail)

    def _fail_unaccepted(self, error: m.RequestFailed) -> list[m.RequestFailed]:
        """An error that names no request may be about any the engine has not answered."""
        silent = {_S.SENT, _S.COUNTING, _S.QUERYING}
        waiting = [request for request, state in self._states.items() if state in silent]
        return [self._give_up(request, error.code, error.detail) for request in waiting]


class EngineSession(_Session):
    """The side that answers.

    Args:
        words: What CAPS announces; empty: the baseline alone, and no CAPS line.
    """

    def __init__(self, words: Iterable[str] = ()) -> None:
        super().__init__()
        self._decoder = GatewayLineDecoder()
        self._has_greeted = False
        self.words = frozenset(words)

    def greet(self, stat: m.EngineStat) -> bytes:
        """Return the handshake: READY, CAPS if anything is announced, STAT."""
        if self._has_greeted:
            raise LocalProtocolError("the handshake was already sent")
        self._has_greeted = True
        caps = encode(m.Caps(self.words)) if self.words else b""
        return encode(m.Ready()) + caps + encode(stat)

    def send(self, message: m.EngineMessage) -> bytes:
        """Return the bytes of a message; b"" for text of a reply that was stopped or cancelled.

        The trailing fields of ACCEPT and DONE that only CAPS allows are left out without it.

        Raises:
            LocalProtocolError: Not now, not announced, or a field is out of range.
        """
        name = type(message).__name__
        if isinstance(message, m.Ready | m.Caps | m.StartFailed):
            if self._has_greeted or not isinstance(message, m.StartFailed):
                raise LocalProtocolError(f"{name} belongs before the handshake, which greet sends")
            return encode(message)
        if not self._has_greeted:
            raise LocalProtocolError(f"{name} before the handshake")
        word = WORD_OF_ANSWER.get(type(message))
        if word is not None and word.value not in self.words:
            raise LocalProtocolError(f"{name} needs the word {word.value}, which is not announced")
        if not isinstance(message, RequestMessage) or message.id == 0:
            return encode(message)
        state = self._states.get(message.id)
        row = ENGINE_TABLE.get((state, type(message))) if state else None
        if row is None:
            where = state.name.lower() if state else "not open"
            raise LocalProtocolError(f"{name} for request {message.id}, which is {where}")
        data = b"" if row[0] is Step.DROP else encode(self._fitted(message))
        self._apply(message, row)
        return data

    def receive_data(self, data: bytes) -> list[m.GatewayMessage]:
        """Take bytes of the gateway and return what is to be done.

        Requests that cannot be done are answered through `data_to_send` and not returned.

        Raises:
            RemoteProtocolError: The framing is broken and the gateway cannot be understood any
                more; `messages` holds what came before.
        """
        try:
            found = self._decoder.feed(data)
        except RemoteProtocolError as exc:
            exc.messages = tuple(self._filtered(exc.messages))  # type: ignore[arg-type]
            raise
        return self._filtered(found)

    def receive_eof(self) -> None:
        """Take the end of the gateway's output: finish what is open, then leave.

        Raises:
            RemoteProtocolError: It ended inside a message.
        """
        self._decoder.feed_eof()

    def _fitted(self, message: RequestMessage) -> RequestMessage:
        if not self.words and isinstance(message, m.Accepted):
            return replace(message, reused_tokens=None, slot=None)
        if not self.words and isinstance(message, m.Finished):
            return replace(message, finish=None, stop_id=None)
        return message

    def _filtered(
        self, found: Iterable[m.GatewayMessage | m.RequestFailed]
    ) -> list[m.GatewayMessage]:
        passed: list[m.GatewayMessage] = []
        for message in found:
            refusal = self._receive(message)
            if isinstance(refusal, m.RequestFailed):
                self._outgoing.append(encode(refusal))
            elif refusal is not None:
                passed.append(refusal)
        return passed

    def _receive(
        self, message: m.GatewayMessage | m.RequestFailed
    ) -> m.GatewayMessage | m.RequestFailed | None:
        """Return the message to act on, the refusal to send, or None when there is neither."""
        if isinstance(message, m.RequestFailed):
            self._last_id = max(self._last_id, message.id)
            return message
        missing = missing_words(words_needed(message), self.words)
        if isinstance(message, m.Ping):
            return None if missing else message
        if isinstance(message, m.Stop | m.Cancel):
            return self._receive_end(message)
        if message.id <= self._last_id:
            return m.RequestFailed(message.id, m.ErrorCode.DUPLICATE_ID)
        self._last_id = message.id
        if missing:
            return m.RequestFailed(
                message.id, m.ErrorCode.BAD_REQUEST, f"this engine has not announced: {missing}"
            )
        self._states[message.id] = FIRST_STATE[type(message)]
        return message

    def _receive_end(self, message: m.Stop | m.Cancel) -> m.GatewayMessage | m.RequestFailed | None:
        state = self._states.get(message.id)
        if state is None or state in {_S.COUNTING, _S.QUERYING}:
            return m.RequestFailed(message.id, m.ErrorCode.NOT_FOUND)
        wanted = _S.STOPPING if isinstance(message, m.Stop) else _S.CANCELLING
        if state is wanted or state is _S.CANCELLING:
            return None
        self._states[message.id] = wanted
        return message
