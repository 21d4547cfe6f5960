"""A client that sends exactly the bytes it is given and reads answers strictly."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Self

TIMEOUT_S = 5.0


class BadAnswer(AssertionError):
    """What the server sent is no proper HTTP/1.1."""


@dataclass
class Answer:
    """One response as it was on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    is_complete: bool = True

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert isinstance(error, dict)
        return error

    @property
    def closes(self) -> bool:
        return "close" in self.headers.get("connection", "").lower()


class NeedMore(Exception):
    """The bytes end within an answer."""


def parse_head(data: bytes) -> tuple[int, dict[str, str], int]:
    """Return status, headers and the length of a response head at the start of `data`."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        raise NeedMore
    lines = data[:end].decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if version != "HTTP/1.1" or not rest[:3].isdigit() or rest[3:4] != " ":
        raise BadAnswer(f"status line {lines[0]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(": ")
        if not colon or not name.replace("-", "").isalnum() or "\n" in line or "\r" in line:
            raise BadAnswer(f"header line {line!r}")
        if name.lower() in headers and name.lower() != "vary":
            raise BadAnswer(f"repeated header {name}")
        headers[name.lower()] = value
    return int(rest[:3]), headers, end + 4


def parse_chunks(data: bytes) -> tuple[list[bytes], int]:
    """Return the chunks of a chunked body and its length on the wire."""
    chunks: list[bytes] = []
    at = 0
    while True:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            raise NeedMore
        size = int(data[at:line_end], 16)
        start = line_end + 2
        if len(data) < start + size + 2:
            raise NeedMore
        if data[start + size : start + size + 2] != b"\r\n":
            raise BadAnswer("a chunk does not end where it says")
        at = start + size + 2
        if size == 0:
            return chunks, at
        chunks.append(data[start : start + size])


def parse_answer(data: bytes, *, is_head: bool = False, at_end: bool = False) -> tuple[Answer, int]:
    """Return the answer at the start of `data` and its length.

    Args:
        data: What was received.
        is_head: It answers a HEAD request and has no body.
        at_end: Nothing will follow `data`.
    """
    status, headers, length = parse_head(data)
    answer = Answer(status, headers)
    if is_head or status in {204, 304} or status < 200:
        return answer, length
    if headers.get("transfer-encoding") == "chunked":
        if "content-length" in headers:
            raise BadAnswer("both lengths")
        answer.chunks, size = parse_chunks(data[length:])
        answer.body = b"".join(answer.chunks)
        return answer, length + size
    if "content-length" in headers:
        size = int(headers["content-length"])
        if len(data) < length + size:
            raise NeedMore
        answer.body = data[length : length + size]
        return answer, length + size
    if not answer.closes:
        raise BadAnswer("a body without end on a kept connection")
    if not at_end:
        raise NeedMore
    answer.body = data[length:]
    return answer, len(data)


class RawClient:
    """One connection."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        if not isinstance(address, str) and ":" in address[0]:
            family = socket.AF_INET6
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.is_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, data: bytes, *, is_head: bool = False) -> Answer:
        """Send bytes and read one answer."""
        self.send(data)
        return self.read_answer(is_head=is_head)

    def read_answer(self, *, is_head: bool = False) -> Answer:
        """Read one answer; its bytes are consumed."""
        while True:
            try:
                answer, length = parse_answer(self.received, is_head=is_head, at_end=self.is_ended)
            except NeedMore:
                if self.is_ended:
                    raise EOFError(f"ended within an answer: {self.received!r}") from None
                self._receive()
                continue
            self.received = self.received[length:]
            return answer

    def read_until(self, text: bytes) -> bytes:
        """Read until some text came; everything up to its end is returned and consumed."""
        while text not in self.received:
            if self.is_ended:
                raise EOFError(f"ended before {text!r}: {self.received!r}")
            self._receive()
        end = self.received.index(text) + len(text)
        taken, self.received = self.received[:end], self.received[end:]
        return taken

    def read_to_end(self) -> bytes:
        """Read until the server has closed; raises TimeoutError when it does not."""
        while not self.is_ended:
            self._receive()
        taken, self.received = self.received, b""
        return taken

    def assert_silent(self, for_s: float = 0.15) -> None:
        """Check that nothing comes and the connection stays open for a while."""
        self.socket.settimeout(for_s)
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return
        finally:
            self.socket.settimeout(TIMEOUT_S)
        raise AssertionError(f"not silent: {data!r}")

    def end_sending(self) -> None:
        """Close our direction only."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _receive(self) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.received += data
        self.is_ended = not data
