"""Where a request ends is never a matter of opinion: ambiguous framing is refused."""

from __future__ import annotations

import time

import pytest

from tests.gateway.http.raw_client import RawClient
from tests.gateway.http.running_server import RunningServer, get, post, with_limits

HOST = b"Host: localhost\r\n"
HIDDEN = b"GET /echo?hidden=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"

# Heads (and bodies) that another parser might read differently, or not at all.
REFUSED = {
    "both lengths, valid chunks": (
        b"POST /echo HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n" + HIDDEN
    ),
    "both lengths, no chunks": (
        b"POST /echo HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"hello" + HIDDEN
    ),
    "chunks before the length": (
        b"POST /echo HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
        b"0\r\n\r\n" + HIDDEN
    ),
    "two lengths that differ": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n"
    b"Content-Length: 6\r\n\r\nhello" + HIDDEN,
    "two equal lengths": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n"
    b"Content-Length: 5\r\n\r\nhello" + HIDDEN,
    "a list of lengths": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a length in words": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: abc\r\n\r\nhello",
    "a length with a sign": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: -5\r\n\r\nhello",
    "a length with underscore": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 5_0\r\n\r\nx",
    "a hexadecimal length": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 0x5\r\n\r\nhello",
    "an empty length": b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n\r\nhello",
    "a length with a fraction": b"POST /echo HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 5.0\r\n\r\nhi",
    "a length beyond 64 bits": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\nx"
    ),
    "other digits": (
        b"POST /echo HTTP/1.1\r\n" + HOST + "Content-Length: \uff15\r\n\r\nhello".encode()
    ),
    "a space before the colon": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length : 5\r\n\r\nhello"
    ),
    "a folded header": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"X-Long: one\r\n two\r\nContent-Length: 5\r\n\r\nhello"
    ),
    "a folded length": (b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n 5\r\n\r\nhello"),
    "a folded first line": b"GET /echo HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "bare line feeds": b"GET /echo HTTP/1.1\nHost: localhost\n\n",
    "one bare line feed": b"GET /echo HTTP/1.1\r\nA: b\nHost: localhost\r\n\r\n",
    "a bare carriage return": b"GET /echo HTTP/1.1\r\nA: b\rContent-Length: 5\r\n" + HOST + b"\r\n",
    "a NUL in a header": b"GET /echo HTTP/1.1\r\nA: b\0c\r\n" + HOST + b"\r\n",
    "a header without a colon": b"GET /echo HTTP/1.1\r\nnonsense\r\n" + HOST + b"\r\n",
    "a header without a name": b"GET /echo HTTP/1.1\r\n: x\r\n" + HOST + b"\r\n",
    "a space in a header's name": b"GET /echo HTTP/1.1\r\nA B: x\r\n" + HOST + b"\r\n",
    "an unknown coding": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    ),
    "identity": b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\n\r\nhello",
    "chunked not last": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
    ),
    "chunked twice": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "an empty coding": b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "a vertical tab before chunked": (
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks in HTTP/1.0": (
        b"POST /echo HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "an empty host": b"GET /echo HTTP/1.1\r\nHost:\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "HTTP/0.9": b"GET /echo\r\n\r\n",
    "three words too many": b"GET /echo HTTP/1.1 please\r\n" + HOST + b"\r\n",
    "a space in the target": b"GET /echo me HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method with a bracket": b"G(T /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "another protocol": b"GET /echo ICY/1.1\r\n" + HOST + b"\r\n",
    "a relative target": b"GET echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "a star": b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://localhost/echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the path": b"GET /echo%00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path that is no UTF-8": b"GET /%ff HTTP/1.1\r\n" + HOST + b"\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a leading space": b" GET /echo HTTP/1.1\r\n" + HOST + b"\r\n",
}

BAD_CHUNKS = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a size in words": b"five\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a size with a space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "a size with underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "a size beyond all bounds": b"fffffffffffffffffffff\r\nhello",
    "a chunk too short": b"6\r\nhello\r\n0\r\n\r\n",
    "a chunk too long": b"4\r\nhello\r\n0\r\n\r\n",
    "line feeds in place of line ends": b"5\nhello\n0\n\n",
    "a chunk that ends in other bytes": b"5\r\nhelloXX0\r\n\r\n",
    "an end by a bare line feed": b"5\r\nhello\r\n0\r\n\n" + HIDDEN,
    "an extension with a bare carriage return": b"5;x=y\r\r\nhello\r\n0\r\n\r\n" + HIDDEN,
    "an extension with a NUL": b"5;x=\0\r\nhello\r\n0\r\n\r\n",
    "an end after a bare carriage return": b"5\r\nhello\r\n0\r\r\n\r\n" + HIDDEN,
    "a trailer with a bare carriage return": b"5\r\nhello\r\n0\r\nA: b\r\r\n\r\n" + HIDDEN,
    "a trailer over several lines": b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n",
    "a trailer that is no header": b"5\r\nhello\r\n0\r\nnonsense\r\n\r\n",
}


def assert_refused(client: RawClient, *statuses: int) -> None:
    answer = client.read_answer()
    assert answer.status in (statuses or (400,))
    assert answer.closes
    assert answer.error["message"]
    assert client.read_to_end() == b""


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_or_ambiguous_head_is_refused_and_nothing_after_it_answered(
    server: RunningServer, name: str
) -> None:
    with server.connect() as client:
        client.send(REFUSED[name])
        assert_refused(client)
    assert server.script.requests == []
    assert server.ask(get("/health")).status == 200


