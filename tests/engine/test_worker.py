"""The loop between real pipes: handshake, both forms of the protocol, stops, ends and faults."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from colibri_engine.streams import Event
from colibri_protocol.messages import (
    Accepted,
    Cancel,
    Count,
    Counted,
    Finished,
    FinishReason,
    Ping,
    Pong,
    Progress,
    RequestFailed,
    Segment,
    SegmentKind,
    StatsQuery,
    StatsReport,
    Stop,
    Submit,
    SubmitExtended,
    TextDelta,
    TokenLogprobs,
)
from tests.engine.engine_rig import Rig, scripted
from tests.engine.gateway_end import LIMIT_S
from tests.engine.worker_rig import WorkerRig
from tests.fakes.byte_tokenizer import ByteTokenizer
from tests.fakes.fake_model import FakeModel


class Gate:
    """Lets a model make as many steps as the test allows, and shows that it is inside one."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    def __call__(self, _ids: object = None) -> None:
        self.entered.release()
        assert self._allowed.acquire(timeout=LIMIT_S)

    def wait_inside(self) -> None:
        assert self.entered.acquire(timeout=LIMIT_S)

    def let(self, steps: int) -> None:
        for _ in range(steps):
            self._allowed.release()


def endless(fault: Callable[[list[int]], None] | None = None) -> FakeModel:
    return FakeModel(next_token=lambda _: 65, fault=fault)


# ---- handshake ----


def test_the_baseline_handshake_and_reply_hold_nothing_new() -> None:
    with WorkerRig(scripted(b"ok", 2), has_caps=False) as rig:
        rig.send(Submit(1, 0, b"hi", 5, 0.0, 1.0))
        rig.wait_for(Finished)
        lines = rig.raw.decode().splitlines()
    assert lines[0] == "\x01\x01READY\x01\x01"
    words = [line.split(" ")[0] for line in lines[1:]]
    assert words == [
        "STAT", "HWINFO", "TIERS", "EMAP", "ACCEPT", "DATA", "o", "DATA", "k",
        "PROF", "HWINFO", "TIERS", "EMAP", "HITS", "DONE",
    ]  # fmt: skip
    assert "ACCEPT 1 2" in lines
    assert lines[-1].startswith("DONE 1 STAT 2 ")
    assert len(lines[-1].split()) == 3 + 4 + 3  # no finish reason, no stop id


def test_the_extended_handshake_announces_words_and_describes_the_model() -> None:
    with WorkerRig() as rig:
        rig.send(Ping(1))
        rig.wait_for(Pong)
        words = [line.split(b" ")[0] for line in rig.raw.splitlines()]
    assert words[:7] == [
        b"\x01\x01READY\x01\x01", b"CAPS", b"STAT", b"HWINFO", b"TIERS", b"EMAP", b"MODEL",
    ]  # fmt: skip
    assert b" grammar" in rig.raw.splitlines()[1]


def test_a_baseline_grammar_is_a_draft_and_changes_nothing() -> None:
    with WorkerRig(scripted(b"ok", 2), has_caps=False) as rig:
        rig.send(Submit(1, 0, b"hi", 5, 0.0, 1.0, b'root ::= "x"'))
        rig.wait_for(Finished)
        assert rig.data(1) == b"ok"


def test_an_extended_reply() -> None:
    with WorkerRig(scripted(b"ok", 2)) as rig:
        request_id = rig.submit("hi", logprobs=1)
        done = rig.wait_for(Finished)
        assert (done.finish, done.completion_tokens) == (FinishReason.STOP, 2)
        assert rig.wait_for(Accepted) == Accepted(request_id, 2, 0, 0)
        assert rig.wait_for(Progress) == Progress(request_id, 2, 2)
        assert rig.wait_for(TokenLogprobs).token_bytes == b"o"
        assert rig.data(request_id) == b"ok"


