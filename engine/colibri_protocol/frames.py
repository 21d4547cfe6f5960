"""The codec: bytes to messages in both directions, and messages to bytes.

No input or output, no clock, no threads: callers feed what they read and write what `encode`
returns. Any way of splitting the bytes gives the same messages; memory is bounded by `limits`.
Bytes that break the framing raise RemoteProtocolError, and the decoder stays broken.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from colibri_protocol.encoding import LOWEST_LOGPROB, READY_LINE, encode
from colibri_protocol.engine_lines import (
    MAP_WORDS,
    REQUEST_LINES,
    TELEMETRY_LINES,
    EngineBody,
    build_start_failed,
    read_caps,
    read_stat,
)
from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.fields import show
from colibri_protocol.gateway_lines import GATEWAY_LINES, GatewayBody, Request
from colibri_protocol.limits import MAX_DATA_BYTES, MAX_FAILURE_JSON_BYTES
from colibri_protocol.line_buffer import LineBuffer
from colibri_protocol.messages import EngineMessage, Ready, TextDelta

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["LOWEST_LOGPROB", "READY_LINE", "EngineLineDecoder", "GatewayLineDecoder", "encode"]

_Message = TypeVar("_Message")
_Body = TypeVar("_Body", EngineBody, GatewayBody)

# The two marks that mean something before the handshake; a FAILED mark is followed by JSON.
_MARK: Final = re.compile(rb"\x01\x01(?:READY\x01\x01\n|FAILED\x01\x01 ([0-9]{1,6})\n)")
# How DATA is usually written; any other form is read like every line.
_DATA: Final = re.compile(rb"DATA ([1-9][0-9]{0,17}) (0|[1-9][0-9]{0,4})\n")
_LONGEST_MARK: Final = len(b"\x01\x01FAILED\x01\x01 123456\n")


class _LineDecoder(Generic[_Message, _Body]):
    """What both directions share: the loop over lines and bodies, and what a fault does."""

    def __init__(self, known_words: Container[bytes], map_words: Container[bytes] = ()) -> None:
        self._buffer = LineBuffer(known_words, map_words)
        self._body: _Body | None = None
        self._body_word = b""
        self._fault: str | None = None
        self.num_ignored = 0
        self.last_ignored = b""

    def feed(self, data: bytes) -> list[_Message]:
        """Take received bytes and return the messages they complete.

        Raises:
            RemoteProtocolError: The framing is broken; `messages` of the error holds what came
                before the fault. Every later call raises too.
        """
        if self._fault is not None:
            raise RemoteProtocolError(f"the stream is already broken: {self._fault}")
        self._buffer.append(data)
        found: list[_Message] = []
        try:
            while self._advance(found):
                pass
        except RemoteProtocolError as exc:
            exc.messages = tuple(found)
            self._fault = exc.message
            self._buffer.clear()
            raise
        return found

    def feed_eof(self) -> None:
        """Take the end of the stream.

        Raises:
            RemoteProtocolError: It ended inside a line or a body.
        """
        if self._fault is None and (self._body is not None or self._buffer.is_inside_line):
            self._fault = "the stream ended inside a message"
            raise RemoteProtocolError(self._fault)

    def _advance(self, found: list[_Message]) -> bool:
        """Take one step; return whether another may be possible without more bytes."""
        raise NotImplementedError

    def _take_body(self, body: _Body) -> bytes | None:
        """Return the payload of the open body once it and the newline after it are there."""
        payload = self._buffer.take(body.size + 1)
        if payload is None:
            return None
        self._body = None
        if payload[-1:] != b"\n":
            raise RemoteProtocolError(
                f"{show(payload[-1:])} instead of a newline after {body.size} bytes"
                f" of {self._body_word.decode()}"
            )
        return payload[:-1]

    def _ignore(self, line: bytes) -> None:
        self.num_ignored += 1
        self.last_ignored = line[:64]

    @staticmethod
    def _malformed(word: bytes, exc: ValueError) -> RemoteProtocolError:
        return RemoteProtocolError(f"malformed {word.decode()}: {exc}")


class _Phase(Enum):
    SEEK = auto()  # before READY: all bytes are discarded
    CAPS = auto()  # READY seen: CAPS may come, STAT must
    STAT = auto()  # CAPS seen: STAT must come
    OPEN = auto()


class EngineLineDecoder(_LineDecoder[EngineMessage, EngineBody]):
    """Reads what an engine sends, the handshake included.

    `num_ignored` counts unknown lines and telemetry with wrong fields, `last_ignored` is how the
    latest of them began.

    Args:
        handshake: False when the handshake has already been read.
    """

    def __init__(self, *, handshake: bool = True) -> None:
        super().__init__(REQUEST_LINES.keys() | TELEMETRY_LINES.keys(), MAP_WORDS)
        self._phase = _Phase.SEEK if handshake else _Phase.OPEN

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete."""
        return self._phase is _Phase.OPEN

    def feed_eof(self) -> None:
        """Take the end of the stream.

        Raises:
            RemoteProtocolError: It ended before the handshake or inside a message.
        """
        if self._fault is None and self._phase is not _Phase.OPEN:
            self._fault = "the engine ended before it was ready"
            raise RemoteProtocolError(self._fault)
        super().feed_eof()

    def _advance(self, found: list[EngineMessage]) -> bool:
        if self._body is not None:
            return self._finish_body(self._body, found)
        if self._phase is _Phase.SEEK:
            return self._seek(found)
        if self._phase is _Phase.OPEN:
            piece = self._buffer.take_counted(_DATA, MAX_DATA_BYTES)
            if piece is not None:
                found.append(TextDelta(*piece))
                return True
        line = self._buffer.take_line()
        if line is None:
            return False
        if line.strip():
            self._read_line(line, found)
        return True

    def _seek(self, found: list[EngineMessage]) -> bool:
        mark = self._buffer.take_match(_MARK, _LONGEST_MARK - 1)
        if mark is None:
            return False
        if mark[1] is None:
            self._phase = _Phase.CAPS
            found.append(Ready())
        elif int(mark[1]) <= MAX_FAILURE_JSON_BYTES:
            self._body, self._body_word = EngineBody(int(mark[1]), build_start_failed), b"FAILED"
        return True

    def _finish_body(self, body: EngineBody, found: list[EngineMessage]) -> bool:
        payload = self._take_body(body)
        if payload is None:
            return False
        try:
            found.append(body.build(payload))
        except ValueError as exc:
            raise self._malformed(self._body_word, exc) from exc
        return True

    def _read_line(self, line: bytes, found: list[EngineMessage]) -> None:
        word, _, rest = line.partition(b" ")
        if self._phase is not _Phase.OPEN:
            found.append(self._greeting(word, rest))
            return
        reader = REQUEST_LINES.get(word)
        if reader is None:
            self._read_telemetry(line, found)
            return
        try:
            message = reader(rest)
        except ValueError as exc:
            raise self._malformed(word, exc) from exc
        if isinstance(message, EngineBody):
            self._body, self._body_word = message, word
        else:
            found.append(message)

    def _read_telemetry(self, line: bytes, found: list[EngineMessage]) -> None:
        word, _, rest = line.partition(b" ")
        reader = TELEMETRY_LINES.get(word)
        try:
            message = reader(rest) if reader else None
        except ValueError:
            message = None
        if message is None or isinstance(message, EngineBody):
            self._ignore(line)
        else:
            found.append(message)

    def _greeting(self, word: bytes, rest: bytes) -> EngineMessage:
        if word == b"CAPS" and self._phase is _Phase.CAPS:
            self._phase = _Phase.STAT
            return read_caps(rest)
        if word != b"STAT":
            raise RemoteProtocolError(f"{show(word)} instead of STAT after READY")
        try:
            stat = read_stat(rest)
        except ValueError as exc:
            raise self._malformed(word, exc) from exc
        self._phase = _Phase.OPEN
        return stat


class GatewayLineDecoder(_LineDecoder[Request, GatewayBody]):
    """Reads what a gateway sends.

    A request that is framed well but wrong comes out as the RequestFailed to answer it with.
    """

    def __init__(self) -> None:
        super().__init__(GATEWAY_LINES.keys())

    def _advance(self, found: list[Request]) -> bool:
        if self._body is not None:
            payload = self._take_body(body := self._body)
            if payload is None:
                return False
            found.append(body.build(payload))
            return True
        line = self._buffer.take_line()
        if line is None:
            return False
        word, _, rest = line.partition(b" ")
        reader = GATEWAY_LINES.get(word)
        if reader is None:
            if line.strip():
                self._ignore(line)
            return True
        try:
            message = reader(rest)
        except ValueError as exc:
            raise self._malformed(word, exc) from exc
        if isinstance(message, GatewayBody):
            self._body, self._body_word = message, word
        else:
            found.append(message)
        return True
