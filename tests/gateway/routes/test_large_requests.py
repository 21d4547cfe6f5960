"""Requests and answers of megabytes: refused where too large, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from colibri_cli import long_work
from colibri_cli.backends import native
from colibri_cli.gateway.routes import base
from colibri_cli.long_work import LONG_FROM_BYTES, Result
from colibri_protocol.limits import MAX_GRAMMAR_BYTES, MAX_SEGMENTS
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import Gateway, launch_of, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


MESSAGE = user("a")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": f"f{n}", "parameters": SCHEMA}} for n in range(10_000)
]


class Watch:
    """Counts how often the event loop has its turn while large work is under way."""

    def __init__(self) -> None:
        """Begin with nothing under way."""
        self.turns: list[int] = []  # of the loop, during each work
        self._running: set[int] = set()

    async def run_work(self, num_bytes: int, work: Callable[[], Result]) -> Result:
        """Stand in for the function of this name, which it calls."""
        if num_bytes < LONG_FROM_BYTES:
            return await long_work.run_work(num_bytes, work)
        number = len(self.turns)
        self.turns.append(0)

        def watched() -> Result:
            self._running.add(number)
            try:
                return work()
            finally:
                self._running.discard(number)

        return await long_work.run_work(num_bytes, watched)

    async def count(self, asking: asyncio.Task[Any]) -> None:
        """Take turns of the loop until the request is answered."""
        while not asking.done():
            await asyncio.sleep(0)
            for number in list(self._running):
                self.turns[number] += 1


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [MESSAGE] * 20_000},
        {"messages": [MESSAGE], "tools": TOOLS, "tool_choice": "none"},
    ],
    ids=["messages", "tools"],
)
def test_a_large_conversation_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    watch = Watch()
    monkeypatch.setattr(base, "run_work", watch.run_work)
    monkeypatch.setattr(native, "run_work", watch.run_work)

    async def ask() -> None:
        async with running(launch_of(tmp_path, context_length=1_000_000)) as gateway:
            path = "/v1/chat/completions"
            asking = asyncio.create_task(gateway.client.post(path, json=body))
            await watch.count(asking)
            assert (await asking).status_code == 200
            # on the loop it would have no turn at all; a short piece may pass between two turns
            assert any(watch.turns), watch.turns

    run_async(ask, 60)


CALLER = {
    "chat_template": "{% if tools %}<tools>{{ tools | tojson }}</tools> in <tool_call></tool_call>"
    ' like {"name": "x", "arguments": {}}{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
}
FUNCTION = {"name": "ls", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("path", "body", "is_stream"),
    [
        ("/v1/chat/completions", {"tools": [{"type": "function", "function": FUNCTION}]}, False),
        ("/v1/messages", {"tools": [{"name": "ls", "input_schema": {"type": "object"}}]}, False),
        ("/v1/responses", {"tools": [{"type": "function", **FUNCTION}]}, False),
        ("/v1/responses", {"tools": [{"type": "function", **FUNCTION}]}, True),
    ],
    ids=["chat", "messages", "responses", "responses, streamed"],
)
def test_an_answer_of_thousands_of_calls_is_written_beside_the_loop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    is_stream: bool,
) -> None:
    watch = Watch()
    monkeypatch.setattr(base, "run_work", watch.run_work)
    call = '<tool_call>{"name":"ls","arguments":{"path":"docs"}}</tool_call>\n'
    says = f"[[json {json.dumps(call * 1000)}]]"
    asked = {"input": says} if path == "/v1/responses" else {"messages": [user(says)]}

    async def ask() -> None:
        launch = launch_of(tmp_path, context_length=1_000_000, model=CALLER)
        async with running(launch, max_tokens=100_000) as gateway:
            fields = {**body, **asked, "max_tokens": 100_000, "stream": is_stream}
            if "input" in asked:
                del fields["max_tokens"]
            asking = asyncio.create_task(gateway.client.post(path, json=fields))
            await watch.count(asking)
            response = await asking
            assert response.status_code == 200, response.text[:500]
            assert len(watch.turns) == 1, "of all, the end alone is long work"
            assert response.text.count("docs") >= 1000

    run_async(ask, 60)


async def refusal_of(gateway: Gateway, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await gateway.client.post(path, json=body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_more_parts_than_a_prompt_may_have_are_refused_with_both_numbers(tmp_path: Path) -> None:
    async def ask() -> None:
        async with running(launch_of(tmp_path, context_length=10_000_000)) as gateway:
            count = MAX_SEGMENTS // 2  # two for each message, one for what follows them
            body = {"messages": [MESSAGE] * count, "max_tokens": 4}
            for path in ("/v1/chat/completions", "/v1/messages/count_tokens"):
                error = await refusal_of(gateway, path, body)
                assert error["type"] == "invalid_request_error"
                assert f"{2 * count + 1} segments" in error["message"]
                assert f"at most {MAX_SEGMENTS}" in error["message"]
            assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"

    run_async(ask, 60)


@pytest.mark.parametrize("family", ["llama", "glm_moe_dsa"])
@pytest.mark.parametrize(
    "form",
    [
        {"type": "regex", "pattern": "a" * MAX_GRAMMAR_BYTES},
        {"type": "regex", "pattern": '"' * (MAX_GRAMMAR_BYTES * 3 // 4)},
    ],
    ids=["as it is", "escaped"],
)
def test_a_grammar_that_only_just_does_not_fit_is_refused_by_name(
    tmp_path: Path, family: str, form: dict[str, Any]
) -> None:
    async def ask() -> None:
        words = ["options", "segments", "slots", "model", "grammar"]
        model = {"family": family, **({"chat_template": ""} if family != "llama" else {})}
        async with running(launch_of(tmp_path, words=words, model=model)) as gateway:
            for thinks in (False, True):
                body = {
                    "messages": [MESSAGE],
                    "response_format": form,
                    "enable_thinking": thinks,
                }
                error = await refusal_of(gateway, "/v1/chat/completions", body)
                assert (error["param"], error["code"]) == ("response_format", "invalid_value")
                assert "bytes" in error["message"]
            assert gateway.submitted == []

    run_async(ask, 60)


def test_tools_whose_grammar_is_too_large_are_refused_by_name(tmp_path: Path) -> None:
    async def ask() -> None:
        words = ["options", "segments", "slots", "model", "grammar"]
        async with running(launch_of(tmp_path, words=words)) as gateway:
            function = {"parameters": SCHEMA, "strict": True}
            tools = [
                {"type": "function", "function": {**function, "name": f"f{n}"}}
                for n in range(4_000)
            ]
            body = {"messages": [MESSAGE], "tools": tools}
            error = await refusal_of(gateway, "/v1/chat/completions", body)
            assert (error["param"], error["code"]) == ("tools", "invalid_value")
            assert "bytes" in error["message"]

    run_async(ask, 60)