def test_control_words_count_only_where_they_are_control() -> None:
    with WorkerRig() as rig:
        for request_id, kind in ((1, SegmentKind.TEXT), (2, SegmentKind.CONTROL)):
            rig.send(Count(request_id, (Segment(kind, "a<|user|>b"),)))
        assert rig.wait_for(Counted, 1).num_tokens == len("a<|user|>b")
        assert rig.wait_for(Counted, 2).num_tokens == 3


def test_counting_needs_no_slot() -> None:
    gate = Gate()
    with WorkerRig(endless(gate), num_slots=1) as rig:
        rig.submit("hi", max_tokens=3)
        gate.wait_inside()
        rig.send(Count(2, (Segment(SegmentKind.TEXT, "abc"),)))
        gate.let(10)
        assert rig.wait_for(Counted, 2).num_tokens == 3
        rig.wait_for(Finished, 1)


def test_raw_counters_are_told() -> None:
    with WorkerRig() as rig:
        rig.send(StatsQuery(1))
        assert rig.wait_for(StatsReport).data["num_accepted"] == 0


# ---- between steps ----


def test_a_heartbeat_is_answered_between_two_chunks_of_a_prompt() -> None:
    gate = Gate()
    with WorkerRig(endless(gate), chunk_tokens=4) as rig:
        request_id = rig.submit("x" * 100, max_tokens=1)
        gate.wait_inside()
        rig.send(Ping(5))
        while rig.inbox.empty():  # until the reader has put it in
            pass
        gate.let(2)
        assert rig.wait_for(Pong).id == 5
        assert not any(isinstance(m, TextDelta) for m in rig.messages)
        gate.let(100)
        rig.wait_for(Finished, request_id)


@pytest.mark.parametrize("steps", [1, 3, 30])
def test_cancel_takes_effect_before_the_next_step(steps: int) -> None:
    gate = Gate()
    with WorkerRig(endless(gate), chunk_tokens=4, num_slots=1) as rig:
        request_id = rig.submit("x" * 20, max_tokens=100)
        gate.let(steps - 1)
        for _ in range(steps):
            gate.wait_inside()
        rig.send(Cancel(request_id))
        while rig.inbox.empty():  # until the reader has put it in
            pass
        gate.let(1)
        assert rig.wait_for(RequestFailed, request_id).code == "CANCELLED"
        assert len(rig.rig.model.forwards) == steps
        gate.let(1000)
        follow_up = rig.submit("short", max_tokens=2)
        assert rig.wait_for(Finished, follow_up).completion_tokens == 2
        assert rig.data(follow_up) == b"AA"


def test_stop_takes_effect_before_the_next_step() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        request_id = rig.submit("hi", max_tokens=100)
        gate.let(2)
        for _ in range(3):
            gate.wait_inside()
        rig.send(Stop(request_id))
        while rig.inbox.empty():
            pass
        gate.let(1)
        done = rig.wait_for(Finished, request_id)
        assert (done.finish, done.completion_tokens) == (FinishReason.STOPPED, 3)


class SlowEncoder(ByteTokenizer):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def encode(self, segments: object) -> list[int]:
        if "slow" in str(segments):
            self._gate()
        return super().encode(segments)  # type: ignore[arg-type]


def test_a_long_text_does_not_hold_up_running_replies() -> None:
    gate = Gate()
    with WorkerRig(endless(), encoder=SlowEncoder(gate)) as rig:
        running = rig.submit("hi", max_tokens=300)
        slow = rig.submit("slow", max_tokens=1)
        gate.wait_inside()
        rig.wait_for(Finished, running)
        gate.let(1)
        rig.wait_for(Finished, slow)


