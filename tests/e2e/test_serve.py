"""`coli serve` as a process: start, refusals, loading, drain, crashes, keys; and the demo model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.fakes.command_line import CommandLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 60.0


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@dataclass
class RunningServer:
    """A server process; its standard error is collected while it runs."""

    process: subprocess.Popen[bytes]
    stderr: str = ""
    _reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 65536):
            self.stderr += data.decode(errors="replace")

    def wait_for(self, pattern: str, limit_s: float = LIMIT_S) -> re.Match[str]:
        end = time.monotonic() + limit_s
        while (found := re.search(pattern, self.stderr)) is None:
            assert self.process.poll() is None or self._reader.is_alive(), self.stderr
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.stderr}"
            time.sleep(0.02)
        return found

    @property
    def url(self) -> str:
        return self.wait_for(r"http://127\.0\.0\.1:\d+").group()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=LIMIT_S, trust_env=False)

    def end(self, number: int = signal.SIGTERM, limit_s: float = LIMIT_S) -> int:
        self.process.send_signal(number)
        code = self.process.wait(limit_s)
        self._reader.join(5)
        return code


@contextmanager
def serving(command: CommandLine, *arguments: str) -> Iterator[RunningServer]:
    server = RunningServer(command.start("serve", "--port", "0", *arguments))
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server._reader.join(5)
        for pipe in (server.process.stdout, server.process.stderr):
            if pipe is not None:
                pipe.close()


def configured(command: CommandLine, **config: object) -> CommandLine:
    return replace(command, variables={**command.variables, "FAKE_ENGINE": json.dumps(config)})


def chat(client: httpx.Client, text: str, **fields: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], **fields}
    return client.post("/v1/chat/completions", json=body)


def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_it_says_what_clients_need_and_answers_both_apis(served: CommandLine) -> None:
    with serving(served, "--model-alias", "other", "--ctx", "100") as server:
        server.wait_for("ANTHROPIC_SMALL_FAST_MODEL=tiny")
        url = server.url
        for line in (
            f"base URL {url}/v1  model tiny",
            f"base URL {url}  model tiny",
            f"export ANTHROPIC_BASE_URL={url}",
            "export ANTHROPIC_AUTH_TOKEN=any",
            "export ANTHROPIC_MODEL=tiny",
            "export ANTHROPIC_DEFAULT_HAIKU_MODEL=tiny",
        ):
            assert line in server.stderr
        with server.client() as client:
            assert client.get("/health").json()["status"] == "ok"
            names = [model["id"] for model in client.get("/v1/models").json()["data"]]
            assert names == ["tiny", "other"]
            answer = chat(client, "[[reply hello]]", model="other").json()
            assert answer["choices"][0]["message"]["content"] == "hello"
            body = {
                "model": "tiny",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "x"}],
            }
            assert client.post("/v1/messages", json=body).status_code == 200
        server.wait_for('"POST /v1/chat/completions" 200')


def test_while_it_runs_a_status_file_of_the_owner_tells_where(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        (path,) = (served.home / "state").rglob("serve-*.json")
        status = json.loads(path.read_text())
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.name == f"serve-{server.url.rsplit(':', 1)[1]}.json"
        assert (status["pid"], status["url"]) == (server.process.pid, server.url)
        assert status["model"] == "tiny"
        assert server.end() == 128 + signal.SIGTERM
        assert not path.exists()


@pytest.fixture
def spawn_watch(served: CommandLine) -> tuple[CommandLine, Path]:
    """A command whose engine leaves a mark when it is started."""
    mark = served.home / "spawned"
    engine = served.home / "marking-engine"
    engine.write_text(
        f"#!/bin/sh\ntouch '{mark}'\nexec '{served.variables['COLI_ENGINE']}' \"$@\"\n"
    )
    engine.chmod(0o755)
    return replace(served, variables={**served.variables, "COLI_ENGINE": str(engine)}), mark


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("--kv-slots", "0"), 2, ["--kv-slots"]),
        (("--host", "0.0.0.0"), 1, ["COLI_API_KEY", "COLI_ALLOW_INSECURE_BIND"]),
        (("--allowed-host", "*"), 2, ["--allowed-host *", "wildcard", "COLI_ALLOWED_HOSTS"]),
        (("--port", "65536"), 2, ["--port"]),
        (("--queue-timeout", "0"), 2, ["--queue-timeout"]),
    ],
)
def test_what_cannot_be_is_refused_before_an_engine_is_started(
    spawn_watch: tuple[CommandLine, Path],
    arguments: tuple[str, ...],
    exit_code: int,
    words: list[str],
) -> None:
    command, mark = spawn_watch
    done = command.run("serve", *arguments)
    assert done.returncode == exit_code, done.stderr
    for word in words:
        assert word in done.stderr
    assert not mark.exists()


def test_a_bad_temperature_variable_stops_the_start(
    spawn_watch: tuple[CommandLine, Path],
) -> None:
    command, mark = spawn_watch
    for value in ("malformed", "5", "-1", "nan", "1e999"):
        bad = replace(command, variables={**command.variables, "COLI_TEMP": value})
        done = bad.run("serve", "--port", "0")
        assert done.returncode == 2
        assert "COLI_TEMP" in done.stderr
    assert not mark.exists()


def test_an_occupied_port_fails_at_once(spawn_watch: tuple[CommandLine, Path]) -> None:
    command, mark = spawn_watch
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command.run("serve", "--port", str(port))
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is already in use" in done.stderr
    assert not mark.exists()


def test_requests_are_told_to_wait_while_the_model_loads(served: CommandLine) -> None:
    with serving(configured(served, delay_s=2)) as server, server.client() as client:
        loading = client.get("/health")
        assert (loading.status_code, loading.json()["status"]) == (503, "loading")
        early = chat(client, "hi")
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) >= 1
        server.wait_for("ready")
        assert client.get("/health").status_code == 200
        assert chat(client, "hi").status_code == 200


def test_an_engine_that_cannot_start_ends_the_server(served: CommandLine) -> None:
    failed = {"code": "checkpoint_error", "message": "model.safetensors is truncated"}
    with serving(configured(served, failed=failed)) as server:
        assert server.process.wait(LIMIT_S) == 3
        server.wait_for("model.safetensors is truncated")


def test_running_answers_finish_before_the_end(served: CommandLine) -> None:
    with serving(served) as server, server.client() as client:
        server.wait_for("ready")
        results: list[str] = []

        def ask() -> None:
            stream = {"stream": True, "max_tokens": 40}
            results.append(chat(client, "[[tokens 20]] [[slow 0.05]]", **stream).text)

        asking = threading.Thread(target=ask)
        asking.start()
        with server.client() as other:
            until(lambda: other.get("/health").json()["scheduler"]["active"] == 1)
        assert server.end() == 128 + signal.SIGTERM
        asking.join(LIMIT_S)
        assert results[0].endswith("data: [DONE]\n\n")
        assert "word19" in results[0]


TALKING = "[[endless]] [[slow 0.05]]"
TURNS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": TALKING}]},
    "/v1/completions": {"prompt": TALKING},
    "/v1/messages": {"messages": [{"role": "user", "content": TALKING}], "max_tokens": 100_000},
    "/v1/responses": {"input": TALKING},
}


@pytest.mark.timed
@pytest.mark.parametrize("asks_again", [True, False])
def test_answers_that_do_not_finish_in_time_are_told_why_they_end(
    served: CommandLine, asks_again: bool
) -> None:
    options = ("--kv-slots", "8", "--max-tokens", "100000", "--drain-timeout")
    grace = "600" if asks_again else "0.5"
    with serving(configured(served, num_slots=8), *options, grace) as server:
        server.wait_for("ready")
        found: dict[tuple[str, bool], httpx.Response] = {}

        def ask(path: str, is_stream: bool) -> None:
            with server.client() as client:
                body = {**TURNS[path], "stream": is_stream}
                found[path, is_stream] = client.post(path, json=body)

        asking = [
            threading.Thread(target=ask, args=(path, is_stream))
            for path in TURNS
            for is_stream in (True, False)
        ]
        for thread in asking:
            thread.start()
        with server.client() as other:
            until(
                lambda: (
                    [slot["state"] for slot in other.get("/health").json()["slots"]]
                    == ["decode"] * len(asking)
                )
            )
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("running answers")
        if asks_again:
            server.process.send_signal(signal.SIGINT)
        server.process.wait(LIMIT_S)
        for thread in asking:
            thread.join(LIMIT_S)
        assert len(found) == len(asking)
        for (path, is_stream), response in found.items():
            assert "the server ended before this answer was complete" in response.text, path
            if is_stream:
                assert response.status_code == 200
                for end in ("[DONE]", "message_stop", "response.completed"):
                    assert end not in response.text
            else:
                assert response.status_code == 503
                assert response.headers["retry-after"] == "1"


def test_who_waits_for_a_new_engine_is_told_that_the_server_ends(served: CommandLine) -> None:
    command = configured(served, delay_s=3)
    with serving(command, "--drain-timeout", "3") as server, server.client() as client:
        server.wait_for("three settings")
        assert chat(client, "[[die]]").status_code == 503
        found: list[httpx.Response] = []

        def ask() -> None:
            with server.client() as other:
                found.append(chat(other, "hello"))

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)  # it waits for the engine, where nothing counts it
        began = time.monotonic()
        assert server.end() == 128 + signal.SIGTERM
        asking.join(LIMIT_S)
        assert [response.status_code for response in found] == [503]
        assert found[0].json()["error"]["code"] == "scheduler_closed"
        assert time.monotonic() - began < 3  # nobody had to be waited for


def test_interrupting_it_is_an_end_too(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        assert server.end(signal.SIGINT) == 128 + signal.SIGINT


def engine_pid(server: RunningServer) -> int:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return int(children.read_text().split()[0])


def test_a_killed_engine_is_explained_and_replaced(served: CommandLine) -> None:
    with serving(served) as server, server.client() as client:
        server.wait_for("ready")
        os.kill(engine_pid(server), signal.SIGKILL)
        explained = server.wait_for("SIGKILL[^\n]*")
        assert "memory" in explained.group()
        server.wait_for("the engine is ready again")
        assert chat(client, "[[reply back]]").json()["choices"][0]["message"]["content"] == "back"
        assert client.get("/health").json()["engine"]["restarts"] == 1


def test_a_request_that_kills_the_engine_hurts_only_itself(served: CommandLine) -> None:
    with serving(served) as server, server.client() as client:
        server.wait_for("ready")
        boom = chat(client, "[[die]]")
        assert boom.status_code >= 500
        assert boom.json()["error"]["message"]
        assert chat(client, "[[reply fine]]").status_code == 200


def test_an_engine_that_hangs_is_replaced_where_a_limit_is_set(served: CommandLine) -> None:
    command = replace(served, variables={**served.variables, "COLI_HANG_TIMEOUT": "0.5"})
    with serving(command) as server, server.client() as client:
        server.wait_for("ready")
        hung = chat(client, "[[hang]]")
        assert (hung.status_code, hung.headers["retry-after"]) == (503, "1")
        server.wait_for(r"did not answer for 0\.5 s")
        assert chat(client, "[[reply back]]").status_code == 200


def test_what_is_said_is_logged_only_where_that_is_wanted(served: CommandLine) -> None:
    for level, words in (("0", ()), ("1", ("sesame",)), ("2", ("sesame", "openbarley"))):
        command = replace(served, variables={**served.variables, "COLI_DEBUG": level})
        with serving(command, "-v", "-v") as server, server.client() as client:
            server.wait_for("ready")
            answer = chat(client, "openbarley [[reply sesame]]")
            server.wait_for('"POST /v1/chat/completions" 200')
            logged = [line for line in server.stderr.splitlines() if "content" in line]
            assert server.end() == 128 + signal.SIGTERM
        for word in ("sesame", "openbarley"):
            # the prompt of this engine holds what it is to answer
            assert (word in server.stderr) == (word in words), server.stderr
        assert all(answer.headers["x-request-id"] in line for line in logged)


def test_without_restarts_the_end_of_the_engine_is_the_end(served: CommandLine) -> None:
    command = replace(served, variables={**served.variables, "COLI_ENGINE_RESTART": "0"})
    with serving(command) as server:
        server.wait_for("ready")
        os.kill(engine_pid(server), signal.SIGKILL)
        assert server.process.wait(LIMIT_S) == 6
        server.wait_for("SIGKILL")


def test_an_engine_that_cannot_be_started_again_ends_the_server(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        failed = {"code": "checkpoint_error", "message": "model.safetensors is gone"}
        start = Path(served.variables["COLI_MODEL"]) / "fake_engine.json"
        start.write_text(json.dumps({"failed": failed}))
        os.kill(engine_pid(server), signal.SIGKILL)
        assert server.process.wait(LIMIT_S) != 0
        server.wait_for("model.safetensors is gone")


def test_keys_are_asked_for_and_appear_nowhere(served: CommandLine, tmp_path: Path) -> None:
    key = "k-UNIQUE-123"
    log_file = tmp_path / "serve.log"
    variables = {**served.variables, "COLI_API_KEY": key, "COLI_DEBUG": "2"}
    command = replace(served, variables=variables)
    with serving(command, "-vv", "--log-file", str(log_file)) as server, server.client() as client:
        server.wait_for("ready")
        shown = [
            chat(client, "hi"),
            client.get("/v1/models", headers={"x-api-key": "wrong"}),
            client.get("/v1/models", headers={"x-api-key": key}),
            client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}),
            client.get("/health"),
        ]
        assert [response.status_code for response in shown] == [401, 401, 200, 200, 200]
        engine = Path(f"/proc/{engine_pid(server)}")
        for name in ("cmdline", "environ"):
            assert key.encode() not in (engine / name).read_bytes()
        os.kill(engine_pid(server), signal.SIGKILL)
        server.wait_for("ready again")
        server.end()
        texts = [server.stderr, log_file.read_text(), *(response.text for response in shown)]
        assert all(key not in text for text in texts)
        assert "GET /v1/models" in log_file.read_text()


def test_keys_may_stand_in_a_file(served: CommandLine, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# for the team\nalice:key-a\nbob:key-b\n")
    with serving(served, "--api-key-file", str(keys)) as server, server.client() as client:
        server.wait_for("ready")
        for key, status in (("key-a", 200), ("key-b", 200), ("alice", 401)):
            response = client.get("/v1/models", headers={"x-api-key": key})
            assert response.status_code == status


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o640, True), (0o600, False)])
def test_a_file_of_keys_that_others_can_read_is_told(
    served: CommandLine, tmp_path: Path, mode: int, is_told: bool
) -> None:
    keys = tmp_path / "the keys"
    keys.write_text("key-a\n")
    keys.chmod(mode)
    with serving(served, "--api-key-file", str(keys)) as server:
        server.wait_for("ready")
    assert (f"chmod 600 '{keys}'" in server.stderr) is is_told
    assert "key-a" not in server.stderr


def test_it_listens_on_a_socket_file(served: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "coli.sock"
    server = RunningServer(served.start("serve", "--uds", str(path)))
    try:
        server.wait_for("ready")
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            assert client.get("/health").status_code == 200
        assert path.stat().st_mode & 0o777 == 0o600
        assert server.end() == 128 + signal.SIGTERM
        assert not path.exists()
    finally:
        server.process.kill()
        server.process.wait()
        server._reader.join(5)
        for pipe in (server.process.stdout, server.process.stderr):
            assert pipe is not None
            pipe.close()


def test_the_output_limit_of_the_server_holds(served: CommandLine) -> None:
    with serving(served, "--max-tokens", "8") as server, server.client() as client:
        server.wait_for("ready")
        for fields in ({"max_tokens": 100_000}, {}):
            body = chat(client, "[[endless]]", **fields).json()
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == 8


# ---- the demo model --------------------------------------------------------------------------


@pytest.fixture
def demo(demo_gguf: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, {"COLI_MODEL": str(demo_gguf)})


def test_the_demo_model_answers_over_both_apis(demo: CommandLine) -> None:
    with (
        serving(demo, "--model-id", "demo", "--kv-slots", "2") as server,
        server.client() as client,
    ):
        server.wait_for("ready")
        fields: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
        whole = chat(client, "What is the capital of France?", **fields).json()
        streamed = chat(client, "What is the capital of France?", stream=True, **fields).text
        chunks = [
            json.loads(line.removeprefix("data: "))
            for line in streamed.splitlines()
            if line.startswith("data: {")
        ]
        pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
        assert "".join(pieces) == whole["choices"][0]["message"]["content"]
        assert whole["usage"]["completion_tokens"] <= 12
        body = {
            "model": "demo",
            "max_tokens": 12,
            "temperature": 0,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
        }
        message = client.post("/v1/messages", json=body).json()
        assert message["content"][0]["text"] == whole["choices"][0]["message"]["content"]


def test_the_second_turn_of_a_conversation_reuses_the_first(demo: CommandLine) -> None:
    with serving(demo, "--kv-slots", "2") as server, server.client() as client:
        server.wait_for("ready")
        histories: list[list[dict[str, str]]] = [
            [{"role": "user", "content": f"Tell me about {topic}."}] for topic in ("cats", "rain")
        ]
        fields: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
        for turn in range(3):
            for history in histories:
                reply = client.post(
                    "/v1/chat/completions", json={"messages": history, **fields}
                ).json()
                usage = reply["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                if turn:
                    assert usage["prompt_tokens"] - cached < 24
                text = reply["choices"][0]["message"]["content"]
                history += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": "Go on."},
                ]


def test_long_prompts_are_refused_with_all_numbers_and_short_ones_fit(demo: CommandLine) -> None:
    with serving(demo, "--ctx", "128", "--max-tokens", "128") as server, server.client() as client:
        server.wait_for("context 128")
        assert client.get("/health").json()["context_length"] == 128
        fits = chat(client, "hi", temperature=0)
        assert fits.status_code == 200
        assert fits.json()["usage"]["total_tokens"] <= 128
        for stream in (False, True):
            refused = chat(client, "word " * 500, stream=stream)
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert error["code"] == "context_length_exceeded"
            prompt, room, context = map(int, re.findall(r"\d{3,}", error["message"]))
            assert prompt > 500
            assert room < context == 128


def test_a_seed_gives_the_same_answer_alone_and_in_company(demo: CommandLine) -> None:
    with serving(demo, "--kv-slots", "2") as server, server.client() as client:
        server.wait_for("ready")
        fields: dict[str, Any] = {"temperature": 1, "seed": 7, "max_tokens": 16}

        def answer() -> str:
            text: str = chat(client, "Write a poem.", **fields).json()["choices"][0]["message"][
                "content"
            ]
            return text

        alone = answer()
        company = threading.Thread(target=chat, args=(client, "Count."), kwargs={"max_tokens": 32})
        company.start()
        assert answer() == alone
        company.join(LIMIT_S)
        assert answer() == alone


# ---- coli chat on a running server -----------------------------------------------------------


def test_chat_talks_on_a_named_server(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        talk = replace(served, variables={})
        done = talk.run("chat", "--attach", server.url, stdin="[[reply from the server]]\n")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "from the server"
        assert f"tiny on the server at {server.url}" in done.stderr
        assert server.process.poll() is None
        limited = talk.run(
            "chat",
            "--attach",
            f"{server.url}/v1",
            "--max-tokens",
            "3",
            stdin="[[endless]]\n/more\n",
        )
        assert limited.stdout.startswith("word0 word1 word2")


def test_chat_names_a_server_that_is_silent(coli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = coli.run("chat", "--attach", f"http://127.0.0.1:{port}", stdin="hi\n")
    assert done.returncode == 5
    assert f"http://127.0.0.1:{port}" in done.stderr


@pytest.mark.timed
def test_chat_gives_up_on_a_server_that_says_nothing(coli: CommandLine) -> None:
    patience: list[float] = []

    def listen(mute: socket.socket) -> None:
        client, _ = mute.accept()
        with client:
            began = time.monotonic()  # starting a process takes as long as the machine likes
            while client.recv(65536):
                pass
            patience.append(time.monotonic() - began)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        listening = threading.Thread(target=listen, args=(mute,))
        listening.start()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        assert coli.run("chat", "--attach", url, stdin="hi\n").returncode == 5
        listening.join(LIMIT_S)
    assert 1 < patience[0] < 10


def test_chat_does_not_mix_a_server_with_other_wishes(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        talk = replace(served, variables={})
        for arguments, word in (
            (("--ctx", "100"), "--ctx"),
            (("--model", "other"), "other"),
            (("--no-attach",), "--no-attach"),
        ):
            done = talk.run("chat", "--attach", server.url, *arguments, stdin="hi\n")
            assert done.returncode == 2
            assert word in done.stderr
