"""Streamed answers: chunks on a kept connection, coalescing, breaks that never look finished."""

from __future__ import annotations

import pytest

from tests.gateway.http.running_server import SECRET_PATH, RunningServer, get, post


def test_a_stream_is_chunked_and_the_connection_is_kept(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(post("/stream?n=3", b"{}"))
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["x-request-id"].startswith("req_")
        assert not answer.closes
        assert answer.body == b"data: 0 x\n\ndata: 1 x\n\ndata: 2 x\n\ndata: [DONE]\n\n"
        assert client.ask(get("/health")).status == 200


def test_pieces_that_are_ready_together_are_one_chunk(server: RunningServer) -> None:
    with server.connect() as client:
        assert len(client.ask(post("/stream?n=500", b"{}")).chunks) == 1
        assert len(client.ask(post("/stream?n=3&pause=0.05", b"{}")).chunks) >= 3


def test_the_head_is_sent_before_the_first_piece(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/stream?n=0&wait", b"{}"))
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        client.assert_silent()
        server.open_gate()
        assert client.read_until(b"0\r\n\r\n").endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_an_endless_source_of_ready_pieces_leaves_time_for_others(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/stream?n=20000&size=100", b"{}"))
        assert server.ask(get("/health")).status == 200
        assert client.read_answer().body.endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_stream_that_breaks_does_not_look_finished(
    server: RunningServer, version: str, errors_expected: None
) -> None:
    request = post("/stream?n=2&fail", b"{}").replace(b"HTTP/1.1", f"HTTP/{version}".encode())
    with server.connect() as client:
        client.send(request + get("/health"))
        wire = client.read_to_end()
    assert wire.count(b"HTTP/1.1 ") == 1
    assert b"data: 1 x\n\n" in wire
    assert b"[DONE]" not in wire
    assert not wire.endswith(b"0\r\n\r\n")
    assert SECRET_PATH.encode() not in wire
    assert server.script.records[0].is_cut


def test_silences_are_filled_and_the_end_is_the_end(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/stream?n=1&wait&keepalive=0.02", b"{}"))
        assert client.read_until(b": ping\n\n")
        server.open_gate()
        assert client.read_until(b"data: [DONE]\n\n")
        assert client.read_until(b"0\r\n\r\n") == b"\r\n0\r\n\r\n"
        client.assert_silent()


def test_large_pieces_arrive_whole(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(post("/stream?n=50&size=100000", b"{}"))
        assert answer.body.count(b"x") == 50 * 100_000
