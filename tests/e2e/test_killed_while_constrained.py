"""The real engine is killed, or its client leaves, while a grammar holds an answer to its form.

Nothing of the grammar or of a call that is half sent may be left: neither in what the client is
told, nor in the counters, nor in what the next request gets.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.e2e.test_serve import RunningServer, engine_pid, serving, until
from tests.fakes.command_line import CommandLine
from tests.gateway.routes.test_early_ends import PATHS
from tests.gateway.routes.test_engine_deaths import check_refusal, failure_of

# Long enough that no machine has finished it when the engine dies.
LONG: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"days": {"type": "array", "items": {"enum": ["Mo", "Tu"]}, "minItems": 900}},
    "required": ["days"],
    "additionalProperties": False,
}
SHORT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
ONE: Final = {"parallel_tool_calls": False}
WORDS: Final = "What is the capital of France?"
# What only an answer has that came to its end, in the words of each API.
ENDS: Final = (
    "[DONE]", '"finish_reason":"', "content_block_stop", "message_delta", "message_stop",
    "arguments.done", "output_text.done", "output_item.done", "response.completed",
)  # fmt: skip
# What a piece of a call, or of a document, is known by.
PIECES: Final = {
    ("/v1/chat/completions", True): '"arguments":"',
    ("/v1/chat/completions", False): '"content":"',
    ("/v1/messages", True): "input_json_delta",
    ("/v1/messages", False): "text_delta",
    ("/v1/responses", True): "function_call_arguments.delta",
    ("/v1/responses", False): "output_text.delta",
}


@pytest.fixture(scope="module")
def server(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    command = CommandLine(tmp_path_factory.mktemp("serve"), {"COLI_MODEL": str(demo_gguf)})
    with serving(command, "--model-id", "demo", "--kv-slots", "1") as started:
        started.wait_for("ready")
        yield started


def body_of(path: str, schema: dict[str, Any], *, is_call: bool) -> dict[str, Any]:
    """Return what asks for a document of this schema, or for a call that has it."""
    question = [{"role": "user", "content": "Tell me something."}]
    function = {"name": "tell", "description": "Tell it.", "parameters": schema}
    body: dict[str, Any] = {"messages": question, "max_tokens": 3000, "temperature": 0}
    if path == "/v1/responses":
        body = {"input": question, "max_output_tokens": 3000, "temperature": 0}
        if is_call:
            tool = {"type": "function", **function}
            return body | {"tools": [tool], "tool_choice": "required", **ONE}
        form = {"type": "json_schema", "name": "form", "schema": schema, "strict": True}
        return body | {"text": {"format": form}}
    if path == "/v1/messages":
        if is_call:
            tool = {"name": "tell", "description": "Tell it.", "input_schema": schema}
            choice = {"type": "any", "disable_parallel_tool_use": True}
            return body | {"tools": [tool], "tool_choice": choice}
        return body | {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    if is_call:
        tool = {"type": "function", "function": function}
        return body | {"tools": [tool], "tool_choice": "required", **ONE}
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
    return body | {"response_format": form}


def counters(client: httpx.Client) -> dict[str, int]:
    found: dict[str, int] = client.get("/health").json()["scheduler"]
    return found


def until_free(client: httpx.Client) -> None:
    until(lambda: counters(client)["active"] == 0)


def check_counts(before: dict[str, int], after: dict[str, int], **ended: int) -> None:
    """Check how many more requests ended, and in which way."""
    for how in ("completed", "failed", "aborted"):
        assert after[how] - before[how] == ended.get(how, 0), (how, before, after)
    assert after["admitted"] - before["admitted"] == sum(ended.values())
    assert after["active"] == after["queued"] == 0


def says(client: httpx.Client, words: str) -> str:
    body = {"messages": [{"role": "user", "content": words}], "temperature": 0, "max_tokens": 12}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    content: str = response.json()["choices"][0]["message"]["content"]
    return content


def check_next_requests(client: httpx.Client, path: str) -> None:
    """Free words are free again, and another form is held to itself."""
    assert "Paris" in says(client, WORDS)
    for is_call in (True, False):
        body = body_of(path, SHORT, is_call=is_call)
        answer = client.post(path, json={"model": "demo", **body})
        assert answer.status_code == 200, answer.text
        assert json.loads(found_in(path, answer.json(), is_call=is_call))["city"] in {
            "Rome",
            "Oslo",
        }


def found_in(path: str, answer: dict[str, Any], *, is_call: bool) -> str:
    """Return the document, or the arguments of the call."""
    text: str
    if path == "/v1/chat/completions":
        message = answer["choices"][0]["message"]
        text = message["tool_calls"][0]["function"]["arguments"] if is_call else message["content"]
    elif path == "/v1/messages":
        wanted = "tool_use" if is_call else "text"
        (block,) = [one for one in answer["content"] if one["type"] == wanted]
        text = json.dumps(block["input"]) if is_call else block["text"]
    else:
        wanted = "function_call" if is_call else "message"
        (item,) = [one for one in answer["output"] if one["type"] == wanted]
        text = item["arguments"] if is_call else item["content"][0]["text"]
    return text


def kill_when_it_generates(server: RunningServer) -> None:
    """Kill the engine once some tokens of a request are there."""
    with server.client() as client:
        until(lambda: any(s["generated"] > 8 for s in client.get("/health").json()["slots"]))
    os.kill(engine_pid(server), signal.SIGKILL)


@pytest.mark.parametrize("is_call", [True, False], ids=["call", "document"])
@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_of_a_killed_engine_is_a_refusal(
    server: RunningServer, path: str, is_call: bool
) -> None:
    with server.client() as client:
        until_free(client)
        before = counters(client)
        killing = threading.Thread(target=kill_when_it_generates, args=(server,))
        killing.start()
        response = client.post(path, json=body_of(path, LONG, is_call=is_call))
        killing.join()
        check_refusal(response, path)
        assert "Mo" not in response.json()["error"]["message"]
        check_next_requests(client, path)
        check_counts(before, counters(client), failed=1, completed=3)


@pytest.mark.parametrize("is_call", [True, False], ids=["call", "document"])
@pytest.mark.parametrize("path", PATHS)
def test_the_stream_of_a_killed_engine_ends_with_the_error(
    server: RunningServer, path: str, is_call: bool
) -> None:
    with server.client() as client:
        until_free(client)
        before = counters(client)
        text, has_killed = "", False
        body = body_of(path, LONG, is_call=is_call) | {"stream": True}
        with client.stream("POST", path, json=body) as response:
            assert response.status_code == 200
            for part in response.iter_text():
                text += part
                if not has_killed and text.count(PIECES[path, is_call]) > 4:
                    os.kill(engine_pid(server), signal.SIGKILL)
                    has_killed = True
        assert has_killed
        frames = [frame for frame in text.split("\n\n") if frame]
        assert failure_of(frames[-1])["message"]
        for end in ENDS:
            assert end not in text, end
        check_next_requests(client, path)
        check_counts(before, counters(client), failed=1, completed=3)


@pytest.mark.parametrize("is_call", [True, False], ids=["call", "document"])
@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_leaves_in_the_middle_frees_the_engine(
    server: RunningServer, path: str, is_call: bool
) -> None:
    with server.client() as client:
        until_free(client)
        before, pid = counters(client), engine_pid(server)
        body = body_of(path, LONG, is_call=is_call) | {"stream": True}
        text = ""
        with client.stream("POST", path, json=body) as response:
            for part in response.iter_text():
                text += part
                if text.count(PIECES[path, is_call]) > 4:
                    break
        left = time.monotonic()
        until_free(client)
        assert time.monotonic() - left < 10
        check_next_requests(client, path)
        check_counts(before, counters(client), aborted=1, completed=3)
        assert engine_pid(server) == pid
