"""How many requests a stream of bytes holds, read by the letter of RFC 9112: the fuzzer's judge.

Shares no code with the server. Where the letter leaves a choice (bare line feeds, folded lines,
repeated equal lengths), the strict reading is taken: the stream is refused there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*(?:;[^\r\n]*)?")


class End(Enum):
    """What comes after the last complete request."""

    CLEAN = "nothing"
    REFUSED = "something that is no request"
    INCOMPLETE = "a request that is not complete"
    OPEN = "something that is not yet anything"


@dataclass
class Expected:
    """One request."""

    method: str
    target: str
    version: str
    fields: dict[str, list[str]] = field(default_factory=dict)
    body: bytes = b""

    @property
    def closes(self) -> bool:
        words = ",".join(self.fields.get("connection", [])).lower().split(",")
        return self.version != "1.1" or "close" in [word.strip() for word in words]


@dataclass
class Reading:
    """All complete requests, how the stream goes on, and the head of what is not complete."""

    requests: list[Expected]
    end: End
    unfinished: Expected | None = None


class _Refused(Exception):
    pass


class _More(Exception):
    pass


def read_stream(data: bytes) -> Reading:
    """Read a stream to its end, or to the first thing that is no request."""
    reading, at = Reading([], End.CLEAN), 0
    while True:
        while data.startswith(b"\r\n", at):
            at += 2
        if at >= len(data):
            return reading
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            reading.end = End.OPEN
            return reading
        request = None
        try:
            request = _read_head(data[at:end])
            request.body, at = _read_body(request, data, end + 4)
        except _Refused:
            reading.end, reading.unfinished = End.REFUSED, request
            return reading
        except _More:
            reading.end, reading.unfinished = End.INCOMPLETE, request
            return reading
        reading.requests.append(request)


def _read_head(head: bytes) -> Expected:
    if b"\n" in head.replace(b"\r\n", b"") or b"\r" in head.replace(b"\r\n", b""):
        raise _Refused
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise _Refused
    version = f"{int(line[3])}.{int(line[4])}"
    request = Expected(line[1].decode(), line[2].decode(), version)
    for text in lines:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise _Refused
        request.fields.setdefault(found[1].decode().lower(), []).append(found[2].decode("latin-1"))
    hosts = request.fields.get("host", [])
    if version not in {"1.0", "1.1"} or len(hosts) > 1 or (version == "1.1" and not "".join(hosts)):
        raise _Refused
    return request


def _read_body(request: Expected, data: bytes, at: int) -> tuple[bytes, int]:
    lengths = request.fields.get("content-length")
    codings = request.fields.get("transfer-encoding")
    if codings is not None:
        if lengths is not None or request.version == "1.0" or codings[0].lower() != "chunked":
            raise _Refused
        if len(codings) > 1:
            raise _Refused
        return _read_chunks(data, at)
    if lengths is None:
        return b"", at
    if len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,19}", lengths[0]):
        raise _Refused
    length = int(lengths[0])
    if len(data) - at < length:
        raise _More
    return data[at : at + length], at + length


def _read_chunks(data: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    while True:
        line, at = _read_line(data, at)
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise _Refused
        length = int(size[1], 16)
        if not length:
            break
        if data[at + length : at + length + 2] != b"\r\n":
            raise _More if len(data) < at + length + 2 else _Refused
        body += data[at : at + length]
        at += length + 2
    line = b"trailer"  # what it says is of no interest, only where it ends
    while line:
        line, at = _read_line(data, at)
    return body, at


def _read_line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _More
    return data[at:end], end + 2
