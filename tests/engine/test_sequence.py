"""Bytes of tokens become whole characters as soon as they can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.sequence import Utf8Hold


def pieces(hold: Utf8Hold, parts: list[bytes]) -> list[bytes]:
    return [hold.feed(part) for part in parts]


@pytest.mark.parametrize("text", ["é😀世界", "a\u0301b", "👩\u200d👩\u200d👧", "plain"])
def test_characters_cut_anywhere_come_out_whole(text: str) -> None:
    hold = Utf8Hold()
    out = pieces(hold, [bytes([byte]) for byte in text.encode()])
    assert "".join(piece.decode() for piece in out) == text  # every piece decodes by itself
    assert hold.flush() == b""


@given(st.text(), st.lists(st.integers(1, 4)))
def test_any_cut_of_any_text(text: str, sizes: list[int]) -> None:
    data, parts = text.encode(), []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    hold = Utf8Hold()
    out = pieces(hold, [*parts, data])
    assert "".join(piece.decode() for piece in out) == text
    assert hold.flush() == b""


@given(st.lists(st.binary(max_size=6)))
def test_no_byte_is_lost_or_held_for_long(parts: list[bytes]) -> None:
    hold = Utf8Hold()
    sent = received = 0
    for part in parts:
        sent += len(part)
        received += len(hold.feed(part))
        assert sent - received <= 3
    assert sent - received == len(hold.flush())


def test_a_character_that_was_cut_off_is_flushed() -> None:
    hold = Utf8Hold()
    assert hold.feed("hi 😀".encode()[:-2]) == b"hi "
    assert hold.flush() == "😀".encode()[:2]
    assert hold.flush() == b""


@pytest.mark.parametrize("data", [b"\xff", b"\x80", b"\xc0", b"a\x80\x80\x80\x80", b"\xf5"])
def test_bytes_that_begin_no_character_pass_at_once(data: bytes) -> None:
    assert Utf8Hold().feed(data) == data
