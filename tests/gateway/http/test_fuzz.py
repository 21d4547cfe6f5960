"""The fuzzer, short and long, and its judge."""

from __future__ import annotations

import logging

import pytest

from colibri_cli.gateway.access_log import LOGGER_NAME
from tests.gateway.http.fuzz_requests import Broken, fuzz, judge
from tests.gateway.http.reference_reader import End, read_stream

GET = b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
EMPTY = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
CLOSING = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_mutated_requests_never_confuse_the_server() -> None:
    report = fuzz(num_requests=4_000, seed=20)
    assert report.num_requests >= 4_000
    assert {200, 204, 400, 401, 403, 404, 405, 411} <= set(report.statuses)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_requests_never_confuse_the_server_for_long(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER_NAME)  # what pytest keeps of the log is no leak
    report = fuzz(num_requests=100_000, seed=seed)
    assert report.grown_kib < 64 * 1024
    print(report)


@pytest.mark.parametrize(
    ("data", "num_requests", "end"),
    [
        (b"", 0, End.CLEAN),
        (GET * 3, 3, End.CLEAN),
        (GET + b"GET", 1, End.OPEN),
        (GET + b"GET /\r\n\r\n", 1, End.REFUSED),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\nx"), 0, End.INCOMPLETE),
        (GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\nx") + GET, 2, End.CLEAN),
    ],
)
def test_the_judge_counts_requests(data: bytes, num_requests: int, end: End) -> None:
    reading = read_stream(data)
    assert (len(reading.requests), reading.end) == (num_requests, end)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (GET, b""),
        (GET, EMPTY * 2),
        (GET * 2, EMPTY),
        (GET * 2, CLOSING + EMPTY),
        (GET + b"GET /\r\n\r\n", EMPTY * 2),
        (GET, OK),
        (GET, EMPTY[:-3]),
        (b"GET", OK),
    ],
)
def test_the_judge_is_strict(sent: bytes, received: bytes) -> None:
    with pytest.raises(Broken):
        judge(sent, received, is_mutated=True)


def test_the_judge_is_fair() -> None:
    judge(GET * 2, EMPTY * 2, is_mutated=True)
    judge(GET * 2, CLOSING, is_mutated=True)
    judge(b"GET", b"", is_mutated=True)
    judge(GET + b"GET /\r\n\r\n", EMPTY + CLOSING, is_mutated=True)
