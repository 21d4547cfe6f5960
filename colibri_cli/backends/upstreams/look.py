"""One look at a server: a GET without httpx, which takes longer to import than a prompt to appear.

HTTP/1.0 is spoken, so that no body comes in chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_ANSWER: Final = 8 * 1024 * 1024
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server answered; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


async def look(url: str, headers: Mapping[str, str]) -> Seen:
    """Return what a server answers; cancelling closes the connection.

    Raises:
        OSError: nobody answers.
        ValueError: the address, a header or the answer is none.
    """
    request, host, port, is_secure = _request(url, headers)
    reader, writer = await asyncio.open_connection(host, port, ssl=is_secure or None)
    try:
        writer.write(request)
        return await _read(reader)
    except (EOFError, asyncio.LimitOverrunError) as error:
        raise ValueError("the answer broke off, or is not HTTP") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # it may be gone already
            await writer.wait_closed()


def _request(url: str, headers: Mapping[str, str]) -> tuple[bytes, str, int, bool]:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not the URL of a server")
    lines = [f"GET {parts.path or '/'} HTTP/1.0", f"Host: {parts.netloc.rpartition('@')[2]}"]
    lines.append("Connection: close")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any(not line.isprintable() for line in lines):
        raise ValueError("a control character in the address or in the key")
    request = "\r\n".join([*lines, "", ""]).encode("ascii")
    port = parts.port or _PORTS[parts.scheme]
    return request, parts.hostname, port, parts.scheme == "https"


async def _read(reader: asyncio.StreamReader) -> Seen:
    """Read an answer: as many bytes as it says, or until the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    version, _, rest = first.partition(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", str(_MAX_ANSWER))
    if not version.startswith("HTTP/") or not rest[:3].isdecimal() or not length.isdecimal():
        raise ValueError("not HTTP")
    if int(length) > _MAX_ANSWER:
        raise ValueError(f"an answer of more than {_MAX_ANSWER} bytes")
    if "content-length" in headers:
        return Seen(int(rest[:3]), headers, await reader.readexactly(int(length)))
    content = bytearray()
    while (piece := await reader.read(65536)) and len(content) <= _MAX_ANSWER:
        content += piece
    return Seen(int(rest[:3]), headers, bytes(content))
