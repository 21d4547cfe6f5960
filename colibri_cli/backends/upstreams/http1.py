"""HTTP/1.1 as a client, without I/O: requests to bytes, bytes to heads and bodies.

h11 judges the grammar of heads, which come once per answer; chunks, which come once per token, are
read by our own reader. What follows a complete answer is an error, because nothing was asked.
Source: RFC 9112.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11

from colibri_cli.chunked import ChunkDecoder, MalformedChunks

if TYPE_CHECKING:
    from collections.abc import Sequence

_END_OF_HEAD: Final = b"\r\n\r\n"
_MAX_HEAD: Final = 64 * 1024
_BODILESS: Final = frozenset({204, 304})


class Malformed(Exception):
    """What came is no answer in HTTP/1.1, or is cut off."""


class HttpExchange:
    """One request and its answer.

    Args:
        method: Of the request.
        target: Path and query.
        headers: Names and values, with Host and the length of the body.
        body: Of the request.

    Attributes:
        request: What is to be sent.
        status: Of the answer; 0 before its head is complete.
        headers: Of the answer.
        payload: Pieces of its body that were not taken yet.
        is_complete: All of the answer has come.
        is_chunked: Its length is told piece by piece, as that of a stream.
        is_kept: The connection may be used again afterwards.

    Raises:
        Malformed: the request cannot be sent as it is.
    """

    def __init__(
        self, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        try:
            head = h11.Request(method=method, target=target, headers=list(headers))
            parts = [self._h11.send(head)]
            if body:
                parts.append(self._h11.send(h11.Data(data=body)))
            parts.append(self._h11.send(h11.EndOfMessage()))
        except h11.LocalProtocolError as error:
            raise Malformed(f"a request cannot be sent: {error}") from error
        self._is_head_request = method == b"HEAD"
        self._buffer = b""
        self._left: int | None = None  # of a body of known length
        self.is_chunked = False
        self._chunks = ChunkDecoder(may_be_small=True)
        self.request = b"".join(part for part in parts if part)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.payload: list[bytes] = []
        self.is_complete = False
        self.is_kept = False

    def feed(self, data: bytes) -> int:
        """Take what arrived and return the number of bytes of the body in it.

        Raises:
            Malformed: it cannot belong to an answer.
        """
        if self.is_complete:
            raise Malformed("the server sent more than its answer")
        if not self.status:
            self._buffer += data
            if not self._read_head():
                return 0
            data, self._buffer = self._buffer, b""
        before = len(self.payload)
        self._read_body(data)
        return sum(map(len, self.payload[before:]))

    def end(self) -> None:
        """Note that the server has closed its end.

        Raises:
            Malformed: the answer is not complete.
        """
        if self.is_complete:
            return
        if not self.status or self.is_chunked or self._left is not None:
            raise Malformed("the server closed the connection within its answer")
        self.is_complete = True  # the length of such a body is told by its end

    def take(self) -> bytes:
        """Return what has come of the body and was not taken."""
        pieces, self.payload = self.payload, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_head(self) -> bool:
        """Read the head once it is complete; interim ones are skipped."""
        while (end := self._buffer.find(_END_OF_HEAD)) >= 0:
            end += len(_END_OF_HEAD)
            raw, self._buffer = self._buffer[:end], self._buffer[end:]
            self._h11.receive_data(raw)
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise Malformed(f"the head of the answer is malformed: {error}") from error
            if isinstance(event, h11.Response):
                self._note_head(event)
                return True
            if not isinstance(event, h11.InformationalResponse):
                raise Malformed("the answer has no head")
        if len(self._buffer) > _MAX_HEAD:
            raise Malformed(f"the head of the answer is longer than {_MAX_HEAD} bytes")
        return False

    def _note_head(self, head: h11.Response) -> None:
        self.status = head.status_code
        self.headers = list(head.headers)
        fields = dict(self.headers)  # h11 has joined nothing, and refused two different lengths
        words = {word.strip() for word in fields.get(b"connection", b"").lower().split(b",")}
        self.is_chunked = b"transfer-encoding" in fields
        length = fields.get(b"content-length")
        if self._is_head_request or self.status in _BODILESS:
            self.is_chunked, self._left = False, 0
        elif not self.is_chunked and length is not None:
            self._left = int(length)
        has_end = self.is_chunked or self._left is not None
        self.is_kept = has_end and head.http_version == b"1.1" and b"close" not in words
        self.is_complete = self._left == 0

    def _read_body(self, data: bytes) -> None:
        if self.is_chunked:
            self._read_chunks(data)
            return
        if self._left is not None:
            if len(data) > self._left:
                raise Malformed("the server sent more than its answer")
            self._left -= len(data)
            self.is_complete = self._left == 0
        if data:
            self.payload.append(data)

    def _read_chunks(self, data: bytes) -> None:
        try:
            payload = self._chunks.feed(data)
        except MalformedChunks as error:
            raise Malformed(f"the answer cannot be read: {error}") from None
        if payload:
            self.payload.append(payload)
        self.is_complete = self._chunks.is_complete
        if self.is_complete and self._chunks.leftover:
            raise Malformed("the server sent more than its answer")
