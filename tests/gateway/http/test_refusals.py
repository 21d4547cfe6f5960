"""Refused requests: the reason is told, and the next request is not damaged."""

from __future__ import annotations

import time

import pytest

from tests.gateway.http.running_server import KEY, RunningServer, get, post, with_limits

BODY_41 = b'{"model":"demo","messages":[],"stream":0}'
UNDER_KEY = "/v1/chat/completions"


def test_a_missing_key_does_not_damage_the_next_request(locked: RunningServer) -> None:
    assert len(BODY_41) == 41
    with locked.connect() as client:
        client.send(post(UNDER_KEY, BODY_41) + get("/health"))
        assert client.read_answer().status == 401
        assert client.read_answer().status == 200
        client.assert_silent()


def test_a_refused_host_does_not_damage_the_next_request(locked: RunningServer) -> None:
    with locked.connect() as client:
        foreign = post(UNDER_KEY, BODY_41).replace(b"localhost", b"evil.example")
        client.send(foreign + get("/health"))
        assert client.read_answer().status == 403
        assert client.read_answer().status == 200


def test_the_body_of_a_refused_request_may_come_later(locked: RunningServer) -> None:
    with locked.connect() as client:
        request = post(UNDER_KEY, BODY_41)
        client.send(request[:-30])
        assert client.read_answer().status == 401
        client.send(request[-30:] + get("/health"))
        assert client.read_answer().status == 200


def test_a_refused_chunked_request_closes(locked: RunningServer) -> None:
    head = f"POST {UNDER_KEY} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with locked.connect() as client:
        client.send(head.encode() + b"0\r\n\r\n" + get("/health"))
        answer = client.read_answer()
        assert (answer.status, answer.closes) == (401, True)
        assert client.read_to_end() == b""


def test_a_declared_length_above_the_limit_is_413_and_closes(locked: RunningServer) -> None:
    head = get("/x").replace(b"GET /x", b"POST /v1/chat/completions")[:-2]
    head += f"Authorization: Bearer {KEY}\r\nContent-Length: 99999999\r\n\r\n".encode()
    with locked.connect() as client:
        client.send(head + get("/health"))
        answer = client.read_answer()
        assert (answer.status, answer.closes) == (413, True)
        assert answer.error["code"] == "request_too_large"
        assert "4194304" in answer.error["message"]
        assert client.read_to_end() == b""


def test_an_upload_in_full_flight_still_gets_to_read_its_413() -> None:
    with RunningServer(with_limits(max_body_bytes=1000)) as server, server.connect() as client:
        client.send(post("/echo", b"x" * 3_000_000))
        assert client.read_answer().status == 413


@pytest.mark.parametrize("sent", [b"400\r\n" + b"x" * 1024 + b"\r\n", b"FFFFFFFFFFFFFFFF\r\nx"])
def test_a_chunked_body_above_the_limit_is_413(sent: bytes) -> None:
    with RunningServer(with_limits(max_body_bytes=1000)) as server, server.connect() as client:
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head + sent)
        answer = client.read_answer()
        assert (answer.status, answer.closes) == (413, True)
        assert client.read_to_end() == b""


def test_a_body_of_exactly_the_limit_passes() -> None:
    with RunningServer(with_limits(max_body_bytes=1000)) as server, server.connect() as client:
        assert client.ask(post("/echo", b"x" * 1000)).status == 200
        assert client.ask(post("/echo", b"x" * 1001)).status == 413


