"""The scripted engine itself, as a process: other tests rely on what it promises."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from colibri_protocol import messages as m
from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.messages import FinishReason, RequestOptions, Segment, SegmentKind
from colibri_protocol.session import VIOLATION, GatewaySession
from tests.fakes.fake_engine import write_executable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Engine:
    """A running scripted engine, spoken to through a gateway's session."""

    def __init__(self, directory: Path, *, caps: bool = True, **config: Any) -> None:  # noqa: ANN401
        environ = os.environ | {"SNAP": str(directory)}
        if caps:
            environ["COLI_CAPS"] = "1"
        (directory / "fake_engine.json").write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [write_executable(directory), "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
        )
        self.session = GatewaySession()
        self.events: list[m.EngineMessage] = []

    def send(self, *messages: m.GatewayMessage) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(self.session.send, messages)))
        self.process.stdin.flush()

    def read_until(self, *kinds: type[m.EngineMessage]) -> m.EngineMessage:
        """Read until a message of one of the kinds has come, and return it."""
        while True:
            for position, event in enumerate(self.events):
                if isinstance(event, kinds):
                    del self.events[: position + 1]
                    return event
            self.events += self.read_some()

    def read_some(self) -> list[m.EngineMessage]:
        """Read what is there, at least one byte."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 65_536)
        if not data:
            self.session.receive_eof()
            raise EOFError
        return self.session.receive_data(data)

    def reply(self, text: str, **options: Any) -> tuple[bytes, m.EngineMessage]:  # noqa: ANN401
        """Ask, and return the text with the end."""
        self.send(ask(self.session.next_id(), text, **options))
        whole = b""
        while True:
            event = self.read_until(m.TextDelta, m.Finished, m.RequestFailed)
            if not isinstance(event, m.TextDelta):
                return whole, event
            whole += event.payload

    def close(self) -> int:
        self.process.communicate()
        return self.process.returncode


def ask(request: int, text: str, **options: Any) -> m.SubmitExtended:  # noqa: ANN401
    segments = (Segment(SegmentKind.CONTROL, "<|im_start|>"), Segment(SegmentKind.TEXT, text))
    return m.SubmitExtended(request, -1, RequestOptions(**options), segments)


def started(directory: Path) -> Iterator[Engine]:
    running = Engine(directory)
    running.read_until(m.ModelInfo)
    yield running
    running.process.kill()
    running.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """One of its own, for tests that end it."""
    yield from started(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One for all tests that leave it as they found it."""
    yield from started(tmp_path_factory.mktemp("engine"))


def test_it_greets_and_answers_and_leaves_at_the_end_of_input(engine: Engine) -> None:
    text, end = engine.reply("hello")
    assert text == b"Hello from the fake engine."
    assert isinstance(end, m.Finished)
    assert (end.completion_tokens, end.finish, end.stop_id) == (5, FinishReason.STOP, 2)
    assert engine.close() == 0


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("[[reply one two]]", b"one two"),
        ("[[pieces L M N| O| P]]", b"L M N O P"),
        ("[[echo]] say this", b"say this"),
        ("[[tokens 3]]", b"word0 word1 word2 "),
        ("[[utf8]]", "Grüße, 世界 👋".encode()),
        ("[[invalid-utf8]]", b"ok\xff\xfeok\xe4\xb8"),
        ("[[options]]", b'{"temperature":0.5,"seed":1}'),
        ("[[unknown]] hi", b"Hello from the fake engine."),
        ("[[no-accept]]", b"Hello from the fake engine."),
    ],
)
def test_the_prompt_chooses_the_reply(shared: Engine, text: str, reply: bytes) -> None:
    found, end = shared.reply(text, temperature=0.5, seed=1)
    assert found == reply
    assert isinstance(end, m.Finished)


def test_max_tokens_ends_a_reply(shared: Engine) -> None:
    text, end = shared.reply("[[endless]]", max_tokens=2)
    assert text == b"word0 word1 "
    assert isinstance(end, m.Finished)
    assert (end.finish, end.limited) == (FinishReason.LENGTH, True)


def test_stop_and_cancel_are_obeyed_while_it_speaks(shared: Engine) -> None:
    first = shared.session.next_id()
    shared.send(*(ask(first + n, "[[endless]] [[slow 0.001]]") for n in range(2)))
    shared.read_until(m.TextDelta)
    shared.send(m.Stop(first))
    end = shared.read_until(m.Finished)
    assert isinstance(end, m.Finished)
    assert (end.id, end.finish) == (first, FinishReason.STOPPED)
    shared.send(m.Cancel(first + 1))
    assert shared.read_until(m.RequestFailed) == m.RequestFailed(first + 1, "CANCELLED")


