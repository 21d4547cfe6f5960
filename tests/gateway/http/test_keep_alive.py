"""Kept connections, pipelines, HTTP/1.0, HEAD: which bytes answer which."""

from __future__ import annotations

import re

from tests.gateway.http.running_server import KEYS, RunningServer, get, post

TWO_AT_ONCE = (
    b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nfirst"
    b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nsecond"
)


def test_one_connection_serves_many_requests(server: RunningServer) -> None:
    with server.connect() as client:
        for text in (b"one", b"two", b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            answer = client.ask(post("/echo", text))
            assert (answer.status, answer.json["body"]) == (200, text.decode())
            assert not answer.closes


def test_a_pipeline_is_answered_in_order(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(TWO_AT_ONCE + get("/health"))
        assert [client.read_answer().json.get("body") for _ in range(3)] == [
            "first",
            "second",
            None,
        ]
        client.assert_silent()


def test_a_request_may_come_byte_by_byte(server: RunningServer) -> None:
    with server.connect() as client:
        for byte in TWO_AT_ONCE:
            client.send(bytes([byte]))
        assert client.read_answer().json["body"] == "first"
        assert client.read_answer().json["body"] == "second"


def test_a_long_pipeline_does_not_keep_others_waiting(server: RunningServer) -> None:
    with server.connect() as greedy, server.connect() as modest:
        greedy.send(get("/health") * 500)
        assert modest.ask(get("/health")).status == 200
        for _ in range(500):
            assert greedy.read_answer().status == 200


def test_the_client_may_ask_for_the_end(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(get("/health", "Connection: close"))
        assert answer.closes
        assert client.read_to_end() == b""


def test_what_follows_the_last_request_is_not_answered(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get("/health", "Connection: Keep-Alive, Close") + get("/health"))
        assert client.read_answer().closes
        assert client.read_to_end() == b""


def test_http_1_0_closes_and_needs_no_host(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(b"GET /health HTTP/1.0\r\n\r\n")
        assert (answer.status, answer.closes) == (200, True)
        assert client.read_to_end() == b""


def test_http_1_0_gets_a_stream_without_chunks(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"GET /stream?n=2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        wire = client.read_to_end()
    head, _, body = wire.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"data: 0 x\n\ndata: 1 x\n\ndata: [DONE]\n\n"


def test_head_is_get_without_the_body(server: RunningServer) -> None:
    with server.connect() as client:
        whole = client.ask(get("/health"))
        head = client.ask(get("/health").replace(b"GET", b"HEAD"), is_head=True)
        assert head.status == 200
        assert head.headers["content-length"] == whole.headers["content-length"]
        assert client.ask(get("/nothing").replace(b"GET", b"HEAD"), is_head=True).status == 404
        assert client.ask(get("/health")).body == whole.body


def test_head_of_a_stream_has_no_body_and_the_connection_lives(server: RunningServer) -> None:
    with server.connect() as client:
        head = client.ask(get("/stream").replace(b"GET", b"HEAD"), is_head=True)
        assert head.headers["content-type"] == "text/event-stream"
        assert client.ask(get("/health")).status == 200


def test_a_get_may_have_a_body(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(
            get("/echo", "Content-Length: 4") + b"bodyGET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        assert client.read_answer().json["body"] == "body"
        assert client.read_answer().status == 403  # the host "a"


def test_empty_lines_before_a_request_are_skipped(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.ask(b"\r\n\r\n" + post("/echo", b"x")).status == 200
        assert client.ask(b"\r\n" + get("/health")).status == 200


def test_a_client_that_only_stopped_sending_gets_all_it_asked_for(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(TWO_AT_ONCE)
        client.end_sending()
        assert client.read_answer().json["body"] == "first"
        assert client.read_answer().json["body"] == "second"
        assert client.read_to_end() == b""


def test_common_headers(server: RunningServer) -> None:
    answer = server.ask(get("/health"))
    assert answer.headers["server"].startswith("colibri")
    assert answer.headers["content-type"] == "application/json"
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.headers["date"])
    assert server.ask(get("/health")).headers["x-request-id"] != answer.headers["x-request-id"]


def test_refusals_and_answers_take_turns_on_one_connection() -> None:
    key, bad_key = "Authorization: Bearer k-UNIQUE-123", "x-api-key: wrong"
    with RunningServer(keys=KEYS) as server, server.connect() as client:
        for number in range(4):
            body = b'{"prompt": "%d"}' % number
            foreign = post("/v1/chat/completions", body, key).replace(b"localhost", b"evil.example")
            assert client.ask(foreign).status == 403
            assert client.ask(post("/v1/chat/completions", body, bad_key)).status == 401
            assert client.ask(post("/nowhere", body, key)).status == 404
            answer = client.ask(post("/v1/chat/completions", body, key))
            assert (answer.status, answer.json["body"]) == (200, body.decode())
            assert client.ask(post("/health", body, key)).status == 405
