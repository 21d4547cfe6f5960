"""Real engine processes: what the next one finds, whatever became of the one before."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from colibri_protocol.messages import Accepted, Finished, TextDelta
from tests.engine.kv_files.resume_rig import write_model
from tests.engine.test_process import EngineProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

SETTINGS = {"COLI_KV_SAVE": "1", "COLI_CTX": "2000"}
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "glm4_moe")


def answer(engine: EngineProcess, text: str, max_tokens: int = 10) -> tuple[bytes, int]:
    """Return the answer and how many tokens of the prompt had been computed before."""
    request_id = engine.submit(text, max_tokens=max_tokens, **GREEDY)
    reused = engine.wait_for(Finished, request_id).reused_tokens
    return engine.data(request_id), reused


def without_file(model: Path, text: str) -> bytes:
    with EngineProcess(model, COLI_KV_SAVE="0", COLI_CTX="2000") as engine:
        return answer(engine, text)[0]


def left_to_itself(engine: EngineProcess) -> str:
    """Let a process end; return its standard error."""
    engine.end_input()
    engine.read_to_end()
    code, text = engine.ended()
    assert code == 0
    return text


def test_a_restart_goes_on_and_says_so(model: Path) -> None:
    text = "hello world " * 30
    with EngineProcess(model, **SETTINGS) as engine:
        answer(engine, text)
        assert left_to_itself(engine) == ""
    with EngineProcess(model, **SETTINGS) as engine:
        found, reused = answer(engine, f"{text}and more")
        assert reused >= 60
        told = left_to_itself(engine)
    assert told.count("\n") == 1
    assert told.startswith("coli-engine: NOTICE: conversations go on: slot 0 with ")
    assert str(model / ".coli_kv") in told
    assert found == without_file(model, f"{text}and more")


def test_errors_only_means_errors_only(model: Path) -> None:
    for _ in range(2):
        with EngineProcess(model, COLI_LOG="error", **SETTINGS) as engine:
            answer(engine, "hello world")
            assert left_to_itself(engine) == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_process_told_to_end_saves_what_it_was_answering(model: Path, signum: int) -> None:
    with EngineProcess(model, **SETTINGS) as engine:
        request_id = engine.submit("hello world", max_tokens=1900, **GREEDY)
        engine.wait_for(TextDelta, request_id)
        engine.process.send_signal(signum)
        completed = engine.wait_for(Finished, request_id).completion_tokens
        left_to_itself(engine)
        begun = engine.data(request_id)
    assert completed > 0
    with EngineProcess(model, **SETTINGS) as engine:
        left = left_to_itself(engine)
    assert "slot 0 with" in left
    assert begun


def test_a_second_process_on_the_same_model_neither_saves_nor_harms(model: Path) -> None:
    text = "hello world " * 20
    with EngineProcess(model, **SETTINGS) as first:
        answer(first, text)
        with EngineProcess(model, **SETTINGS) as second:
            assert answer(second, text)[1] == 0
            told = left_to_itself(second)
        assert told.count("\n") == 1
        assert "another engine saves its conversations" in told
        answer(first, f"{text}and more")
        left_to_itself(first)
    with EngineProcess(model, **SETTINGS) as third:
        found, reused = answer(third, f"{text}and more")
    assert reused > 40
    assert found == without_file(model, f"{text}and more")


def check_kills(model: Path, count: int) -> None:
    draw = random.Random(count)
    text = "hello world " * 150
    expected = without_file(model, f"{text}and more")
    reuses = []
    for _ in range(count):
        with EngineProcess(model, **SETTINGS) as engine:
            request_id = engine.submit(f"{text}and more", max_tokens=10, **GREEDY)
            engine.wait_for(Finished, request_id)
            reuses.append(engine.wait_for(Accepted, request_id).reused_tokens or 0)
            assert engine.data(request_id) == expected
            engine.submit(text + draw.choice(["and", "or", "but"]) * 9, max_tokens=3, **GREEDY)
            time.sleep(draw.random() * 0.1)
            engine.process.kill()
    assert reuses[0] == 0
    assert max(reuses) > 150


def test_killed_engines_leave_what_the_next_can_go_on_from(model: Path) -> None:
    check_kills(model, 4)


@pytest.mark.slow
def test_many_killed_engines_leave_what_the_next_can_go_on_from(model: Path) -> None:
    check_kills(model, 60)
