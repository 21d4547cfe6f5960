"""Slow and greedy clients are let go in time, and never at the cost of the others."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from colibri_cli.gateway.limits import ConnectionTable, Limits
from tests.gateway.http.fuzz_requests import resident_kib
from tests.gateway.http.raw_client import parse_answer
from tests.gateway.http.running_server import RunningServer, get, post, with_limits

if TYPE_CHECKING:
    from tests.gateway.http.raw_client import RawClient

pytestmark = pytest.mark.timed

DRIP_S = 0.05


def drip(client: RawClient, data: bytes, for_s: float) -> float:
    """Send a byte now and then until the server closes; return how long it took."""
    began = time.monotonic()
    client.socket.settimeout(DRIP_S)
    for byte in data:
        try:
            client.socket.sendall(bytes([byte]))
            if received := client.socket.recv(65536):
                client.received += received
            else:
                break
        except TimeoutError:
            continue
        except OSError:
            break
        assert time.monotonic() - began < for_s, "never let go"
    return time.monotonic() - began


def test_a_silent_connection_is_closed_without_a_word(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.read_to_end() == b""


def test_a_head_that_drips_is_cut_at_the_deadline(server: RunningServer) -> None:
    with server.connect() as client:
        assert 0.3 < drip(client, b"GET /health HTTP/1.1 " + b"x" * 200, 3) < 2
        assert client.received == b""  # no request line, nobody to answer
    with server.connect() as client:
        client.send(b"GET /health HTTP/1.1\r\n")
        assert 0.3 < drip(client, b"a: " + b"a" * 200, 3) < 2
        assert parse_answer(client.received)[0].status == 408


def test_a_body_that_drips_is_cut_at_the_deadline(server: RunningServer) -> None:
    for head in (
        post("/echo", b"", "A: b").replace(b"Content-Length: 0", b"Content-Length: 500"),
        get("/echo", "Content-Length: 500"),
    ):
        with server.connect() as client:
            client.send(head)
            assert 0.3 < drip(client, b"x" * 200, 3) < 2
            answer, _ = parse_answer(client.received)
            assert (answer.status, answer.closes) == (408, True)
    assert server.script.requests == []


def test_chunks_that_drip_are_cut_at_the_deadline(server: RunningServer) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as client:
        client.send(head)
        assert 0.3 < drip(client, b"1\r\nx\r\n" * 100, 3) < 2
        assert parse_answer(client.received)[0].status == 408


def test_empty_lines_do_not_put_the_deadline_off(server: RunningServer) -> None:
    with server.connect() as client:
        assert 0.3 < drip(client, b"\r\n" * 100, 3) < 2


def test_the_skipped_body_of_a_refused_request_has_a_deadline_too(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/nothing", b"").replace(b"Content-Length: 0", b"Content-Length: 500"))
        assert client.read_answer().status == 404
        assert 0.3 < drip(client, b"x" * 200, 3) < 2


def test_an_idle_kept_connection_is_closed(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.ask(get("/health")).status == 200
        began = time.monotonic()
        assert client.read_to_end() == b""
        assert 0.5 < time.monotonic() - began < 2


def test_an_answer_that_takes_longer_than_all_deadlines_is_not_cut(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(post("/stream?n=8&pause=0.1", b"{}"))
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert len(answer.chunks) >= 8
        assert client.ask(get("/health")).status == 200
    with server.connect() as client:
        client.send(post("/until-gate", b"{}"))
        client.assert_silent(1.0)
        server.open_gate()
        assert client.read_answer().json == {"waited": True}


def test_slow_senders_go_and_others_are_served(server: RunningServer) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(100)]
        for client in slow:
            client.send(b"G")
        slowest = 0.0
        for round_number in range(6):
            began = time.monotonic()
            assert server.ask(get("/health")).status == 200
            slowest = max(slowest, time.monotonic() - began)
            for client in slow:
                try:
                    client.send(b"ET / HTTP/1.1"[round_number : round_number + 1])
                except OSError:  # let go already
                    assert round_number
            time.sleep(DRIP_S)
        for client in slow:
            assert client.read_to_end() == b""
    assert slowest < 1
    server.wait_for_connections(0)


@pytest.mark.parametrize("kind", ["head", "body", "answer"])
def test_two_hundred_slow_clients_do_not_slow_down_the_others(kind: str) -> None:
    openings = {
        "head": b"GET /health HT",
        "body": post("/echo", b"").replace(b"Content-Length: 0", b"Content-Length: 500") + b"x",
        "answer": get("/stream?n=1&wait"),
    }
    with RunningServer(Limits()) as server, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(server.connect()).send(openings[kind])
        server.wait_for_connections(200)
        for _ in range(20):
            began = time.monotonic()
            assert server.ask(get("/health")).status == 200
            assert time.monotonic() - began < 1


@pytest.mark.slow
def test_a_thousand_idle_connections_cost_little() -> None:
    with RunningServer(Limits(idle_s=600)) as server, ExitStack() as stack:
        before = resident_kib()
        for _ in range(1000):
            client = stack.enter_context(server.connect())
            assert client.ask(get("/health")).status == 200
        assert server.server.num_connections == 1000
        assert resident_kib() - before < 100 * 1024


# ---- clients that do not read -------------------------------------------------------------------


def small_window(server: RunningServer) -> RawClient:
    """Return a connection whose system takes little that the client does not read."""
    client = server.connect()
    client.socket.close()
    client.socket = socket.socket()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.socket.settimeout(5)
    client.socket.connect(("127.0.0.1", server.port))
    return client


def test_a_client_that_takes_nothing_is_let_go_and_its_stream_closed(
    server: RunningServer,
) -> None:
    with small_window(server) as client:
        client.send(post("/stream?n=100000&size=10000", b"{}"))
        server.script.wait_for("stream closed", 10)
    sent = server.script.events.count("piece sent") * 10_000
    assert sent < 20_000_000, "the source was not held up"


def test_a_client_that_takes_nothing_of_a_large_answer_is_let_go(server: RunningServer) -> None:
    with small_window(server) as client:
        client.send(get("/big?n=30000000"))
        server.script.wait_for_records(1, 10)
        assert server.script.records[0].is_cut
    server.wait_for_connections(0)


def test_a_client_that_reads_slowly_gets_everything(server: RunningServer) -> None:
    with small_window(server) as client:
        client.send(get("/big?n=400000", "Connection: close"))
        received = b""
        while piece := client.socket.recv(2048):
            received += piece
            time.sleep(0.002)
        assert parse_answer(received)[0].body == b"b" * 400_000


def test_a_pipeline_without_reading_is_held_up(server: RunningServer) -> None:
    with small_window(server) as client:
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.socket.sendall(get("/big?n=100000") * 400_000)
        answered = len(server.script.records)
        assert answered < 200


# ---- how many connections -----------------------------------------------------------------------


def test_one_address_may_not_take_all_connections() -> None:
    limits = with_limits(
        max_connections=20, max_connections_per_address=5, is_loopback_exempt=False
    )
    with RunningServer(limits) as server, ExitStack() as stack:
        dribbling = [stack.enter_context(server.connect()) for _ in range(40)]
        for client in dribbling:
            try:
                client.send(b"G")
            except OSError:
                continue
        server.wait_for_connections(5)
        assert server.server.table.num_refused == 35
        refused = sum(client.read_to_end() == b"" for client in dribbling)
        assert refused == 40  # the last five by their deadline
        server.wait_for_connections(0)
        assert server.ask(get("/health")).status == 200


def test_loopback_is_exempt_from_the_limit_of_one_address() -> None:
    limits = Limits(max_connections_per_address=5)
    with RunningServer(limits) as server, ExitStack() as stack:
        for _ in range(30):
            assert stack.enter_context(server.connect()).ask(get("/health")).status == 200
        assert server.server.num_connections == 30


def test_over_the_total_the_oldest_unfinished_request_goes_first() -> None:
    with RunningServer(Limits(max_connections=4)) as server, ExitStack() as stack:
        busy = stack.enter_context(server.connect())
        busy.send(post("/until-gate", b"{}"))
        server.script.wait_for("handler runs")
        waiting = []
        for number in range(3):
            client = stack.enter_context(server.connect())
            client.send(b"GET /health HTTP/1.1\r\n")
            server.wait_for_connections(number + 2)
            waiting.append(client)
        assert server.ask(get("/health")).status == 200
        assert waiting[0].read_to_end() == b""
        assert waiting[1].ask(b"Host: localhost\r\n\r\n").status == 200
        for _ in range(2):  # now the third waits longest
            extra = stack.enter_context(server.connect())
            assert extra.ask(get("/health")).status == 200
        assert waiting[2].read_to_end() == b""
        server.open_gate()
        assert busy.read_answer().json == {"waited": True}


def test_when_all_are_busy_the_newcomer_is_refused() -> None:
    with RunningServer(Limits(max_connections=2)) as server, ExitStack() as stack:
        for number in range(2):
            stack.enter_context(server.connect()).send(post("/until-gate", b"{}"))
            server.wait_for_connections(number + 1)
        assert server.server.num_connections == 2
        newcomer = stack.enter_context(server.connect())
        newcomer.send(get("/health"))
        assert newcomer.read_to_end() == b""


def test_input_of_all_connections_together_is_bounded() -> None:
    limits = Limits(max_body_bytes=1_000_000, max_input_bytes=0)  # room for two full bodies
    with RunningServer(limits) as server, ExitStack() as stack:
        head = post("/echo", b"").replace(b"Content-Length: 0", b"Content-Length: 900000")
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in clients:
            client.send(head + b"x" * 890_000)
            server.call(asyncio.sleep(0.05))
        assert server.server.table.input_bytes <= limits.input_budget
        assert clients[0].read_to_end() == b""
        assert clients[3].ask(b"x" * 10_000).status == 200


# ---- the table alone ----------------------------------------------------------------------------


class FakeConnection:
    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_evicted = False

    def evict(self, reason: str) -> None:
        assert reason
        self.is_evicted = True


def test_one_ipv6_network_counts_as_one_address() -> None:
    table = ConnectionTable(Limits(max_connections_per_address=2))
    peers = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1", "fe80::1%eth0"]
    assert [table.admit(FakeConnection(peer)) is None for peer in peers] == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_removing_twice_counts_once() -> None:
    table = ConnectionTable(Limits(max_connections_per_address=1))
    first, second = FakeConnection("192.0.2.1"), FakeConnection("192.0.2.1")
    assert table.admit(first) is None
    assert table.admit(second) is not None
    table.remove(second)
    table.remove(first)
    table.remove(first)
    assert table.admit(second) is None
    assert len(table) == 1
