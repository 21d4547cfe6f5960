"""What holds for every stream: round trip, any splitting, any garbage, bounded memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_protocol import messages as m
from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.frames import EngineLineDecoder, GatewayLineDecoder, encode
from tests.protocol.strategies import (
    ENGINE_MESSAGES,
    GATEWAY_MESSAGES,
    Decoder,
    chunked,
    decode,
    mutated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GREETING = b"\x01\x01READY\x01\x01\nCAPS options\nSTAT 0 0.00 0.0 1.00\n"
GREETED = [m.Ready(), m.Caps(frozenset({"options"})), m.EngineStat(1.0)]
MIB = 1024 * 1024


@given(st.data(), st.lists(ENGINE_MESSAGES, max_size=6), st.binary(max_size=30))
def test_engine_messages_come_back_however_they_are_split(
    data: st.DataObject, messages: list[m.EngineMessage], noise: bytes
) -> None:
    stream = noise.replace(b"\x01", b"") + GREETING + b"".join(map(encode, messages))
    decoder = EngineLineDecoder()
    found, fault = decode(decoder, data.draw(chunked(stream)))
    assert fault is None
    assert found == [*GREETED, *messages]
    assert decoder.num_ignored == 0
    decoder.feed_eof()


@given(st.data(), st.lists(GATEWAY_MESSAGES, max_size=6))
def test_gateway_messages_come_back_however_they_are_split(
    data: st.DataObject, messages: list[m.GatewayMessage]
) -> None:
    stream = b"".join(map(encode, messages))
    decoder = GatewayLineDecoder()
    found, fault = decode(decoder, data.draw(chunked(stream)))
    assert fault is None
    assert found == messages
    decoder.feed_eof()


def check_any_splitting(data: st.DataObject, stream: bytes, decoders: list[Decoder]) -> None:
    whole, bytewise, chunks = decoders
    expected = decode(whole, [stream])
    assert decode(bytewise, [stream[i : i + 1] for i in range(len(stream))]) == expected
    assert decode(chunks, data.draw(chunked(stream))) == expected
    assert chunks.num_ignored == whole.num_ignored


LINES = st.sampled_from([*(b"DATA ACCEPT DONE ERROR TOKEN MODEL STATS PROGRESS PONG".split())])
WORDY = st.lists(
    st.one_of(
        LINES, st.sampled_from([b" ", b"\n", b"1", b"7 ", b"STAT", b"{}", b"EMAP "]), st.binary()
    ),
    max_size=20,
).map(b"".join)


@settings(max_examples=200)
@given(st.data(), mutated(ENGINE_MESSAGES) | WORDY | st.binary())
def test_any_garbage_of_an_engine_is_read_the_same_however_it_is_split(
    data: st.DataObject, stream: bytes
) -> None:
    check_any_splitting(data, GREETING + stream, [EngineLineDecoder() for _ in range(3)])


@settings(max_examples=200)
@given(st.data(), mutated(ENGINE_MESSAGES) | st.binary() | st.just(GREETING[3:]))
def test_any_garbage_before_the_handshake_is_read_the_same_however_it_is_split(
    data: st.DataObject, stream: bytes
) -> None:
    marks = st.sampled_from([b"", GREETING[:11], GREETING[:9], b"\x01\x01FAILED\x01\x01 9\n"])
    stream = data.draw(marks) + stream
    check_any_splitting(data, stream, [EngineLineDecoder() for _ in range(3)])


@settings(max_examples=200)
@given(st.data(), mutated(GATEWAY_MESSAGES) | WORDY | st.binary())
def test_any_garbage_of_a_gateway_is_read_the_same_however_it_is_split(
    data: st.DataObject, stream: bytes
) -> None:
    check_any_splitting(data, stream, [GatewayLineDecoder() for _ in range(3)])


@contextlib.contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """Fail when more than `limit` bytes are held at any one time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("decoder", [EngineLineDecoder(handshake=False), GatewayLineDecoder()])
def test_a_line_that_is_nobodys_is_skipped_without_being_kept(decoder: Decoder) -> None:
    chunk = b"x" * 65_536
    with bounded_memory(MIB):
        for _ in range(127):
            assert decoder.feed(chunk) == []
        assert decoder.feed(b"\n") == []
    assert decoder.num_ignored == 1
    assert decoder.last_ignored == b"x" * 64
    assert decoder.feed(
        b"STATS 1 2\n{}\n" if isinstance(decoder, EngineLineDecoder) else b"STOP 1\n"
    )


@pytest.mark.parametrize(
    ("decoder", "start", "limit"),
    [
        (EngineLineDecoder(handshake=False), b"", 8 * MIB),
        (EngineLineDecoder(handshake=False), b"FUTURE ", 8 * MIB),
        (EngineLineDecoder(handshake=False), b"EMAP 1 1 ", 8 * MIB),
        (EngineLineDecoder(handshake=False), b"DONE 1 STAT ", 64 * 1024),
        (EngineLineDecoder(handshake=False), b"ERROR 1 ", 64 * 1024),
        (GatewayLineDecoder(), b"", 8 * MIB),
        (GatewayLineDecoder(), b"SUBMIT 1 ", 64 * 1024),
    ],
)
def test_a_line_without_end_is_a_fault(decoder: Decoder, start: bytes, limit: int) -> None:
    total = len(start)
    with bounded_memory(4 * limit + MIB):
        decoder.feed(start)
        while total <= limit - 1000:
            assert decoder.feed(b"7" * 1000) == []
            total += 1000
        with pytest.raises(RemoteProtocolError, match="longer than"):
            decoder.feed(b"7" * 1000)
    with pytest.raises(RemoteProtocolError, match="already broken"):
        decoder.feed(b"\n")


def test_noise_before_the_handshake_is_not_kept() -> None:
    decoder = EngineLineDecoder()
    with bounded_memory(MIB):
        for _ in range(500):
            decoder.feed(b"\x01\x01READY" * 6000)
    assert decoder.feed(b"\n" + GREETING) == GREETED


def test_a_body_may_be_as_long_as_announced_and_no_longer() -> None:
    prompt = b"a" * (16 * MIB)
    decoder = GatewayLineDecoder()
    stream = encode(m.Submit(1, 0, prompt, 1, 0.0, 1.0))
    found: list[object] = []
    with bounded_memory(64 * MIB):
        for start in range(0, len(stream), 65_536):
            found += decoder.feed(stream[start : start + 65_536])
    assert found == [m.Submit(1, 0, prompt, 1, 0.0, 1.0)]
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"SUBMIT 2 0 16777217 1 0 1\n")