def test_it_counts_and_answers_heartbeats(shared: Engine) -> None:
    number = shared.session.next_id()
    question = m.Count(number, (Segment(SegmentKind.TEXT, "12345678"),))
    shared.send(question, m.StatsQuery(number + 1), m.Ping(7))
    assert shared.read_until(m.Counted) == m.Counted(number, 2)
    stats = shared.read_until(m.StatsReport)
    assert isinstance(stats, m.StatsReport)
    assert stats.data.keys() == {"num_requests"}
    assert shared.read_until(m.Pong) == m.Pong(7)


def test_log_probabilities_come_when_asked_for(shared: Engine) -> None:
    shared.send(ask(shared.session.next_id(), "[[reply one]]", logprobs=2))
    token = shared.read_until(m.TokenLogprobs)
    assert isinstance(token, m.TokenLogprobs)
    assert token.token_bytes == b"one"
    assert len(token.top) == 2
    shared.read_until(m.Finished)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[[error SLOT_BUSY]]", "SLOT_BUSY"),
        ("[[error CONTEXT_EXCEEDED 9 8]]", "CONTEXT_EXCEEDED"),
        ("[[late-error INTERNAL oops]]", "INTERNAL"),
        ("[[error0]]", "BAD_REQUEST"),
        ("[[twice]]", VIOLATION),
        ("x" * 20_000, "CONTEXT_EXCEEDED"),
    ],
)
def test_it_refuses_on_demand(shared: Engine, text: str, code: str) -> None:
    _, end = shared.reply(text)
    assert isinstance(end, m.RequestFailed)
    assert end.code == code
    own = shared.session.data_to_send()
    assert own.startswith(b"CANCEL ") == (text in {"[[twice]]", "[[error0]]"})
    assert shared.process.stdin is not None
    shared.process.stdin.write(own)
    shared.process.stdin.flush()
    shared.events.clear()


def test_it_dies_on_demand(engine: Engine) -> None:
    engine.send(ask(1, "[[die 2]]"))
    for _ in range(2):
        engine.read_until(m.TextDelta)
    with pytest.raises(EOFError):
        engine.read_until(m.Finished)
    assert engine.close() == -signal.SIGKILL


def test_it_leaves_on_demand(engine: Engine) -> None:
    engine.send(ask(1, "[[exit 4 1]]"))
    engine.read_until(m.TextDelta)
    with pytest.raises(EOFError):
        engine.read_until(m.Finished)
    assert engine.close() == 4


def test_it_breaks_the_framing_on_demand(engine: Engine) -> None:
    engine.send(ask(1, "[[garbage 1]]"))
    with pytest.raises(RemoteProtocolError, match="DATA"):
        engine.read_until(m.Finished)


def test_it_hangs_on_demand_and_answers_no_heartbeat(engine: Engine) -> None:
    engine.send(ask(1, "[[hang]]"))
    engine.read_until(m.Accepted)
    engine.send(m.Ping(1))
    selector = selectors.DefaultSelector()
    assert engine.process.stdout is not None
    selector.register(engine.process.stdout, selectors.EVENT_READ)
    while selector.select(0.2):  # what was still under way
        assert not any(isinstance(event, m.Pong) for event in engine.read_some())
    assert engine.process.poll() is None


def test_without_caps_it_speaks_the_baseline_alone(tmp_path: Path) -> None:
    engine = Engine(tmp_path, caps=False)
    engine.read_until(m.ExpertMap)
    assert engine.session.words == frozenset()
    engine.send(m.Submit(1, 0, b"[[reply hi]]", 9, 0.7, 0.9))
    assert engine.read_until(m.Accepted, m.Progress) == m.Accepted(1, 3)
    end = engine.read_until(m.Finished)
    assert isinstance(end, m.Finished)
    assert end.finish is None
    assert engine.close() == 0


def test_it_starts_after_noise_and_with_another_model(tmp_path: Path) -> None:
    engine = Engine(tmp_path, noise=True, model={"id": "other"}, words=["model", "ping"])
    info = engine.read_until(m.ModelInfo)
    assert isinstance(info, m.ModelInfo)
    assert info.data["id"] == "other"
    assert engine.session.words == {"model", "ping"}
    engine.close()


@pytest.mark.parametrize(
    ("config", "code", "fault"),
    [
        ({"exit_code": 3, "stderr": "no model"}, 3, "before it was ready"),
        ({"failed": {"code": "checkpoint_error", "message": "torn"}}, 3, "before it was ready"),
        ({"bad_stat": True}, 0, "STAT"),
    ],
)
def test_its_start_fails_on_demand(
    tmp_path: Path, config: dict[str, Any], code: int, fault: str
) -> None:
    engine = Engine(tmp_path, **config)
    with pytest.raises(RemoteProtocolError, match=fault):
        engine.read_until(m.ModelInfo)
    assert ("failed" in config) == any(isinstance(e, m.StartFailed) for e in engine.events)
    assert engine.close() == code