def test_a_prompt_may_be_cancelled_or_stopped_while_it_is_encoded() -> None:
    gate = Gate()
    with WorkerRig(endless(), encoder=SlowEncoder(gate), num_slots=1) as rig:
        cancelled = rig.submit("slow", max_tokens=50)
        gate.wait_inside()
        rig.send(Cancel(cancelled))
        assert rig.wait_for(RequestFailed, cancelled).code == "CANCELLED"
        gate.let(1)
        stopped = rig.submit("slow", max_tokens=50)
        gate.wait_inside()
        rig.send(Stop(stopped))
        rig.send(Ping(1))
        rig.wait_for(Pong)
        gate.let(1)
        done = rig.wait_for(Finished, stopped)
        assert (done.finish, done.completion_tokens) == (FinishReason.STOPPED, 0)
        assert rig.rig.model.forwards == []


# ---- refusals ----


class BrokenEncoder(ByteTokenizer):
    def encode(self, segments: object) -> list[int]:
        if "broken" in str(segments):
            raise RuntimeError("no such split")
        return super().encode(segments)  # type: ignore[arg-type]


def test_a_prompt_the_tokenizer_fails_on_hurts_only_itself() -> None:
    with WorkerRig(scripted(b"ok", 2), encoder=BrokenEncoder()) as rig:
        bad = rig.submit("broken")
        assert rig.wait_for(RequestFailed, bad).code == "BAD_REQUEST"
        good = rig.submit("hi")
        rig.wait_for(Finished, good)
        assert rig.data(good) == b"ok"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'SUBMITX 1 -1 12 6\n{"warmth":1} C 2\nhi\n'.replace(b"} C", b"}C"), "warmth"),
        (b"SUBMITX 1 99 2 6\n{}C 2\nhi\n", "slot"),
        (b"SUBMIT 1 0 2 5 0 7\nhi\n", "top_p"),
        (b"SUBMIT 1 0 3 5 0 1\na\x00b\n", "NUL"),
    ],
)
def test_a_bad_request_is_answered_by_name_and_the_next_one_works(
    line: bytes, expected: str
) -> None:
    with WorkerRig(scripted(b"ok", 2)) as rig:
        rig.send_raw(line)
        rig.send_raw(b"SUBMITX 2 -1 2 6\n{}C 2\nhi\n")
        rig.wait_for_bytes(b"DONE 2")
        (error,) = [x for x in rig.raw.decode().splitlines() if x.startswith("ERROR")]
        assert error.startswith("ERROR 1 BAD_REQUEST")
        assert expected in error


def test_extended_requests_without_caps_are_refused() -> None:
    with WorkerRig(has_caps=False) as rig:
        rig.send_raw(b"SUBMITX 1 -1 2 6\n{}C 2\nhi\n")
        rig.wait_for_bytes(b"ERROR 1 BAD_REQUEST")


# ---- the end ----


def test_the_end_of_input_lets_running_replies_finish() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        request_id = rig.submit("hi", max_tokens=20)
        gate.wait_inside()
        rig.end_input()
        gate.let(100)
        rig.read_to_end()
        assert rig.join() == 0
        assert rig.wait_for(Finished, request_id).completion_tokens == 20


def test_the_end_of_input_ends_an_idle_worker() -> None:
    with WorkerRig() as rig:
        rig.end_input()
        rig.read_to_end()
        assert rig.join() == 0


def test_the_end_of_input_waits_for_a_prompt_being_encoded() -> None:
    gate = Gate()
    with WorkerRig(scripted(b"ok", 4), encoder=SlowEncoder(gate)) as rig:
        request_id = rig.submit("slow")
        gate.wait_inside()
        rig.end_input()
        gate.let(1)
        rig.read_to_end()
        assert rig.join() == 0
        assert rig.wait_for(Finished, request_id).completion_tokens == 2


def test_a_gateway_that_stops_reading_ends_the_worker_quietly() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        rig.submit("hi", max_tokens=1000)
        gate.wait_inside()
        rig.close_output()
        gate.let(1000)
        assert rig.join() == 0


def test_a_closed_output_ends_an_idle_worker() -> None:
    with WorkerRig() as rig:
        rig.inbox.put(Event.OUTPUT_CLOSED)
        assert rig.join() == 0


