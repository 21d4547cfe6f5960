"""Connections to a server: kept, given up, and never used for a second try of what was written."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from colibri_cli.backends.upstreams import transport
from colibri_cli.backends.upstreams.transport import KeepAliveTransport
from tests.fakes.supervised import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """Answers each request of a connection with the next of some bytes; None: it hangs up."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.num_requests = 0
        self.num_connections = 0
        self.num_closed = 0
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.num_requests += 1
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        self.num_closed += 1
        writer.close()


@asynccontextmanager
async def peer_and_client(
    *answers: bytes | None,
) -> AsyncIterator[tuple[Peer, httpx.AsyncClient]]:
    peer = Peer(*answers)
    server = await asyncio.start_server(peer.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", transport=KeepAliveTransport())
    async with client:
        yield peer, client
    server.close()
    await until(lambda: peer.num_closed == peer.num_connections)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - it is the peer's state
        await asyncio.sleep(0.01)


def test_a_connection_is_used_again() -> None:
    async def body() -> None:
        async with peer_and_client(OK) as (peer, client):
            for _ in range(3):
                assert (await client.get("/")).text == "ok"
            assert (peer.num_requests, peer.num_connections) == (3, 1)

    run_async(body)


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


def test_a_connection_rests_after_a_stream() -> None:
    """Some servers close it then without a word, and the next request would be lost."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STREAM)
        writer.close()
        await writer.wait_closed()

    async def body() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, transport=KeepAliveTransport()) as client:
            for _ in range(50):
                assert (await client.get("/")).text == "ok"
        server.close()
        await asyncio.sleep(0.02)

    run_async(body)


def test_a_connection_that_stayed_open_after_a_stream_is_used_again() -> None:
    async def body() -> None:
        async with peer_and_client(STREAM) as (peer, client):
            for _ in range(2):
                assert (await client.get("/")).text == "ok"
            assert peer.num_connections == 2
            await asyncio.sleep(0.1)
            assert (await client.get("/")).text == "ok"
            assert (peer.num_requests, peer.num_connections) == (3, 2)

    run_async(body)


@pytest.mark.parametrize(
    "answer",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_one_that_is_to_be_closed_is_not(answer: bytes) -> None:
    async def body() -> None:
        async with peer_and_client(answer) as (peer, client):
            for _ in range(2):
                assert (await client.get("/")).text == "ok"
            assert peer.num_connections == 2

    run_async(body)


def test_one_that_was_silent_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEPALIVE_S", 0.0)

    async def body() -> None:
        async with peer_and_client(OK) as (peer, client):
            for _ in range(2):
                await client.get("/")
                await asyncio.sleep(0.01)
            assert peer.num_connections == 2

    run_async(body)


def test_an_answer_that_is_left_closes_its_connection() -> None:
    async def body() -> None:
        cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbegun"
        async with peer_and_client(cut) as (peer, client):
            async with client.stream("GET", "/") as response:
                assert await anext(response.aiter_raw()) == b"begun"
            await until(lambda: peer.num_closed == 1)

    run_async(body)


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_no_answer_is_an_error_and_no_second_try(answer: bytes | None) -> None:
    async def body() -> None:
        async with peer_and_client(answer) as (peer, client):
            with pytest.raises(httpx.ReadError):
                await client.get("/")
            assert peer.num_requests == 1

    run_async(body)


def test_bytes_that_were_not_asked_for_end_a_connection() -> None:
    async def body() -> None:
        async with peer_and_client(OK + b"HTTP/1.1 200 OK\r\n", OK) as (peer, client):
            with pytest.raises(httpx.ReadError, match="more than its answer"):
                await client.get("/")
            assert (await client.get("/")).text == "ok"
            assert peer.num_connections == 2

    run_async(body)


def test_nobody_there_is_told_as_such() -> None:
    async def body() -> None:
        async with peer_and_client(OK) as (_, client):
            url = str(client.base_url)
            await client.get("/")
        async with httpx.AsyncClient(transport=KeepAliveTransport()) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    run_async(body)


def test_a_server_without_tls_is_no_https_server() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def body() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(transport=KeepAliveTransport()) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"https://127.0.0.1:{port}/")
        server.close()

    run_async(body)
