"""What a server sends, as the client of the upstream reads it: any split, nothing malformed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.backends.upstreams.http1 import HttpExchange, Malformed

HEADERS = [(b"Host", b"server")]
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;note=x\r\n there\r\n0\r\nTrailer: x\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello there"


def exchange(method: bytes = b"GET") -> HttpExchange:
    return HttpExchange(method, b"/x?y=1", HEADERS, b"")


def fed(pieces: list[bytes], method: bytes = b"GET") -> HttpExchange:
    asked = exchange(method)
    for piece in pieces:
        asked.feed(piece)
    return asked


def test_a_request_is_written_whole() -> None:
    headers = [*HEADERS, (b"Content-Length", b"2")]
    written = HttpExchange(b"POST", b"/x?y=1", headers, b"{}").request
    assert written == b"POST /x?y=1 HTTP/1.1\r\nHost: server\r\nContent-Length: 2\r\n\r\n{}"


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, 120), max_size=12))
def test_any_split_gives_the_same_answer(answer: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(set(cuts)), len(answer)]
    pieces = [answer[a:b] for a, b in itertools.pairwise(at)]
    asked = fed([piece for piece in pieces if piece])
    assert (asked.status, asked.take(), asked.is_complete) == (200, b"hello there", True)
    assert asked.is_kept


@given(st.binary(max_size=300), st.integers(0, len(CHUNKED)))
def test_anything_is_read_or_refused(noise: bytes, kept: int) -> None:
    asked = exchange()
    try:
        asked.feed(CHUNKED[:kept] + noise)
        asked.end()
    except Malformed:
        assert not asked.is_complete or kept == len(CHUNKED)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;\x01\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        CHUNKED + b"HTTP/1.1 200 OK\r\n",
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(Malformed):
        exchange().feed(answer)


@pytest.mark.parametrize(
    "answer",
    [b"", CHUNKED[:20], CHUNKED[:-2], CHUNKED[:-30], SIZED[:-1]],
)
def test_a_cut_answer_never_looks_complete(answer: bytes) -> None:
    asked = fed([answer] if answer else [])
    assert not asked.is_complete
    with pytest.raises(Malformed, match="within its answer"):
        asked.end()


def test_the_end_of_a_body_without_length_is_the_end_of_the_connection() -> None:
    asked = fed([b"HTTP/1.1 200 OK\r\n\r\nabc"])
    assert not asked.is_complete
    asked.end()
    assert (asked.take(), asked.is_complete, asked.is_kept) == (b"abc", True, False)


def test_which_connections_are_kept() -> None:
    for head in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ):
        asked = fed([head])
        assert (asked.is_complete, asked.is_kept) == (True, False)
    assert fed([b"HTTP/1.1 204 No Content\r\n\r\n"]).is_kept
    assert fed([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"], b"HEAD").is_kept


def test_interim_answers_are_skipped() -> None:
    asked = fed([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + SIZED])
    assert (asked.status, asked.take()) == (200, b"hello there")


def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(Malformed):
        HttpExchange(b"GET", b"/", [*HEADERS, (b"X", b"a\r\nY: b")], b"")
