"""What a gateway makes of each line of an engine, the malformed ones included."""

from __future__ import annotations

import pytest

from colibri_protocol import messages as m
from colibri_protocol.errors import LocalProtocolError, RemoteProtocolError
from colibri_protocol.frames import LOWEST_LOGPROB, EngineLineDecoder, encode


def framed(header: bytes, body: bytes) -> bytes:
    return b"%b %d\n%b\n" % (header, len(body), body)


def open_decoder() -> EngineLineDecoder:
    return EngineLineDecoder(handshake=False)


@pytest.mark.parametrize(
    "line",
    [
        b"DATA 1 x\n",
        b"DATA 1 -1\n",
        b"DATA 1 65537\n",
        b"DATA 1\n",
        b"DATA x 1\n",
        b"DATA 0 1\n",
        b"DATA 1 1_0\n",
        b"DATA 1 +1\n",
        b"DATA\n",
        b"DATA 1 2\nhix",
        b"DONE 1 2 1.0 50.0 10.0\n",
        b"DONE 1 STAT 2 1.0 50.0\n",
        b"DONE 1 STAT x 1.0 50.0 10.0\n",
        b"DONE 1 STAT 2 fast 50.0 10.0\n",
        b"DONE 1 STAT 2 1 1 1 x\n",
        b"DONE 1 STAT 2 1 1 1 1 2\n",
        b"ACCEPT 1\n",
        b"ACCEPT x 5\n",
        b"ACCEPT 1 -5\n",
        b"ACCEPT 1 99999999999999999999\n",
        b"ACCEPT 1 5 1 16\n",
        b"ERROR\n",
        b"ERROR out of memory\n",
        b"PROGRESS 1 2\n",
        b"COUNTED 1\n",
        b"PONG x\n",
        b"STATS 1 67108865\n",
        b"STATS 1 3\nabc\n",
        b"MODEL 2\n[]\n",
        b"MODEL x\n",
        framed(b"MODEL", b'{"a":NaN}'),
        framed(b"MODEL", b'{"a":1,"a":2}'),
        b"MODEL 1\n{\n",
        b"MODEL 2\n\xff\xff\n",
        b"TOKEN 1 2\n{}\n",
        framed(b"TOKEN 1", b'{"id":1,"logprob":0,"bytes":"0g"}'),
        framed(b"TOKEN 1", b'{"id":1,"logprob":"0","bytes":""}'),
        framed(b"TOKEN 1", b'{"id":-1,"logprob":0,"bytes":""}'),
        framed(b"TOKEN 1", b'{"id":1,"logprob":0,"bytes":7}'),
        framed(b"TOKEN 1", b'{"id":1,"logprob":0,"bytes":"","top":{}}'),
        framed(b"TOKEN 1", b'{"id":1,"logprob":0,"bytes":"","top":[[1,0]]}'),
        b"TOKEN 1 99999999\n",
    ],
)
def test_a_broken_line_of_a_request_ends_the_session(line: bytes) -> None:
    decoder = open_decoder()
    before = decoder.feed(b"ACCEPT 9 1\n")
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.feed(b"DATA 9 1\na\n" + line)
    assert before == [m.Accepted(9, 1)]
    assert caught.value.messages == (m.TextDelta(9, b"a"),)
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"PONG 1\n")


@pytest.mark.parametrize(
    "line",
    [
        b"HWINFO 1 2\n",
        b"HWINFO x 1 1 1 1 a|b\n",
        b"TIERS 1 2 3 4\n",
        b"TIERS 1 2 3 nan 4\n",
        b"EMAP 2 2 814100\n",
        b"EMAP 2 2 8141000g\n",
        b"EMAP -1 2 81\n",
        b"EMAP 9999999999 9999999999 00\n",
        b"EMAP\n",
        b"HITS 2 2 0505\n",
        b"PROF 1 2 3 4 5 6 7 8\n",
        b"PROF x 2 3 4 5 6 7 8 9\n",
        b"PERF 7\n",
        b"ENTROPY x\n",
        b"GPUS 2 1 2 3\n",
        b"TOPK 7 2 -0.1 4869\n",
        b"REPIN 1 2 3\n",
        b"STAT 1 2 3\n",
        b"FOO 1 2\n",
        b"ERROR: out of memory\n",
        b" DATA 1 2\n",
        b"data 1 2\n",
        b"CAPS options\n",
        b"\x01\x01READY\x01\x01\n",
        b"\x00\xff\xfe\n",
    ],
)
def test_broken_telemetry_and_unknown_lines_are_ignored_and_counted(line: bytes) -> None:
    decoder = open_decoder()
    assert decoder.feed(line + b"\n  \n\r\n" + b"PONG 1\n") == [m.Pong(1)]
    assert decoder.num_ignored == 1
    assert decoder.last_ignored == line[:-1]


def test_a_json_body_nested_without_end_is_a_fault_not_a_crash() -> None:
    body = b"[" * 200_000
    with pytest.raises(RemoteProtocolError, match="MODEL"):
        open_decoder().feed(b"MODEL %d\n%b\n" % (len(body), body))


