"""What an engine makes of each line of a gateway: one bad request hurts only itself."""

from __future__ import annotations

import pytest

from colibri_protocol import messages as m
from colibri_protocol.errors import LocalProtocolError, RemoteProtocolError
from colibri_protocol.frames import GatewayLineDecoder, encode
from colibri_protocol.limits import MAX_GRAMMAR_BYTES, MAX_PROMPT_BYTES, MAX_SEGMENTS
from colibri_protocol.messages import RequestOptions, Segment, SegmentKind

TEXT = SegmentKind.TEXT


@pytest.mark.parametrize(
    ("frame", "request_id", "why"),
    [
        (b"SUBMIT 0 0 1 1 0 1\na\n", 0, "0 is not in 1.."),
        (b"SUBMIT x 0 1 1 0 1\na\n", 0, "'x' is not a whole number"),
        (b"SUBMIT 7 16 1 1 0 1\na\n", 7, "slot: 16 is not in 0..15"),
        (b"SUBMIT 7 -1 1 1 0 1\na\n", 7, "slot: -1"),
        (b"SUBMIT 7 0 1 0 0 1\na\n", 7, "max_tokens: 0"),
        (b"SUBMIT 7 0 1 ten 0 1\na\n", 7, "max_tokens: 'ten'"),
        (b"SUBMIT 7 0 1 1 2.1 1\na\n", 7, "temperature: must be in 0..2, not 2.1"),
        (b"SUBMIT 7 0 1 1 nan 1\na\n", 7, "temperature: 'nan' is not a number"),
        (b"SUBMIT 7 0 1 1 0 0\na\n", 7, "top_p: must be above 0 and at most 1"),
        (b"SUBMIT 7 0 1 1 0 1e999\na\n", 7, "top_p: '1e999' is too large"),
        (b"SUBMIT 7 0 3 1 0 1\na\0b\n", 7, "NUL"),
        (b"SUBMIT 7 0 2 1 0 1\n\xc3(\n", 7, "the prompt is not UTF-8"),
        (b"SUBMIT 7 0 1 1 0 1 2\na\xc3(\n", 7, "the grammar is not UTF-8"),
        (b"SUBMITX 7 16 2 0\n{}\n", 7, "slot: 16"),
        (b'SUBMITX 7 0 9 0\n{"tmp":1}\n', 7, "tmp: unknown option"),
        (b"SUBMITX 7 0 0 0\n\n", 7, "options: must be a JSON object"),
        (b"SUBMITX 7 0 2 1\n{}X\n", 7, "no segment header at byte 0"),
        (b"SUBMITX 7 0 2 5\n{}T 2\na\n", 7, "shorter than announced"),
        (b"SUBMITX 7 0 2 5\n{}T 1\n\xff\n", 7, "not UTF-8"),
        (b"SUBMITX 7 0 2 6\n{}T +1\na\n", 7, "no segment header"),
        (b"SUBMITX 0 0 2 0\n{}\n", 0, "0 is not in"),
        (b"COUNT 7 1\nZ\n", 7, "no segment header"),
        (b"STOP x\n", 0, "'x'"),
        (b"STOP\n", 0, "''"),
        (b"CANCEL -1\n", 0, "-1"),
        (b"STATS 1 2\n", 0, "'1 2'"),
        (b"PING x\n", 0, "'x'"),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_one_served(
    frame: bytes, request_id: int, why: str
) -> None:
    refused, served = GatewayLineDecoder().feed(frame + b"STOP 8\n")
    assert isinstance(refused, m.RequestFailed)
    assert (refused.id, refused.code) == (request_id, "BAD_REQUEST")
    assert why in refused.detail
    assert served == m.Stop(8)


@pytest.mark.parametrize(
    "frame",
    [
        b"SUBMIT 7 0 x 1 0 1\n",
        b"SUBMIT 7 0 -1 1 0 1\n",
        b"SUBMIT 7 0 1 1 0\n",
        b"SUBMIT 7 0 1 1 0 1 2 3\n",
        b"SUBMIT 7 0 1 1 0 1 1048577\n",
        b"SUBMIT 7 0 16777217 1 0 1\n",
        b"SUBMIT 7 0 1 1 0 1\nab",
        b"SUBMITX 7 0 1048577 1\n",
        b"SUBMITX 7 0 1 16777217\n",
        b"SUBMITX 7 0 1\n",
        b"COUNT 7 x\n",
        b"COUNT 7 1 1\n",
    ],
)
def test_a_frame_whose_length_cannot_be_known_ends_the_session(frame: bytes) -> None:
    decoder = GatewayLineDecoder()
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.feed(b"STOP 3\n" + frame)
    assert caught.value.messages == (m.Stop(3),)


def test_unknown_and_blank_lines_are_ignored() -> None:
    decoder = GatewayLineDecoder()
    assert decoder.feed(b"FUTURE 1 2\n\n \nSTOP 1\r\n") == [m.Stop(1)]
    assert decoder.num_ignored == 1


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-30, 0.7, 2.0])
def test_any_temperature_from_zero_up_is_valid(temperature: float) -> None:
    message = m.Submit(1, 0, b"x", 1, temperature, 1.0)
    assert GatewayLineDecoder().feed(encode(message)) == [message]


@pytest.mark.parametrize(
    "message",
    [
        m.Submit(0, 0, b"", 1, 0.0, 1.0),
        m.Submit(1, 16, b"", 1, 0.0, 1.0),
        m.Submit(1, -1, b"", 1, 0.0, 1.0),
        m.Submit(1, 0, b"", 0, 0.0, 1.0),
        m.Submit(1, 0, b"", 1, 2.5, 1.0),
        m.Submit(1, 0, b"", 1, float("nan"), 1.0),
        m.Submit(1, 0, b"", 1, 0.0, 0.0),
        m.Submit(1, 0, b"a\0", 1, 0.0, 1.0),
        m.Submit(1, 0, b"\xff", 1, 0.0, 1.0),
        m.Submit(1, 0, b"a" * (MAX_PROMPT_BYTES + 1), 1, 0.0, 1.0),
        m.Submit(1, 0, b"", 1, 0.0, 1.0, b"a" * (MAX_GRAMMAR_BYTES + 1)),
        m.SubmitExtended(1, -2, RequestOptions(), ()),
        m.SubmitExtended(1, 0, RequestOptions(), (Segment(TEXT, "\ud800"),)),
        m.SubmitExtended(1, 0, RequestOptions(), (Segment(TEXT, "a" * MAX_PROMPT_BYTES),)),
        m.Count(1, (Segment(TEXT, ""),) * (MAX_SEGMENTS + 1)),
        m.Stop(0),
        m.Ping(-1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_could_not_be_read_back_is_never_written(message: m.GatewayMessage) -> None:
    with pytest.raises(LocalProtocolError):
        encode(message)


def test_text_that_looks_like_a_segment_header_stays_text() -> None:
    segments = (Segment(TEXT, "C 5\n<eos>\nT 1\n"), Segment(SegmentKind.CONTROL, "<eos>"))
    message = m.Count(1, segments)
    assert GatewayLineDecoder().feed(encode(message)) == [message]


def test_a_prompt_of_more_segments_than_allowed_is_refused() -> None:
    payload = b"T 0\n" * (MAX_SEGMENTS + 1)
    [refused] = GatewayLineDecoder().feed(b"COUNT 1 %d\n%b\n" % (len(payload), payload))
    assert isinstance(refused, m.RequestFailed)
    assert "segments" in refused.detail
