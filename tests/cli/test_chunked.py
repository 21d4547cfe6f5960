"""Chunked bodies: the same payload however they are cut, and what follows them is left alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.chunked import ChunkDecoder, MalformedChunks

END = b"0\r\nX-Sum: 1\r\n\r\n"


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    behind=st.binary(max_size=20),
    cuts=st.lists(st.integers(1, 30), max_size=40),
)
def test_cuts_change_nothing(pieces: list[bytes], behind: bytes, cuts: list[int]) -> None:
    sent = b"".join(b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + END
    decoder, payload, rest = ChunkDecoder(), b"", sent
    for cut in [*cuts, len(sent)]:
        data, rest = rest[:cut], rest[cut:]
        assert not decoder.is_complete or not data
        if data:
            payload += decoder.feed(data if rest else data + behind)
    assert payload == b"".join(pieces)
    assert decoder.is_complete
    assert decoder.leftover == behind


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    decoder, payload = ChunkDecoder(), b""
    with suppress(MalformedChunks):
        for byte in data:
            payload += decoder.feed(bytes([byte]))
    assert len(payload) <= len(data)


def test_it_says_how_much_a_chunk_still_has_to_bring() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"A\r\nabc") == b"abc"
    assert decoder.num_due == 7


@pytest.mark.parametrize(
    ("endless", "reason"), [(b"5;" + b"x" * 5000, "longer"), (b"1\r\nx\r\n" * 20_000, "too small")]
)
def test_what_is_mostly_overhead_is_refused(endless: bytes, reason: str) -> None:
    with pytest.raises(MalformedChunks, match=reason):
        ChunkDecoder().feed(endless)


def test_small_chunks_may_come_for_ever_where_that_is_expected() -> None:
    decoder = ChunkDecoder(may_be_small=True)
    assert decoder.feed(b"1\r\nx\r\n" * 20_000) == b"x" * 20_000
    with pytest.raises(MalformedChunks, match="too small"):  # a trailer is bounded all the same
        decoder.feed(b"0\r\n" + b"a: b\r\n" * 20_000)


@pytest.mark.parametrize(
    "body",
    [
        b"5;a=\x00\r\nhello\r\n",
        b"5;a=\r\r\nhello\r\n",
        b"5;a=b\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhello\n",
        b" 5\r\nhello\r\n",
        b"0\r\na\x00: b\r\n\r\n",
        b"0\r\nno field\r\n\r\n",
    ],
)
def test_what_two_readers_could_read_differently_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedChunks):
        ChunkDecoder(may_be_small=True).feed(body)