def test_a_number_too_long_to_read_is_a_fault_not_a_crash() -> None:
    body = b'{"a":%b}' % (b"9" * 100_000)
    with pytest.raises(RemoteProtocolError, match="MODEL"):
        open_decoder().feed(b"MODEL %d\n%b\n" % (len(body), body))


# ---- handshake ----


def test_an_engine_without_caps_is_greeted_by_stat_alone() -> None:
    decoder = EngineLineDecoder()
    assert decoder.feed(b"\x01\x01READY\x01\x01\nSTAT 0 0 0 0\n") == [m.Ready(), m.EngineStat(0.0)]
    assert decoder.is_open


@pytest.mark.parametrize(
    "line",
    [
        b"HWINFO 1 2 3 4 5 a|b\n",
        b"STAT 0 0 0\n",
        b"STAT a b c d\n",
        b"DATA 1 1\na\n",
        b"CAPS a\nCAPS b\n",
        b"CAPS a\nDONE\n",
    ],
)
def test_anything_but_stat_after_ready_is_a_failed_start(line: bytes) -> None:
    decoder = EngineLineDecoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"\x01\x01READY\x01\x01\n" + line)
    assert not decoder.is_open


@pytest.mark.parametrize("sent", [b"", b"loading\n", b"\x01\x01READY\x01\x01\n"])
def test_an_end_before_the_handshake_is_a_failed_start(sent: bytes) -> None:
    decoder = EngineLineDecoder()
    decoder.feed(sent)
    with pytest.raises(RemoteProtocolError, match="before it was ready"):
        decoder.feed_eof()


@pytest.mark.parametrize("sent", [b"DATA 1 5\nhel", b"DATA 1 2\nhi", b"DAT"])
def test_an_end_inside_a_message_is_a_fault(sent: bytes) -> None:
    decoder = open_decoder()
    assert decoder.feed(sent) == []
    with pytest.raises(RemoteProtocolError, match="inside a message"):
        decoder.feed_eof()


def test_a_start_may_fail_after_noise_and_the_rest_is_discarded() -> None:
    failed = m.StartFailed("unsupported_model", "no", None, {})
    decoder = EngineLineDecoder()
    assert decoder.feed(b"\x01\x01FAILED " + encode(failed) + b"DATA x\n") == [failed]
    assert not decoder.is_open


# ---- what may be written ----


@pytest.mark.parametrize(
    "message",
    [
        m.Accepted(0, 1),
        m.Accepted(2**63, 1),
        m.Accepted(1, -1),
        m.Accepted(1, 1, None, 3),
        m.Accepted(1, 1, 1, 16),
        m.TextDelta(1, bytes(65_537)),
        m.Finished(1, 1, float("nan"), 0.0, 0.0),
        m.Finished(1, 1, 0.0, 0.0, 0.0, stop_id=3),
        m.Finished(1, 1, 0.0, 0.0, 0.0, finish=m.FinishReason.STOP, stop_id=-2),
        m.ModelInfo({"a": float("inf")}),
        m.ModelInfo({"a": "\ud800"}),
        m.ModelInfo({"a": {1, 2}}),
        m.StatsReport(1, {"a": "x" * (64 * 1024 * 1024)}),
        m.ExpertMap(2, 2, b"123"),
        m.ExpertMap(3000, 2000, bytes(6_000_000)),
        m.ExpertHits(3, 3, b"1"),
        m.Caps(frozenset({"two words"})),
        m.Caps(frozenset({""})),
        m.TokenLogprobs(1, 1, 0.0, b"", (m.TokenAlternative(1, 0.0, b""),) * 22),
        m.TokenLogprobs(1, 1, float("nan"), b""),
        m.Progress(1, 1, True),
        "DATA",
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_could_not_be_read_back_is_never_written(message: m.EngineMessage) -> None:
    with pytest.raises(LocalProtocolError):
        encode(message)


def test_free_text_is_made_to_fit_its_line() -> None:
    failed = m.RequestFailed(1, "INTERNAL", "line one\nERROR 2 x\r\x00" + "y" * 100_000)
    [read] = open_decoder().feed(encode(failed))
    assert isinstance(read, m.RequestFailed)
    assert read.code == "INTERNAL"
    assert read.detail.startswith("line one ERROR 2 x  yyy")
    assert len(read.detail) < 10_000
    assert encode(m.RequestFailed(1, "", " \n")) == b"ERROR 1 INTERNAL\n"
    info = m.HardwareInfo(1, 1.0, 1.0, 0, 0.0, "a|b\n", "c|d")
    assert open_decoder().feed(encode(info)) == [m.HardwareInfo(1, 1.0, 1.0, 0, 0.0, "a/b", "c|d")]


def test_a_token_that_cannot_occur_has_the_lowest_logprob() -> None:
    never = m.TokenAlternative(3, float("-inf"), b"x")
    [read] = open_decoder().feed(encode(m.TokenLogprobs(1, 2, -0.5, b"y", (never,))))
    assert isinstance(read, m.TokenLogprobs)
    assert read.top == (m.TokenAlternative(3, LOWEST_LOGPROB, b"x"),)
