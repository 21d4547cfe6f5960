"""Chunked bodies: the same payload however they are cut, and what follows them is left alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.gateway.chunked import ChunkDecoder
from colibri_cli.gateway.http_types import HttpError

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
    with suppress(HttpError):
        for byte in data:
            payload += decoder.feed(bytes([byte]))
    assert len(payload) <= len(data)


def test_it_says_how_much_a_chunk_still_has_to_bring() -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(b"A\r\nabc") == b"abc"
    assert decoder.num_due == 7


@pytest.mark.parametrize("endless", [b"5;" + b"x" * 70_000, b"1\r\nx\r\n" * 20_000])
def test_what_is_mostly_overhead_is_refused(endless: bytes) -> None:
    with pytest.raises(HttpError, match="too small"):
        ChunkDecoder().feed(endless)
