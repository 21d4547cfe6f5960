"""A client that leaves is noticed at once: its handler hears of it, its stream is closed."""

from __future__ import annotations

import time

import pytest

from tests.gateway.http.raw_client import RawClient
from tests.gateway.http.running_server import RunningServer, get, post

pytestmark = pytest.mark.timed

LEAVE = {
    "close": lambda client: client.socket.close(),
    "reset": RawClient.reset,
    "half-close": RawClient.end_sending,
}
PROMPTLY_S = 1.0


@pytest.mark.parametrize("how", LEAVE)
def test_a_running_handler_hears_that_the_client_left(server: RunningServer, how: str) -> None:
    client = server.connect()
    client.send(post("/until-gone", b"{}"))
    server.script.wait_for("handler runs")
    began = time.monotonic()
    LEAVE[how](client)
    server.script.wait_for("handler saw the client leave")
    assert time.monotonic() - began < PROMPTLY_S
    client.socket.close()
    server.wait_for_connections(0)


@pytest.mark.parametrize("extra", ["", "&keepalive=9", "&keepalive=0.01"])
@pytest.mark.parametrize("how", LEAVE)
def test_a_stream_is_closed_when_the_client_leaves(
    server: RunningServer, how: str, extra: str
) -> None:
    client = server.connect()
    client.send(post(f"/stream?n=2&wait{extra}", b"{}"))
    server.script.wait_for("waiting")
    began = time.monotonic()
    LEAVE[how](client)
    server.script.wait_for("stream closed")
    assert time.monotonic() - began < PROMPTLY_S
    server.script.wait_for_records(1)
    assert server.script.records[0].is_cut
    client.socket.close()
    server.wait_for_connections(0)


@pytest.mark.parametrize(
    "query", ["n=0", "n=2", "n=2&wait", "n=2&wait&keepalive=9", "n=100000&size=100"]
)
@pytest.mark.parametrize("how", LEAVE)
def test_a_stream_for_nobody_is_begun_and_closed(
    server: RunningServer, how: str, query: str
) -> None:
    """A generator that never began could not give back what it holds."""
    client = server.connect()
    client.send(post(f"/stream?late&{query}", b"{}"))
    server.script.wait_for("handler runs")
    LEAVE[how](client)
    server.script.wait_for("stream closed")
    client.socket.close()
    server.wait_for_connections(0)
    assert server.script.events.count("piece sent") < 100


def test_a_client_that_leaves_between_pieces_is_noticed(server: RunningServer) -> None:
    client = server.connect()
    client.send(post("/stream?n=1000&pause=0.02", b"{}"))
    server.script.wait_for("piece sent")
    client.socket.close()
    server.script.wait_for("stream closed")
    assert server.script.events.count("piece sent") < 50


@pytest.mark.parametrize("how", LEAVE)
def test_leaving_before_the_request_is_complete_runs_nothing(
    server: RunningServer, how: str
) -> None:
    for part in (b"", b"POST", post("/echo", b"hello")[:-2], post("/echo", b"x" * 99_999)[:-2]):
        client = server.connect()
        client.send(part)
        LEAVE[how](client)
        if how == "half-close":
            assert client.read_to_end() == b""
            client.socket.close()
    server.wait_for_connections(0)
    assert server.script.requests == []
    assert server.script.records == []


def test_resets_do_not_disturb_the_server(server: RunningServer) -> None:
    for _ in range(5):
        client = server.connect()
        client.send(get("/health"))
        client.reset()
    assert server.ask(get("/health")).status == 200


def test_a_request_may_be_followed_by_the_next_while_it_runs(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/until-gate", b"{}"))
        server.script.wait_for("handler runs")
        client.send(get("/health"))
        client.assert_silent()
        server.open_gate()
        assert client.read_answer().json == {"waited": True}
        assert client.read_answer().json["status"] == "ok"
