"""HTTP/1.x without I/O: request heads to values, response heads to bytes.

h11 judges the grammar of request heads. A new exchange, a request and its answer, starts from
nothing but the bytes behind the last one, so that nothing of a request can leak into the next. What
h11 takes kindly (repeated lengths, folded lines, bare line feeds) is refused here before h11 sees
it: whatever two parsers may read differently is an error. Source: RFC 9112.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from colibri_cli.gateway.http_types import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_END_OF_HEAD: Final = b"\r\n\r\n"
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)*")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
# No trimming in the expression: it would take quadratic time on long runs of spaces.
_LENGTHS: Final = re.compile(rb"\r\ncontent-length:([^\r]*)")
_CODINGS: Final = re.compile(rb"\r\ntransfer-encoding:([^\r]*)")
# What may be sent; names and values are our own, but some values quote a request.
_FIELDS: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: (?:[!-~](?:[\t -~]*[!-~])?)?\r\n)*")
_CHUNKED_FIELD: Final = b"Transfer-Encoding: chunked\r\n"
_CLOSE_FIELD: Final = b"Connection: close\r\n"
_BODILESS: Final = frozenset({204, 304})
_DIGITS: Final = re.compile(rb"[0-9]{1,19}")  # 19: what fits into 64 bits


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers.

    Args:
        method: As sent; methods are case-sensitive.
        target: Request target as sent, visible ASCII.
        is_http10: The client speaks HTTP/1.0: no chunks, no kept connection.
        headers: Names in lower case, repeated ones joined by commas; values as latin-1.
        content_length: Declared length of the body, or None.
        is_chunked: The body comes in chunks.
        expects_continue: The client holds the body back until it may come.
        is_kept: The client wants to keep the connection.
    """

    method: str
    target: str
    is_http10: bool
    headers: Mapping[str, str]
    content_length: int | None
    is_chunked: bool
    expects_continue: bool
    is_kept: bool


def bad_request(message: str, status: int = 400) -> HttpError:
    """Return a refusal of something that is no proper HTTP."""
    return HttpError(status, message)


class HeadScanner:
    """Finds the end of a request head in a growing buffer, in time linear in its size."""

    def __init__(self, max_head_bytes: int) -> None:
        self._max = max_head_bytes
        self._scanned = 0

    def num_empty(self, buffer: bytearray) -> int:
        """Return how many bytes of empty lines come before the request line, to be dropped.

        RFC 9112 2.2: a server "SHOULD ignore at least one empty line" there.
        """
        found = _EMPTY_LINES.match(buffer)
        if found is None or not found.end():
            return 0
        self._scanned = 0
        return found.end()

    def find(self, buffer: bytearray) -> int | None:
        """Return the length of the head at the buffer's start, None when more bytes are needed.

        The buffer only grows between calls, or begins with something new after an answer.

        Raises:
            HttpError: 431 or 414 for a head that is too long, 400 for what can never become one.
        """
        if not buffer:
            return None
        if buffer[0] < 0x21 and buffer[0] != 0x0D:  # a TLS hello begins with 0x16
            raise bad_request("this is no HTTP request; the server speaks plain http://")
        start = max(self._scanned - 3, 0)
        end = buffer.find(_END_OF_HEAD, start)
        if _BARE_LINE_FEED.search(buffer, start, end if end >= 0 else len(buffer)):
            raise bad_request("a line of the request head ends without a carriage return")
        length = end + 4 if end >= 0 else len(buffer)
        if length > self._max:
            line_end = buffer.find(b"\r\n", 0, length)
            is_line = line_end < 0 or line_end >= self._max
            raise bad_request(
                f"the {'request line' if is_line else 'request head'} is longer than"
                f" {self._max} bytes",
                414 if is_line else 431,
            )
        if end < 0:
            self._scanned = len(buffer)
            return None
        self._scanned = 0
        return length


