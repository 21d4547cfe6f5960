"""The end of a server: answers finish, idle connections close, the rest is cut after the grace."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from colibri_cli.gateway.listeners import TcpAddress, open_listeners
from colibri_cli.gateway.server import Server, ServerOptions
from tests.gateway.http.running_server import RunningServer, get, post

if TYPE_CHECKING:
    from colibri_cli.gateway.services import Services

pytestmark = pytest.mark.timed


def drain_in_background(server: RunningServer, grace_s: float) -> threading.Thread:
    thread = threading.Thread(target=lambda: server.call(server.server.drain(grace_s), 20))
    thread.start()
    return thread


def test_a_running_answer_is_finished_and_the_end_announced(server: RunningServer) -> None:
    with server.connect() as client, server.connect() as idle:
        assert idle.ask(get("/health")).status == 200
        client.send(post("/until-gate", b"{}"))
        server.script.wait_for("handler runs")
        draining = drain_in_background(server, 10)
        assert idle.read_to_end() == b""
        with pytest.raises(OSError, match="refused"):
            server.connect()
        server.open_gate()
        answer = client.read_answer()
        assert (answer.json, answer.closes) == ({"waited": True}, True)
        assert client.read_to_end() == b""
        draining.join(5)
        assert not draining.is_alive()


def test_a_stream_is_finished(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/stream?n=5&pause=0.1", b"{}"))
        server.script.wait_for("piece sent")
        draining = drain_in_background(server, 10)
        assert client.read_answer().body.endswith(b"[DONE]\n\n")
        assert client.read_to_end() == b""
        draining.join(5)


def test_after_the_grace_the_rest_is_cut_and_cleaned_up(server: RunningServer) -> None:
    with server.connect() as waiting, server.connect() as streaming:
        waiting.send(post("/until-gate", b"{}"))
        streaming.send(post("/stream?n=1&wait", b"{}"))
        server.script.wait_for("handler runs")
        server.script.wait_for("waiting")
        began = time.monotonic()
        drain_in_background(server, 0.2).join(5)
        assert waiting.read_to_end() == b""
        assert not streaming.read_to_end().endswith(b"0\r\n\r\n")
        assert 0.1 < time.monotonic() - began < 2
    server.script.wait_for("handler cancelled")
    server.script.wait_for("stream closed")


@pytest.mark.parametrize("cut", [-60, -6, -3])
def test_a_request_in_transit_is_still_answered(cut: int) -> None:
    request = post("/echo", b"hello")
    with RunningServer() as server, server.connect() as client:
        client.send(request[:cut])
        server.call(asyncio.sleep(0.05))
        draining = drain_in_background(server, 5)
        server.call(asyncio.sleep(0.05))
        answer = client.ask(request[cut:])
        assert (answer.json["body"], answer.closes) == ("hello", True)
        draining.join(5)


def test_a_server_that_was_never_served_ends_too() -> None:
    async def begin_and_end() -> None:
        options = ServerOptions(addresses=(TcpAddress("127.0.0.1", 0),))
        server = Server(cast("Services", object()), options, ())
        await server.bind()
        (address,) = server.addresses
        await server.drain(0)
        await server.serve()
        open_listeners((address,), 1)[0].close()  # the port is free again

    asyncio.run(begin_and_end())