def test_an_interrupt_ends_replies_and_not_the_worker() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        first = rig.submit("hi", max_tokens=1000)
        gate.wait_inside()
        rig.inbox.put(Event.INTERRUPT)
        gate.let(2000)
        assert rig.wait_for(Finished, first).finish is FinishReason.STOPPED
        second = rig.submit("hi", max_tokens=3)
        assert rig.wait_for(Finished, second).completion_tokens == 3


def test_terminate_ends_replies_and_the_worker() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        request_id = rig.submit("hi", max_tokens=1000)
        gate.wait_inside()
        rig.inbox.put(Event.TERMINATE)
        gate.let(2000)
        rig.read_to_end()
        assert rig.join() == 0
        assert rig.wait_for(Finished, request_id).finish is FinishReason.STOPPED


def test_broken_framing_ends_the_worker_after_what_it_had_accepted() -> None:
    gate = Gate()
    with WorkerRig(endless(gate)) as rig:
        request_id = rig.submit("hi", max_tokens=5)
        gate.wait_inside()
        rig.send_raw(b"SUBMIT 7 0 many 5 0 1\nSTOP 1\n")
        gate.let(100)
        rig.read_to_end()
        assert rig.join() == 1
        assert b"ERROR 0 BAD_FRAME" in rig.raw
    del request_id


def test_input_that_ends_inside_a_frame_is_told() -> None:
    with WorkerRig() as rig:
        rig.send_raw(b"SUBMIT 1 0 100 5 0 1\nonly a part")
        rig.end_input()
        rig.read_to_end()
        assert rig.join() == 1
        assert b"ERROR 0 BAD_FRAME" in rig.raw


# ---- equality ----


def test_the_pipe_changes_nothing() -> None:
    wanted: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 30}
    with WorkerRig() as rig:
        request_id = rig.submit("some prompt", **wanted)
        rig.wait_for(Finished)
        assert rig.data(request_id) == Rig().answer("some prompt", **wanted)


def test_many_requests_one_after_the_other_all_get_their_own_text() -> None:
    with WorkerRig(num_slots=3) as rig:
        prompts = [f"prompt number {i % 7}" for i in range(40)]
        for prompt in prompts:
            request_id = rig.submit(prompt, max_tokens=4, temperature=0.0)
            rig.wait_for(Finished, request_id)
            assert rig.data(request_id) == Rig().answer(prompt, max_tokens=4)


def test_requests_sent_in_one_write_are_all_answered() -> None:
    with WorkerRig(num_slots=4) as rig:
        segments = (Segment(SegmentKind.TEXT, "hi"),)
        from colibri_protocol.messages import RequestOptions

        data = b"".join(
            rig.session.send(SubmitExtended(i, -1, RequestOptions(max_tokens=3), segments))
            for i in range(1, 5)
        )
        rig.send_raw(data)
        for request_id in range(1, 5):
            rig.wait_for(Finished, request_id)
        assert len({rig.data(i) for i in range(1, 5)}) == 1


VALID = (
    b"SUBMIT 1 0 2 3 0 1\nhi\n"
    b'SUBMITX 2 -1 16 6\n{"max_tokens":4}C 2\nhi\n'
    b"COUNT 3 6\nT 2\nhi\nPING 5\nSTATS 4\nSTOP 1\nCANCEL 2\n\nWHAT is this\n"
)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_input_ends_in_order(seed: int) -> None:
    generator = random.Random(seed)
    data = bytearray(VALID * 2)
    for _ in range(generator.randrange(6)):
        position = generator.randrange(len(data))
        match generator.randrange(3):
            case 0:
                data[position] = generator.randrange(256)
            case 1:
                del data[position : position + generator.randrange(4)]
            case _:
                data[position:position] = generator.randbytes(generator.randrange(4))
    with WorkerRig(endless()) as rig:
        rig.send_raw(bytes(data))
        rig.end_input()
        rig.read_to_end()
        assert rig.join() in {0, 1}