def test_a_coding_that_is_known_but_not_supported_is_501(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n")
        assert_refused(client, 501)


@pytest.mark.parametrize("version", [b"2.0", b"3.0", b"1.2", b"0.9"])
def test_another_version_is_505(server: RunningServer, version: bytes) -> None:
    with server.connect() as client:
        client.send(b"GET /echo HTTP/" + version + b"\r\n" + HOST + b"\r\n")
        assert_refused(client, 505)


def test_the_preface_of_http_2_is_505(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert_refused(client, 505)


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_chunks_are_refused(server: RunningServer, name: str) -> None:
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    with server.connect() as client:
        client.send(head + BAD_CHUNKS[name])
        assert_refused(client, 400, 408)  # 408: the line never ends
    assert server.script.requests == []


CHUNKED = b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD_CHUNKS = {
    "one chunk": b"5\r\nhello\r\n0\r\n\r\n",
    "capital letters": b"5\r\nhello\r\n0\r\n\r\n".replace(b"5", b"05"),
    "an extension": b"5;name=value\r\nhello\r\n0;last\r\n\r\n",
    "byte by byte": b"".join(b"1\r\n%c\r\n" % byte for byte in b"hello") + b"0\r\n\r\n",
    "a trailer": b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n",
}


@pytest.mark.parametrize("name", GOOD_CHUNKS)
def test_chunks_are_joined_and_the_next_request_starts_behind_them(
    server: RunningServer, name: str
) -> None:
    with server.connect() as client:
        client.send(CHUNKED + GOOD_CHUNKS[name] + CHUNKED + GOOD_CHUNKS[name] + get("/health"))
        assert client.read_answer().json["body"] == "hello"
        assert client.read_answer().json["body"] == "hello"
        assert client.read_answer().json["status"] == "ok"


def test_chunks_may_come_byte_by_byte(server: RunningServer) -> None:
    with server.connect() as client:
        for byte in CHUNKED + GOOD_CHUNKS["a trailer"] + post("/echo", b"next"):
            client.send(bytes([byte]))
        assert client.read_answer().json["body"] == "hello"
        assert client.read_answer().json["body"] == "next"


def test_an_empty_chunked_body_is_a_body(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.ask(CHUNKED + b"0\r\n\r\n").json["body"] == ""


def test_a_large_chunked_body_arrives_whole(server: RunningServer) -> None:
    body = bytes(range(256)) * 4096
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(piece), piece)
        for piece in (body[at : at + 10_007] for at in range(0, len(body), 10_007))
    )
    with server.connect() as client:
        answer = client.ask(CHUNKED + chunks + b"0\r\n\r\n")
        assert answer.json["body"].encode("latin-1") == body


def test_a_body_in_tiny_chunks_is_not_worth_its_time(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(CHUNKED + b"1\r\nx\r\n" * 20_000)
        assert_refused(client)


def test_an_absolute_target_is_served(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(b"GET http://localhost/echo?a=1 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (answer.json["path"], answer.json["query"]) == ("/echo", {"a": "1"})
        answer = client.ask(b"GET http://127.0.0.1:8000?a=1 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert answer.status == 404


def test_expectations_other_than_100_continue_are_417(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(post("/echo", b"x", "Expect: a-miracle"))
        assert_refused(client, 417)


def test_an_upgrade_is_ignored(server: RunningServer) -> None:
    fields = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    with server.connect() as client:
        assert client.ask(get("/health", *fields)).status == 200
        assert client.ask(post("/echo", b"x", "Upgrade: websocket")).json["body"] == "x"
        assert client.ask(get("/health")).status == 200


def test_connect_is_refused(server: RunningServer) -> None:
    with server.connect() as client:
        answer = client.ask(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.status == 400


def test_a_head_that_is_too_long_is_431() -> None:
    with RunningServer(with_limits(max_head_bytes=4096)) as server:
        for last in (b"\r\n\r\n", b""):
            with server.connect() as client:
                client.send(b"GET /echo HTTP/1.1\r\n" + HOST + b"A: " + b"a" * 5000 + last)
                assert_refused(client, 431)
        with server.connect() as client:
            client.send(b"GET /" + b"a" * 5000)
            assert_refused(client, 414)
        with server.connect() as client:
            client.send(b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert_refused(client, 414)
        with server.connect() as client:
            assert client.ask(get("/echo", "A: " + "a" * 3900)).status == 200


SPACES = " " * 60_000
HOSTILE = {
    "a length with a run of spaces": get("/echo", f"Content-Length: 1{SPACES}1"),
    "a coding with a run of spaces": get("/echo", f"Transfer-Encoding: chunked{SPACES}x"),
    "a value with a run of spaces": get("/echo", f"A: b{SPACES}\x7f"),
    "a value of many words": get("/echo", "A: " + "b " * 30_000 + "\x7f"),
    "many query fields": get("/echo?" + "a&" * 30_000),
    "much percent encoding": get("/echo?" + "%41" * 20_000),
    "many slashes": get("/" + "a/" * 30_000),
    "many commas": get("/echo", "Connection: " + "," * 60_000),
    "many expectations": get("/echo", "Expect: " + "," * 60_000),
    "a long origin": get("/health", "Origin: " + "a" * 60_000),
    "a long host": get("/health").replace(b"localhost", b"a." * 30_000),
    "many colons in the host": get("/health").replace(b"localhost", b"[" + b":" * 60_000),
    "many empty lines": b"\r\n" * 30_000 + get("/health"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_head_takes_long_to_judge(name: str) -> None:
    with RunningServer() as server:
        before = server.call(_loop_time())
        assert server.ask(HOSTILE[name]).status in {200, 400, 403, 404, 417}
        assert server.call(_loop_time()) - before < 0.2


async def _loop_time() -> float:
    """Return the processor time that the server's thread has used."""
    return time.thread_time()


def test_too_many_headers_are_431(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(get("/echo", *[f"a{n}: x" for n in range(200)]))
        assert_refused(client, 431)
