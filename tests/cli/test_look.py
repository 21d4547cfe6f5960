"""One look at a server: what is read of its answer, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from colibri_cli.backends.upstreams.look import Seen, look

LONG = b"x" * 200_000


async def seen(answer: bytes, path: str = "/health", **headers: str) -> tuple[Seen, bytes]:
    """Return what is seen of a server that answers so, and what was asked."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await look(f"http://127.0.0.1:{port}{path}", headers), asked


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n" + LONG,
        b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + LONG + b"more",
    ],
    ids=["to the end of the connection", "as long as it says"],
)
def test_a_body_is_read_whole(answer: bytes) -> None:
    found, _ = asyncio.run(seen(answer))
    assert (found.status, found.content) == (200, LONG)


def test_headers_go_out_and_come_back_in_lower_case() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n{}"
    found, asked = asyncio.run(seen(answer, "/v1/models", Authorization="Bearer k"))
    assert (found.status, found.headers["retry-after"], found.content) == (429, "7", b"{}")
    assert asked.startswith(b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer k\r\n" in asked


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"220 mail ready\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + LONG,
    ],
    ids=["nothing", "no end", "mail", "no status", "cut", "too long", "a head without an end"],
)
def test_what_is_no_answer_is_a_value_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        asyncio.run(seen(answer))


@pytest.mark.parametrize("url", ["ftp://host/", "localhost:8000", "http://host:port/", "http://"])
def test_what_is_no_address_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        asyncio.run(look(url, {}))


def test_a_key_cannot_add_a_header() -> None:
    with pytest.raises(ValueError, match="control character"):
        asyncio.run(look("http://127.0.0.1:9/", {"Authorization": "Bearer k\r\nHost: evil"}))
