"""`coli serve` goes on from its conversations after it was ended, killed, or a file was harmed."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_serve import RunningServer, serving
from tests.engine.kv_files.resume_rig import write_model
from tests.fakes.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "hello world " * 60
NEW = 60  # a random model answers in bytes that come back as other tokens, and more of them
Message = dict[str, str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny", "glm4_moe")


@pytest.fixture
def command(tmp_path: Path, model: Path) -> CommandLine:
    variables = {"COLI_MODEL": str(model), "COLI_CTX": "2000", "COLI_KV_SAVE": "1"}
    return CommandLine(tmp_path, variables)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(server: RunningServer, *messages: Message, **fields: Any) -> tuple[Message, int, int]:  # noqa: ANN401
    """Return the answer as a message, the tokens that were cached, and those of the prompt."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 8, **fields}
    with server.client() as client:
        found = client.post("/v1/chat/completions", json=body)
    assert found.status_code == 200, found.text
    reply = found.json()
    usage = reply["usage"]
    content = reply["choices"][0]["message"]["content"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {"role": "assistant", "content": content}, cached, usage["prompt_tokens"]


def ready(server: RunningServer) -> RunningServer:
    server.wait_for("clients need three settings")
    return server


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_conversation_goes_on_after_a_restart(
    command: CommandLine, model: Path, end: signal.Signals
) -> None:
    with serving(command) as server:
        reply, cached, _ = answer(ready(server), user(FIRST))
        assert cached == 0
        wait_for_file(model)
        server.end(end)
    conversation = [user(FIRST), reply, user("and more")]
    with serving(command) as server:
        ready(server)
        assert "conversations go on: slot 0 with " in server.stderr
        found, cached, prompt = answer(server, *conversation)
    assert prompt - cached < NEW
    with serving(CommandLine(command.home, command.variables | {"COLI_KV_SAVE": "0"})) as server:
        cold, cached, _ = answer(ready(server), *conversation)
    assert cached == 0
    assert found == cold


def wait_for_file(model: Path) -> None:
    """Wait until the turn is saved: the file is as long as it gets."""
    path, sizes = model / ".coli_kv", [-1, -2]
    for _ in range(200):
        time.sleep(0.05)
        sizes = [*sizes[-3:], path.stat().st_size if path.exists() else 0]
        if sizes[-1] > 8192 and len(set(sizes)) == 1:
            return
    raise AssertionError(f"{path} does not come to rest: {sizes}")


def test_a_damaged_file_is_named_and_the_answer_is_a_new_ones(
    command: CommandLine, model: Path
) -> None:
    with serving(command) as server:
        expected, _, _ = answer(ready(server), user(FIRST))
        server.end()
    path = model / ".coli_kv"
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    with serving(command) as server:
        ready(server)
        assert f"the saved conversation {path} is not used: token " in server.stderr
        assert answer(server, user(FIRST))[:2] == (expected, 0)
        server.end()
    with serving(command, "--numerics", "float") as server:
        ready(server)
        assert f"the saved conversation {path} is not used: it was computed with" in server.stderr
        assert answer(server, user(FIRST))[1] == 0


def test_two_conversations_keep_their_slots_over_a_restart(command: CommandLine) -> None:
    talks = [[user(FIRST)], [user("something else " * 60)]]
    with serving(command, "--kv-slots", "2") as server:
        ready(server)
        for talk in talks:
            talk.extend([answer(server, *talk)[0], user("next")])
        server.end()
    with serving(command, "--kv-slots", "2") as server:
        ready(server)
        for _ in range(2):
            for talk in talks:
                reply, cached, prompt = answer(server, *talk)
                assert prompt - cached < NEW
                talk.extend([reply, user("next")])
        with server.client() as client:
            body = {"messages": talks[0], "cache_slot": 2}
            assert client.post("/v1/chat/completions", json=body).status_code == 400


def test_run_leaves_a_conversation_alone(command: CommandLine, model: Path) -> None:
    with serving(command) as server:
        answer(ready(server), user(FIRST))
        server.end()
    before = (model / ".coli_kv").read_bytes()
    once = CommandLine(command.home, command.variables | {"COLI_KV_SAVE": ""})  # as if not set
    done = once.run("run", "--max-tokens", "3", "hello")
    assert done.returncode == 0, done.stderr
    assert (model / ".coli_kv").read_bytes() == before
    assert command.run("run", "--max-tokens", "3", "hello").returncode == 0  # told to save
    assert (model / ".coli_kv").read_bytes() != before
