"""Both sides of a session, joined in memory: who may send what, and when."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from colibri_protocol import messages as m
from colibri_protocol.errors import LocalProtocolError, RemoteProtocolError
from colibri_protocol.frames import encode
from colibri_protocol.messages import RequestOptions, Segment, SegmentKind, Word
from colibri_protocol.session import (
    VIOLATION,
    EngineSession,
    GatewaySession,
    RequestState,
    words_needed,
)

ALL_WORDS = tuple(word.value for word in Word)
SEGMENTS = (Segment(SegmentKind.TEXT, "hi"),)
STAT = m.EngineStat(1.0)


def submit(request: int, slot: int = 0, **options: object) -> m.SubmitExtended:
    return m.SubmitExtended(request, slot, RequestOptions(**options), SEGMENTS)  # type: ignore[arg-type]


def baseline(request: int) -> m.Submit:
    return m.Submit(request, 0, b"hi", 5, 0.0, 1.0)


def finished(request: int, finish: m.FinishReason | None = m.FinishReason.STOP) -> m.Finished:
    stop_id = None if finish is None else 2
    return m.Finished(request, 1, 1.0, 0.0, 1.0, 3, False, 0, finish, stop_id)


class Link:
    """A gateway and an engine that have shaken hands."""

    def __init__(self, words: Sequence[str] = ALL_WORDS) -> None:
        self.engine = EngineSession(words)
        self.gateway = GatewaySession()
        greeting = self.gateway.receive_data(self.engine.greet(STAT))
        assert greeting[-1] == STAT
        assert self.gateway.words == frozenset(words)

    def ask(self, *messages: m.GatewayMessage) -> list[m.GatewayMessage]:
        """Send from the gateway; return what the engine is to do."""
        return self.engine.receive_data(b"".join(map(self.gateway.send, messages)))

    def answer(self, *messages: m.EngineMessage) -> list[m.EngineMessage]:
        """Send from the engine, its own answers first; return what counts for the gateway."""
        own = self.engine.data_to_send()
        return self.gateway.receive_data(own + b"".join(map(self.engine.send, messages)))

    def force(self, *messages: m.EngineMessage) -> list[m.EngineMessage]:
        """Send what no engine should; return what counts for the gateway."""
        return self.gateway.receive_data(b"".join(map(encode, messages)))


# ---- a request that goes well ----


def test_a_request_goes_through_its_states_on_both_sides() -> None:
    link = Link()
    request = submit(link.gateway.next_id(), -1)
    states = []

    def step(*messages: m.EngineMessage) -> None:
        assert link.answer(*messages) == list(messages)
        assert link.gateway.state(1) == link.engine.state(1)
        states.append(link.gateway.state(1))

    assert link.ask(request) == [request]
    step()
    step(m.Accepted(1, 3, 0, 0))
    step(m.Progress(1, 3, 3))
    step(m.TextDelta(1, b"a"), m.TextDelta(1, b"b"))
    step(finished(1))
    expected = ["SENT", "ACCEPTED", "ACCEPTED", "STREAMING"]
    assert states == [*(RequestState[name] for name in expected), None]
    assert link.gateway.open_ids == link.engine.open_ids == ()


def test_requests_interleave_and_telemetry_comes_anywhere() -> None:
    link = Link()
    link.ask(submit(1), submit(2, 1), m.Count(3, SEGMENTS), m.StatsQuery(4), m.Ping(9))
    sent: list[m.EngineMessage] = [
        m.Accepted(2, 3, 0, 1),
        m.Counted(3, 5),
        m.TierCounts(0, 0, 0, 0.0, 0.0),
        m.Accepted(1, 3, 0, 0),
        m.TextDelta(2, b"x"),
        m.Pong(9),
        m.StatsReport(4, {}),
        finished(2),
        m.TurnProfile(1.0, 1, 1, 0.0, 0.0, 0.0, 0.0, 0.0, 1),
        m.TextDelta(1, b"y"),
        finished(1),
    ]
    assert link.answer(*sent) == sent
    assert link.gateway.open_ids == ()


def test_an_engine_of_the_baseline_is_asked_and_answers_in_the_baseline() -> None:
    link = Link(())
    assert link.ask(baseline(1)) == [baseline(1)]
    sent = (m.Accepted(1, 3, 2, 0), m.TextDelta(1, b"x"), finished(1))
    assert link.answer(*sent) == [m.Accepted(1, 3), m.TextDelta(1, b"x"), finished(1, None)]


def test_an_engine_that_never_accepts_commits_with_its_first_text() -> None:
    link = Link()
    link.ask(submit(1), submit(2))
    assert link.force(m.TextDelta(1, b"x"), finished(1)) == [m.TextDelta(1, b"x"), finished(1)]
    assert link.force(finished(2)) == [finished(2)]


# ---- stop and cancel ----


@pytest.mark.parametrize("end", [m.Stop(1), m.Cancel(1)])
@pytest.mark.parametrize(
    "begun", [(), (m.Accepted(1, 3),), (m.Accepted(1, 3), m.TextDelta(1, b"x"))]
)
def test_after_stop_or_cancel_only_the_end_counts(
    end: m.Stop | m.Cancel, begun: tuple[m.EngineMessage, ...]
) -> None:
    link = Link()
    link.ask(submit(1))
    link.answer(*begun)
    late = b"" if begun else encode(m.Accepted(1, 3))
    data = link.gateway.send(end)
    assert link.gateway.receive_data(late + encode(m.TextDelta(1, b"late"))) == []
    assert link.engine.receive_data(data) == [end]
    assert link.engine.send(m.TextDelta(1, b"later")) == b""
    is_stop = isinstance(end, m.Stop)
    last = finished(1) if is_stop else m.RequestFailed(1, m.ErrorCode.CANCELLED)
    assert link.answer(last) == [last]
    assert link.gateway.open_ids == link.engine.open_ids == ()


def test_a_stop_may_become_a_cancel_but_not_the_other_way() -> None:
    link = Link()
    link.ask(submit(1))
    assert link.ask(m.Stop(1), m.Stop(1), m.Cancel(1), m.Stop(1), m.Cancel(1)) == [
        m.Stop(1),
        m.Cancel(1),
    ]
    assert link.engine.state(1) is link.gateway.state(1) is RequestState.CANCELLING


def test_stop_and_cancel_of_what_has_ended_say_nothing() -> None:
    link = Link()
    link.ask(submit(1))
    link.answer(m.RequestFailed(1, "SLOT_BUSY"))
    assert link.gateway.send(m.Stop(1)) == link.gateway.send(m.Cancel(1)) == b""


def test_stop_that_crosses_the_end_is_answered_not_found_and_ignored() -> None:
    link = Link()
    link.ask(submit(1))
    stop = link.gateway.send(m.Stop(1))
    end = link.engine.send(finished(1))
    assert link.engine.receive_data(stop) == []
    assert link.gateway.receive_data(end) == [finished(1)]
    assert link.engine.data_to_send() == b"ERROR 1 NOT_FOUND\n"
    assert link.gateway.receive_data(b"ERROR 1 NOT_FOUND\n") == []


def test_a_question_that_is_cancelled_is_forgotten() -> None:
    link = Link()
    link.ask(m.Count(1, SEGMENTS))
    assert link.gateway.send(m.Cancel(1)) == b""
    assert link.answer(m.Counted(1, 3)) == []


def test_an_id_that_was_never_used_cannot_be_stopped() -> None:
    with pytest.raises(LocalProtocolError, match="never used"):
        Link().gateway.send(m.Stop(1))


# ---- the gateway's view of an engine that errs ----


@pytest.mark.parametrize(
    "messages",
    [
        (m.Accepted(1, 3), m.Accepted(1, 3)),
        (m.TextDelta(1, b"x"), m.Accepted(1, 3)),
        (m.Counted(1, 3),),
        (m.Accepted(1, 3), m.StatsReport(1, {})),
    ],
)
def test_an_engine_out_of_order_loses_that_request_alone(
    messages: tuple[m.EngineMessage, ...],
) -> None:
    link = Link()
    link.ask(submit(1), submit(2, 1))
    *before, failed = link.force(*messages)
    assert before == list(messages[:-1])
    assert isinstance(failed, m.RequestFailed)
    assert (failed.id, failed.code) == (1, VIOLATION)
    assert link.gateway.open_ids == (2,)
    assert link.gateway.data_to_send() == b"CANCEL 1\n"
    assert link.gateway.data_to_send() == b""
    assert link.force(m.TextDelta(1, b"x"), finished(1), m.Accepted(2, 1)) == [m.Accepted(2, 1)]


def test_a_text_for_a_question_loses_the_question_without_a_cancel() -> None:
    link = Link()
    link.ask(m.Count(1, SEGMENTS))
    [failed] = link.force(m.TextDelta(1, b"x"))
    assert isinstance(failed, m.RequestFailed)
    assert failed.code == VIOLATION
    assert link.gateway.data_to_send() == b""


def test_lines_of_unknown_ids_are_dropped() -> None:
    link = Link()
    late = (
        m.Accepted(5, 1),
        m.TextDelta(5, b"x"),
        finished(5),
        m.RequestFailed(5, "INTERNAL"),
        m.Progress(5, 1, 1),
        m.Counted(5, 1),
    )
    assert link.force(*late) == []


def test_an_error_that_names_nobody_fails_all_that_were_not_accepted() -> None:
    link = Link()
    link.ask(submit(1), submit(2, 1), submit(3, 2), m.Count(4, SEGMENTS))
    link.answer(m.Accepted(2, 3))
    error = m.RequestFailed(0, "BAD_REQUEST", "which?")
    expected = [m.RequestFailed(request, "BAD_REQUEST", "which?") for request in (1, 3, 4)]
    assert link.force(error) == [error, *expected]
    assert link.gateway.open_ids == (2,)
    assert link.gateway.data_to_send() == b"CANCEL 1\nCANCEL 3\n"


def test_broken_framing_delivers_what_came_before_and_closes_the_session() -> None:
    link = Link()
    link.ask(submit(1), submit(2, 1))
    with pytest.raises(RemoteProtocolError) as caught:
        link.gateway.receive_data(b"DATA 99 1\nx\nACCEPT 1 3\nDATA 1 x\n")
    assert caught.value.messages == (m.Accepted(1, 3),)
    assert not link.gateway.is_open
    with pytest.raises(LocalProtocolError):
        link.gateway.send(submit(3))
    lost = link.gateway.abandon("ENGINE_LOST", "gone")
    assert lost == [
        m.RequestFailed(1, "ENGINE_LOST", "gone"),
        m.RequestFailed(2, "ENGINE_LOST", "gone"),
    ]
    assert link.gateway.open_ids == ()


def test_the_end_of_the_stream_closes_the_session() -> None:
    link = Link()
    link.gateway.receive_eof()
    assert not link.gateway.is_open
    with pytest.raises(RemoteProtocolError, match="before it was ready"):
        GatewaySession().receive_eof()


def test_nothing_may_be_sent_before_the_handshake() -> None:
    gateway = GatewaySession()
    for part in (b"noise\x01\x01READY\x01\x01\n", b"CAPS options\n"):
        with pytest.raises(LocalProtocolError, match="not ready"):
            gateway.send(baseline(1))
        gateway.receive_data(part)
    gateway.receive_data(b"STAT 0 0 0 0\n")
    assert gateway.send(baseline(1))


# ---- ids and words ----


def test_ids_only_grow() -> None:
    link = Link()
    link.ask(submit(5))
    for request in (5, 4):
        with pytest.raises(LocalProtocolError, match="only grow"):
            link.gateway.send(submit(request))
    assert link.gateway.next_id() == 6
    assert link.engine.receive_data(encode(submit(5)) + encode(m.Count(4, SEGMENTS))) == []
    assert link.engine.data_to_send() == b"ERROR 5 DUPLICATE_ID\nERROR 4 DUPLICATE_ID\n"


EXTENDED: list[tuple[m.GatewayMessage, set[Word]]] = [
    (submit(1), {Word.OPTIONS, Word.SEGMENTS}),
    (submit(1, -1), {Word.OPTIONS, Word.SEGMENTS, Word.SLOTS}),
    (submit(1, stop_ids=(1,)), {Word.OPTIONS, Word.SEGMENTS, Word.STOPIDS}),
    (submit(1, logprobs=0), {Word.OPTIONS, Word.SEGMENTS, Word.LOGPROBS}),
    (submit(1, draft=0), {Word.OPTIONS, Word.SEGMENTS, Word.DRAFT}),
    (
        submit(1, grammar=m.Grammar("regex", "a")),
        {Word.OPTIONS, Word.SEGMENTS, Word.GRAMMAR},
    ),
    (m.Count(1, SEGMENTS), {Word.COUNT, Word.SEGMENTS}),
    (m.StatsQuery(1), {Word.STATS}),
    (m.Ping(1), {Word.PING}),
]


@pytest.mark.parametrize(("message", "words"), EXTENDED)
def test_an_extended_form_goes_only_to_an_engine_that_announced_it(
    message: m.GatewayMessage, words: set[Word]
) -> None:
    assert words_needed(message) == words
    for missing in words:
        link = Link([word for word in ALL_WORDS if word != missing])
        with pytest.raises(LocalProtocolError, match=missing):
            link.gateway.send(message)
        assert link.gateway.open_ids == ()
        assert link.engine.receive_data(encode(message)) == []
        refusal = link.engine.data_to_send()
        assert refusal.startswith(b"ERROR 1 BAD_REQUEST") or isinstance(message, m.Ping)
    assert Link(sorted(words)).ask(message) == [message]


@pytest.mark.parametrize(
    "message",
    [
        m.Progress(1, 1, 1),
        m.TokenLogprobs(1, 1, 0.0, b""),
        m.Counted(1, 1),
        m.StatsReport(1, {}),
        m.ModelInfo({}),
        m.Pong(1),
    ],
)
def test_an_engine_sends_only_forms_it_announced(message: m.EngineMessage) -> None:
    link = Link(("segments",))
    link.ask(baseline(1))
    link.answer(m.Accepted(1, 1))
    with pytest.raises(LocalProtocolError, match="not announced"):
        link.engine.send(message)


# ---- the engine's own order ----


def test_the_handshake_is_sent_once_and_first() -> None:
    engine = EngineSession()
    with pytest.raises(LocalProtocolError, match="before the handshake"):
        engine.send(m.TierCounts(0, 0, 0, 0.0, 0.0))
    for message in (m.Ready(), m.Caps(frozenset())):
        with pytest.raises(LocalProtocolError, match="greet"):
            engine.send(message)
    assert engine.send(m.StartFailed("code", "message", None, {}))
    assert engine.greet(STAT) == b"\x01\x01READY\x01\x01\nSTAT 0 0.00 0.0 1.00\n"
    with pytest.raises(LocalProtocolError):
        engine.send(m.StartFailed("code", "message", None, {}))
    with pytest.raises(LocalProtocolError, match="already"):
        engine.greet(STAT)


ORDER: list[tuple[list[m.EngineMessage], m.EngineMessage]] = [
    ([], m.TextDelta(1, b"x")),
    ([], m.Progress(1, 1, 1)),
    ([], m.Counted(1, 1)),
    ([m.Accepted(1, 1)], m.Accepted(1, 1)),
    ([m.Accepted(1, 1), m.TextDelta(1, b"x")], m.Accepted(1, 1)),
    ([m.Accepted(1, 1), finished(1)], finished(1)),
    ([m.RequestFailed(1, "INTERNAL")], m.RequestFailed(1, "INTERNAL")),
    ([finished(1)], m.TextDelta(1, b"x")),
    ([], finished(2)),
]


@pytest.mark.parametrize(("before", "wrong"), ORDER)
def test_an_engine_cannot_send_out_of_order(
    before: list[m.EngineMessage], wrong: m.EngineMessage
) -> None:
    link = Link()
    link.ask(submit(1))
    link.answer(*before)
    with pytest.raises(LocalProtocolError):
        link.engine.send(wrong)


def test_an_engine_refuses_bad_requests_by_itself() -> None:
    link = Link()
    data = encode(submit(1)) + b"SUBMIT 2 0 1 0 0 1\nx\n" + encode(submit(3)) + b"STOP x\nSTOP 9\n"
    assert link.engine.receive_data(data) == [submit(1), submit(3)]
    failed = link.gateway.receive_data(link.engine.data_to_send())
    assert failed == [m.RequestFailed(0, "BAD_REQUEST", "'x' is not a whole number")]
    assert link.engine.open_ids == (1, 3)
    assert link.engine.send(m.RequestFailed(0, "INTERNAL")) == b"ERROR 0 INTERNAL\n"


def test_a_frame_the_engine_cannot_follow_ends_its_session() -> None:
    link = Link()
    with pytest.raises(RemoteProtocolError) as caught:
        link.engine.receive_data(encode(submit(1)) + b"STOP 9\nSUBMIT x\n")
    assert caught.value.messages == (submit(1),)
    assert link.engine.data_to_send() == b"ERROR 9 NOT_FOUND\n"


def test_the_end_of_the_gateways_output_is_clean_between_frames_only() -> None:
    Link().engine.receive_eof()
    link = Link()
    link.engine.receive_data(b"SUBMIT 1 0 5 1 0 1\nhel")
    with pytest.raises(RemoteProtocolError):
        link.engine.receive_eof()


def test_every_state_has_a_way_out_and_every_message_a_state() -> None:
    from colibri_protocol.session_table import ENGINE_TABLE, GATEWAY_TABLE, Step

    for state, table in itertools.product(RequestState, (ENGINE_TABLE, GATEWAY_TABLE)):
        ends = {kind for (s, kind), (step, _) in table.items() if s is state and step is Step.END}
        assert m.RequestFailed in ends
        assert len(ends) == 2