class Exchange:
    """One request and its answer.

    Attributes:
        is_answer_chunked: The body of the answer is to be sent in chunks.
    """

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER)
        self._knows_chunks = False  # before its version is known
        self.is_answer_chunked = False

    def read_head(self, raw: bytes, max_headers: int) -> RequestHead:
        """Parse a complete head, its final empty line included.

        Raises:
            HttpError: it is malformed or ambiguous; an answer can still be encoded.
        """
        num_lines = raw.count(b"\r\n")
        if raw.count(b"\n") != num_lines or raw.count(b"\r") != num_lines:
            raise bad_request("the request head has a bare carriage return or line feed")
        if _CONTROLS.search(raw):
            raise bad_request("the request head has a control character")
        if b"\r\n " in raw or b"\r\n\t" in raw:
            raise bad_request("a header is folded over several lines")
        if num_lines - 2 > max_headers:
            raise bad_request(f"the request has more than {max_headers} headers", 431)
        lowered = raw.lower()
        length = _content_length(_LENGTHS.findall(lowered))
        is_chunked = _is_chunked(_CODINGS.findall(lowered))
        if is_chunked and length is not None:
            raise bad_request("the request has both Content-Length and Transfer-Encoding")
        self._h11.receive_data(raw)
        try:
            request = self._h11.next_event()
        except h11.RemoteProtocolError as exc:
            raise _refusal_of(exc) from None
        assert isinstance(request, h11.Request)
        if request.http_version not in {b"1.0", b"1.1"}:
            raise bad_request("the server speaks HTTP/1.1", 505)
        is_http10 = request.http_version == b"1.0"
        if is_chunked and is_http10:
            raise bad_request("HTTP/1.0 knows no Transfer-Encoding")
        self._knows_chunks = not is_http10
        headers = _join(request.headers)
        if not is_http10 and not headers.get("host"):
            raise bad_request("the Host header is missing")
        tokens = {word.strip() for word in headers.get("connection", "").lower().split(",")}
        return RequestHead(
            method=request.method.decode("ascii"),
            target=request.target.decode("ascii"),
            is_http10=is_http10,
            headers=headers,
            content_length=length,
            is_chunked=is_chunked,
            expects_continue=_expects_continue(headers, is_http10=is_http10),
            is_kept=not is_http10 and "close" not in tokens,
        )

    def encode_head(
        self, status: int, headers: Iterable[tuple[str, str]], *, is_closing: bool
    ) -> bytes:
        """Return status line and headers of the answer.

        Without a Content-Length the body is chunked, or for HTTP/1.0 ends with the connection.

        Raises:
            ValueError: a header cannot be sent as it is.
        """
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        fields = "".join(lines).encode("ascii")
        # by the number of lines: none may hide in the value of another
        if fields.count(b"\n") != len(lines) or not _FIELDS.fullmatch(fields):
            raise ValueError("a response header cannot be sent as it is")
        if status not in _BODILESS and b"content-length:" not in fields.lower():
            self.is_answer_chunked = self._knows_chunks
            is_closing = is_closing or not self._knows_chunks
        return b"HTTP/1.1 %d %b\r\n%b%b%b\r\n" % (
            status,
            _reason_of(status).encode(),
            fields,
            _CHUNKED_FIELD if self.is_answer_chunked else b"",
            _CLOSE_FIELD if is_closing else b"",
        )


def encode_chunk(payload: bytes) -> bytes:
    """Return a piece of a chunked body; never empty, an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


LAST_CHUNK: Final = b"0\r\n\r\n"


def _content_length(values: list[bytes]) -> int | None:
    if not values:
        return None
    if len(values) > 1:
        raise bad_request("the request has more than one Content-Length")
    value = values[0].strip(b" \t")
    if not _DIGITS.fullmatch(value):
        raise bad_request("Content-Length is not a plain decimal number")
    return int(value)


def _is_chunked(values: list[bytes]) -> bool:
    if not values:
        return False
    codings = [word.strip(b" \t") for word in b",".join(values).split(b",")]
    if codings == [b"chunked"]:
        return True
    # RFC 9112 6.3: without chunked at the end the length is unknown, 400; 6.1: else 501
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1 or len(values) > 1:
        raise bad_request("Transfer-Encoding leaves the length of the body open")
    raise bad_request("of the transfer codings only chunked is supported", 501)


def _refusal_of(error: h11.RemoteProtocolError) -> HttpError:
    # h11's texts may quote a header with a key in it: only the kind is told.
    if "host" in str(error).lower()[:40]:
        return bad_request("the request must have exactly one Host header")
    return bad_request("the request head is malformed", error.error_status_hint)


def _join(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _expects_continue(headers: Mapping[str, str], *, is_http10: bool) -> bool:
    expectation = headers.get("expect", "").strip().lower()
    if not expectation or is_http10:
        return False
    if expectation != "100-continue":
        raise bad_request("the only expectation that can be met is 100-continue", 417)
    return True


def _reason_of(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