def test_a_post_without_any_length_is_411(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(b"POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (answer.status, answer.error["code"]) == (411, "length_required")
        assert client.ask(post("/echo", b"")).status == 200


def test_an_encoded_body_is_415(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(post("/echo", b"\x1f\x8b", "Content-Encoding: gzip"))
        assert answer.status == 415
        assert "gzip" in answer.error["message"]
        assert client.ask(post("/echo", b"{}", "Content-Encoding: identity")).status == 200


@pytest.mark.parametrize("path", ["/chat/completions", "/.env", "/v1", "/echo/", "/v1/none", "//"])
def test_an_unknown_path_is_404(server: RunningServer, path: str) -> None:
    with server.connect() as client:
        for request in (get(path), post(path, BODY_41)):
            answer = client.ask(request)
            assert (answer.status, answer.error["code"]) == (404, "not_found")
            assert answer.error["type"] == "invalid_request_error"


def test_a_wrong_method_is_405_with_allow(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(get("/v1/chat/completions"))
        assert (answer.status, answer.headers["allow"]) == (405, "OPTIONS, POST")
        answer = client.ask(post("/v1/models/a/b", b"{}"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        answer = client.ask(get("/health").replace(b"GET", b"DELETE"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert answer.error["code"] == "method_not_allowed"
        assert client.ask(get("/nothing").replace(b"GET", b"BREW")).status == 405
        assert client.ask(get("/health").replace(b"GET", b"get")).status == 405


def test_the_path_is_looked_at_before_the_key(locked: RunningServer) -> None:
    with locked.connect() as client:
        assert client.ask(get("/v1/nothing")).status == 404
        assert client.ask(get("/v1/chat/completions")).status == 405
        assert client.ask(get("/v1/models")).status == 401


def test_the_envelope_is_that_of_the_path(locked: RunningServer) -> None:
    messages = "/v1/messages"
    with locked.connect() as client:
        foreign = post(messages, b"{}").replace(b"localhost", b"evil.example")
        requests = [
            foreign,
            post(messages, b"{}"),
            get(messages),
            post(f"{messages}/nothing", b"{}"),
            post(f"{messages}/fail?kind=http", b"{}"),
            post(f"{messages}/fail?kind=full", b"{}"),
        ]
        for request, status in zip(requests, (403, 401, 405, 404, 418, 429), strict=True):
            answer = client.ask(request)
            assert answer.status == status
            assert answer.json["type"] == "error"
            assert answer.json["request_id"] == answer.headers["x-request-id"]


# ---- 100-continue -------------------------------------------------------------------------------


def holding_back(path: str, length: int, *fields: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "Expect: 100-continue", *fields]).encode() + b"\r\n\r\n"


@pytest.mark.timed
def test_a_body_that_is_held_back_is_asked_for(locked: RunningServer) -> None:
    body = b"x" * 300_000
    with locked.connect() as client:
        began = time.monotonic()
        client.send(holding_back(UNDER_KEY, len(body), f"x-api-key: {KEY}"))
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert time.monotonic() - began < 0.3
        answer = client.ask(body)
        assert (answer.status, len(answer.json["body"])) == (200, len(body))
        assert client.ask(get("/health")).status == 200


@pytest.mark.parametrize(
    ("path", "length", "key", "status"),
    [
        (UNDER_KEY, 300_000, "wrong", 401),
        (UNDER_KEY, 5_000_000, KEY, 413),
        ("/nothing", 300_000, KEY, 404),
        ("/health", 300_000, KEY, 405),
    ],
)
def test_a_refused_body_is_not_asked_for(
    locked: RunningServer, path: str, length: int, key: str, status: int
) -> None:
    with locked.connect() as client:
        answer = client.ask(holding_back(path, length, f"x-api-key: {key}"))
        assert (answer.status, answer.closes) == (status, True)
        assert client.read_to_end() == b""


def test_no_continue_when_the_body_is_already_there(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.ask(holding_back("/echo", 2) + b"hi").status == 200


def test_http_1_0_gets_no_continue(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(holding_back("/echo", 2).replace(b"HTTP/1.1", b"HTTP/1.0"))
        client.assert_silent()
        assert client.ask(b"hi").status == 200


# ---- failures of handlers -----------------------------------------------------------------------


def test_errors_become_answers_and_the_connection_lives(server: RunningServer) -> None:
    with server.connect() as client:
        teapot = client.ask(get("/fail?kind=http"))
        assert (teapot.status, teapot.error["param"]) == (418, "pot")
        full = client.ask(get("/fail?kind=full"))
        assert (full.status, full.headers["retry-after"]) == (429, "7")
        assert (full.error["type"], full.error["code"]) == ("rate_limit_error", "queue_full")
        context = client.ask(get("/fail?kind=context"))
        assert (context.status, context.error["param"]) == (400, "messages")
        assert context.error["code"] == "context_length_exceeded"
        assert "5000" in context.error["message"]
        assert "4094" in context.error["message"]
        for kind, status in (("crash", 503), ("unknown", 500)):
            failed = client.ask(get(f"/fail?kind={kind}"))
            assert failed.status == status
            assert ("retry-after" in failed.headers) == (status == 503)
            assert (failed.error["type"], failed.error["code"]) == ("server_error", "engine_error")
            assert b"/opt" not in failed.body


def test_a_bug_is_a_500_that_tells_nothing(server: RunningServer, errors_expected: None) -> None:
    with server.connect() as client:
        answer = client.ask(get("/fail?kind=bug"))
        assert answer.status == 500
        assert b"/opt" not in answer.body
        assert KEY.encode() not in answer.body
        assert client.ask(get("/health")).status == 200


def test_a_header_that_cannot_be_sent_is_a_500(
    server: RunningServer, errors_expected: None
) -> None:
    for value in ("a%0d%0aset-cookie:%20x", "a%00b", "%E2%82%AC"):
        with server.connect() as client:
            answer = client.ask(get(f"/headers?value={value}"))
            assert answer.status == 500
            assert "set-cookie" not in answer.headers
            assert client.read_to_end() == b""
