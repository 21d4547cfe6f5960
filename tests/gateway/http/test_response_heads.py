"""Heads of answers as bytes: how their bodies end, and what never gets out."""

from __future__ import annotations

import pytest

from colibri_cli.gateway.http1 import Exchange


def exchange(version: str = "1.1", method: str = "GET") -> Exchange:
    made = Exchange()
    made.read_head(f"{method} / HTTP/{version}\r\nHost: localhost\r\n\r\n".encode(), 10)
    return made


def test_a_body_of_known_length() -> None:
    made = exchange()
    head = made.encode_head(200, [("Content-Length", "3"), ("X-Empty", "")], is_closing=False)
    assert head == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Empty: \r\n\r\n"
    assert not made.is_answer_chunked


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_of_unknown_length_is_chunked(method: str) -> None:
    made = exchange(method=method)
    head = made.encode_head(200, [("A", "b")], is_closing=True)
    fields = b"A: b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
    assert head == b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n"
    assert made.is_answer_chunked


def test_where_chunks_are_not_understood_the_connection_ends_the_body() -> None:
    for made in (exchange("1.0"), Exchange()):
        head = made.encode_head(200, [], is_closing=False)
        assert head == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        assert not made.is_answer_chunked


@pytest.mark.parametrize("status", [204, 304])
def test_what_has_no_body_needs_no_end(status: int) -> None:
    made = exchange()
    head = made.encode_head(status, [("A", "b")], is_closing=False)
    assert head.endswith(b"\r\nA: b\r\n\r\n")
    assert not made.is_answer_chunked


def test_a_status_without_a_name() -> None:
    head = exchange().encode_head(599, [("Content-Length", "0")], is_closing=False)
    assert head.startswith(b"HTTP/1.1 599 Unknown\r\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A", "b\r\nSet-Cookie: c"),
        ("A", "b\r\n\r\nbody"),
        ("A", "b\nc"),
        ("A", "b\rc"),
        ("A", "b\0c"),
        ("A", " b"),
        ("A", "b\t"),
        ("A", "é"),
        ("A b", "c"),
        ("A:", "c"),
        ("", "c"),
        ("A\r\nB", "c"),
    ],
)
def test_what_would_change_the_head_cannot_be_sent(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be sent|ascii"):
        exchange().encode_head(200, [("X", "y"), (name, value)], is_closing=False)
