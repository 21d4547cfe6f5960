"""Reasoning and stop texts on streams cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.chat_formats.base import ThinkingStart
from colibri_cli.chat_formats.reasoning import (
    CALL_CHANNEL,
    ChannelSplitter,
    splitter_for,
)
from colibri_cli.chat_formats.stop import StopFilter

OPEN, CLOSED, CHANNELS = ThinkingStart.OPEN, ThinkingStart.CLOSED, ThinkingStart.CHANNELS


def split(
    pieces: list[str], start: ThinkingStart, kept_markers: tuple[str, ...] = ()
) -> tuple[str, str]:
    splitter = splitter_for(start, kept_markers)
    parts = [splitter.feed(piece) for piece in pieces]
    parts.append(splitter.flush())
    return "".join(p.reasoning for p in parts), "".join(p.answer for p in parts)


def filtered(pieces: list[str], stop: StopFilter) -> str:
    return "".join([stop.feed(piece) for piece in pieces]) + stop.flush()


@pytest.mark.parametrize(
    ("pieces", "start", "expected"),
    [
        (["abc</think>def"], OPEN, ("abc", "def")),
        (["abc</thi", "nk>def"], OPEN, ("abc", "def")),
        (["abc<thi", "nk>def</think>ghi"], OPEN, ("abcdef", "ghi")),
        (["plain answer"], CLOSED, ("", "plain answer")),
        (["<think>a</think>b<think>c</think>d"], CLOSED, ("", "abcd")),
        (["thought with no end"], OPEN, ("thought with no end", "")),
        (["\n<think>", "a</think>b"], ThinkingStart.BY_MODEL, ("a", "\nb")),
        (["b <think>a</think>"], ThinkingStart.BY_MODEL, ("", "b a")),
        (["<think>a</think>"], ThinkingStart.UNKNOWN_TO_MODEL, ("", "<think>a</think>")),
        (["half a marker </thi"], CLOSED, ("", "half a marker </thi")),
    ],
)
def test_reasoning(pieces: list[str], start: ThinkingStart, expected: tuple[str, str]) -> None:
    assert split(pieces, start) == expected


@pytest.mark.parametrize("place", range(1, len("</think>")))
def test_the_closing_marker_may_be_cut_anywhere(place: int) -> None:
    text = "a</think>b"
    assert split([text[: 1 + place], text[1 + place :]], OPEN) == ("a", "b")
    assert split([*text], OPEN) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|content_thinking|>why<|content_text|>answer ", ("why", "answer ")),
        ("answer", ("", "answer")),
        ("<|content_thinking|>never ends", ("never ends", "")),
        (
            "<|content_thinking|>a<|end_message|><|message_model|><|content_text|>b<|end_message|>",
            ("a", "b"),
        ),
        ("<|content_text|>a<|content_thinking|>b<|content_text|>c", ("b", "ac")),
        ("a<|audio_end|>b<|unused_200024|>c<|content_model_end_sampling|>d", ("", "abcd")),
        ("a<|message_user|>b<|content_xml|>c", ("", "abc")),
        ("a<|user|>b<|unused_x|>c <| d|> <", ("", "a<|user|>b<|unused_x|>c <| d|> <")),
        ("a <|end_mess", ("", "a <|end_mess")),
    ],
)
def test_channels(text: str, expected: tuple[str, str]) -> None:
    assert split([text], CHANNELS) == expected
    assert split([*text], CHANNELS) == expected
    for place in range(len(text)):
        assert split([text[:place], text[place:]], CHANNELS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"ls{CALL_CHANNEL}{{}}<|end_message|>", ("", CALL_CHANNEL + "{}")),
        (
            f"<|content_thinking|>a<|end_message|><|message_model|>ls{CALL_CHANNEL}{{}}",
            ("a", CALL_CHANNEL + "{}"),
        ),
        (f"<|content_text|>Sure{CALL_CHANNEL}{{}}", ("", "Sure" + CALL_CHANNEL + "{}")),
        ("Sure", ("", "Sure")),
        ("Sure, <b>", ("", "Sure, <b>")),
        ("ls<|end_message|>", ("", "ls")),
    ],
)
def test_channels_leave_the_marker_of_a_call_to_its_parser(
    text: str, expected: tuple[str, str]
) -> None:
    assert split([text], CHANNELS, (CALL_CHANNEL,)) == expected
    assert split([*text], CHANNELS, (CALL_CHANNEL,)) == expected


def test_channels_hold_back_only_what_may_be_a_marker() -> None:
    splitter = ChannelSplitter()
    shown = "".join(splitter.feed(character).answer for character in "a < b <| c <|content ")
    assert shown == "a < b <| c <|content "
    assert splitter.held == ""
    assert not splitter.is_thinking
    assert splitter.feed("x<|content_think") == ("", "x")
    assert splitter.held == "<|content_think"
    assert splitter.feed("ing|>y") == ("y", "")
    assert splitter.is_thinking


@pytest.mark.parametrize(
    ("pieces", "stops", "patient", "text", "matched"),
    [
        (["<|us", "er|>answer", "<|user|>x"], ["<|user|>"], True, "answer", "<|user|>"),
        (["STOPuseful STOPmore"], ["STOP"], True, "useful ", "STOP"),
        (["STOPx"], ["STOP"], False, "", "STOP"),
        (["a", "b", "c"], ["bc"], False, "a", "bc"),
        (["one two"], ["two", "one"], False, "", "one"),
        (["abc"], ["abc", "ab"], False, "", "abc"),
        (["ends with S", "TO"], ["STOP"], False, "ends with STO", None),
        ([" \n<|user|> hi"], ["<|user|>"], True, " hi", None),
        ([" ", "\n", "<|user|>", " <|us", "er|>hi"], ["<|user|>"], True, "hi", None),
        ([" ", "\n"], ["<|user|>"], True, " \n", None),
        ([" ", "\n", "x"], ["<|user|>"], True, " \nx", None),
        (["nothing"], [""], False, "nothing", None),
    ],
)
def test_stop_texts(
    pieces: list[str], stops: list[str], patient: bool, text: str, matched: str | None
) -> None:
    stop = StopFilter(stops, is_patient=patient)
    assert filtered(pieces, stop) == text
    assert stop.matched == matched
    assert stop.feed("more") == ("" if matched else "more")


TEXT = st.lists(st.sampled_from(["<think>", "</think>", "STOP", "S", "<", "t", " ", "x"])).map(
    "".join
)


@st.composite
def cut_text(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(TEXT)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=5)))
    return text, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]


CHANNEL_TEXT = st.lists(
    st.sampled_from(
        [
            "<|content_thinking|>",
            "<|content_text|>",
            "<|end_message|>",
            "<|message_model|>",
            CALL_CHANNEL,
            "<|",
            "ls",
            "<|unused_7|>",
            " ",
            "<",
            "{}",
        ]
    )
).map("".join)


@given(CHANNEL_TEXT, st.lists(st.integers(0, 200), max_size=5), st.booleans())
def test_channels_do_not_depend_on_the_pieces(text: str, cuts: list[int], keeps: bool) -> None:
    kept = (CALL_CHANNEL,) if keeps else ()
    places = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    assert split(pieces, CHANNELS, kept) == split([text], CHANNELS, kept)
    assert split([*text], CHANNELS, kept) == split([text], CHANNELS, kept)
    assert keeps or "<|content" not in "".join(split(pieces, CHANNELS))


@given(cut_text(), st.sampled_from(list(ThinkingStart)))
def test_reasoning_does_not_depend_on_the_pieces(
    cut: tuple[str, list[str]], start: ThinkingStart
) -> None:
    text, pieces = cut
    assert split(pieces, start) == split([text], start)


@given(cut_text())
def test_stop_texts_do_not_depend_on_the_pieces(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    for is_patient in (False, True):
        whole, parts = (StopFilter(["STOP", "</think>"], is_patient=is_patient) for _ in range(2))
        assert filtered(pieces, parts) == filtered([text], whole)
        assert parts.matched == whole.matched
    assert "STOP" not in filtered(pieces, StopFilter(["STOP"]))
