"""Any course of events between the two sides ends with both in the same state."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colibri_protocol import messages as m
from colibri_protocol.messages import RequestOptions, Segment, SegmentKind, Word
from colibri_protocol.session import EngineSession, GatewaySession, RequestState

SEGMENTS = (Segment(SegmentKind.CONTROL, "<s>"), Segment(SegmentKind.TEXT, "hi"))
END = (m.Finished, m.RequestFailed, m.Counted, m.StatsReport)


class Conversation(RuleBasedStateMachine):
    """Both sides act as they may at any time; bytes travel late and in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = EngineSession([word.value for word in Word])
        self.gateway = GatewaySession()
        self.gateway.receive_data(self.engine.greet(m.EngineStat(1.0)))
        self.to_engine = bytearray()
        self.to_gateway = bytearray()
        self.history: dict[int, list[m.EngineMessage]] = {}
        self.ended_by_us: set[int] = set()

    # ---- the gateway acts ----

    @rule(slot=st.integers(-1, 15), logprobs=st.none() | st.just(1))
    def submit(self, slot: int, logprobs: int | None) -> None:
        options = RequestOptions(logprobs=logprobs)
        request = self.gateway.next_id()
        self.history[request] = []
        self.to_engine += self.gateway.send(m.SubmitExtended(request, slot, options, SEGMENTS))

    @rule(kind=st.sampled_from(["count", "stats"]))
    def question(self, kind: str) -> None:
        request = self.gateway.next_id()
        self.history[request] = []
        asked = m.Count(request, SEGMENTS) if kind == "count" else m.StatsQuery(request)
        self.to_engine += self.gateway.send(asked)

    @precondition(lambda self: self.history)
    @rule(data=st.data(), end=st.sampled_from([m.Stop, m.Cancel]))
    def end(self, data: st.DataObject, end: type[m.Stop | m.Cancel]) -> None:
        request = data.draw(st.sampled_from(sorted(self.history)))
        self.to_engine += self.gateway.send(end(request))
        self.ended_by_us.add(request)

    # ---- the engine acts ----

    @precondition(lambda self: self.engine.open_ids)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.engine.open_ids))
        text: list[m.EngineMessage] = [
            m.TextDelta(request, b"x"),
            m.TokenLogprobs(request, 1, 0.0, b"x"),
            m.Progress(request, 1, 2),
        ]
        ends: list[m.EngineMessage] = [
            m.Finished(request, 1, 1.0, 1.0, 1.0),
            m.RequestFailed(request, "INTERNAL"),
        ]
        accepted = m.Accepted(request, 2, 0, 0)
        state = self.engine.state(request)
        assert state is not None
        choices: dict[RequestState, list[m.EngineMessage]] = {
            RequestState.SENT: [accepted, *ends],
            RequestState.ACCEPTED: [*text, *ends],
            RequestState.STREAMING: [*text, *ends],
            RequestState.STOPPING: [accepted, *text, *ends],
            RequestState.CANCELLING: [accepted, *text, *ends],
            RequestState.COUNTING: [m.Counted(request, 2), ends[1]],
            RequestState.QUERYING: [m.StatsReport(request, {}), ends[1]],
        }
        self.to_gateway += self.engine.send(data.draw(st.sampled_from(choices[state])))

    # ---- bytes travel ----

    @rule(share=st.integers(1, 10))
    def reach_engine(self, share: int) -> None:
        count = len(self.to_engine) * share // 10
        self.engine.receive_data(bytes(self.to_engine[:count]))
        del self.to_engine[:count]
        self.to_gateway += self.engine.data_to_send()

    @rule(share=st.integers(1, 10))
    def reach_gateway(self, share: int) -> None:
        count = len(self.to_gateway) * share // 10
        for message in self.gateway.receive_data(bytes(self.to_gateway[:count])):
            self.check(message)
        del self.to_gateway[:count]
        assert self.gateway.data_to_send() == b""

    def check(self, message: m.EngineMessage) -> None:
        """Hold the order that a caller of the gateway side may rely on."""
        request = getattr(message, "id")  # noqa: B009 - every message here has one
        history = self.history[request]
        kinds = [type(entry) for entry in history]
        assert not any(isinstance(entry, END) for entry in history)
        if isinstance(message, m.Accepted):
            assert history == []
        elif not isinstance(message, END):
            assert kinds[0] is m.Accepted
        if request in self.ended_by_us:
            assert isinstance(message, END)
        history.append(message)

    @invariant()
    def both_sides_agree_once_everything_has_arrived(self) -> None:
        if self.to_engine or self.to_gateway:
            return
        gateway = {i: self.gateway.state(i) for i in self.gateway.open_ids}
        engine = {i: self.engine.state(i) for i in self.engine.open_ids}
        questions = {RequestState.COUNTING, RequestState.QUERYING}
        forgotten = {i for i, state in engine.items() if state in questions} - gateway.keys()
        assert gateway == {i: state for i, state in engine.items() if i not in forgotten}


Conversation.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestConversation = Conversation.TestCase
