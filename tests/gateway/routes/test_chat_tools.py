"""Tool calls through chat completions: offered, called, typed, and never made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import (
    GLM_MODEL,
    Gateway,
    finish_of,
    joined,
    launch_of,
    running,
)
from tests.gateway.routes.test_early_ends import PATHS, body_of


def tool(name: str, required: tuple[str, ...] = (), **types: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool("weather", city="string")
LIST = tool("list_orders")
WRITE = tool("write", ("path", "content"), path="string", content="string")
TYPED = tool("typed", id="string", n="integer", on="boolean", tags="array")
TOOLS = [WEATHER, LIST, WRITE, TYPED]


def call(name: str, **arguments: str) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{pairs}</tool_call>"


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    functions = [one["function"] for one in message.get("tool_calls", [])]
    return [(one["name"], json.loads(one["arguments"])) for one in functions]


def streamed_calls(chunks: list[Any]) -> list[tuple[str, Any]]:
    """Return the calls of a stream; each piece that begins one has all that names it."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    ids = set()
    for chunk in chunks[:-1]:
        for piece in chunk["choices"][0]["delta"].get("tool_calls", []):
            index = piece["index"]
            if index not in names:
                assert piece["type"] == "function"
                assert piece["id"].startswith("call_")
                assert len(piece["id"]) == len("call_") + 24
                ids.add(piece["id"])
                names[index] = piece["function"]["name"]
                arguments[index] = ""
            else:
                assert set(piece) == {"index", "function"}
                assert set(piece["function"]) == {"arguments"}
            arguments[index] += piece["function"]["arguments"]
    assert len(ids) == len(names)
    assert list(names) == list(range(len(names)))
    return [(names[index], json.loads(arguments[index])) for index in names]


async def both_modes(
    gateway: Gateway, reply: str, **fields: object
) -> tuple[str | None, list[tuple[str, Any]], str]:
    """Return content, calls and reason, which must be the same in both modes."""
    fields = {"tools": TOOLS, "max_tokens": 16, **fields}
    choice = await gateway.answer(f"[[reply {reply}]]", **fields)
    message = choice["message"]
    chunks = await gateway.stream(f"[[reply {reply}]]", **fields)
    assert (joined(chunks).strip() or None) == message["content"]
    assert streamed_calls(chunks) == calls_of(message)
    assert finish_of(chunks) == [choice["finish_reason"]]
    return message["content"], calls_of(message), choice["finish_reason"]


# reply of the model → content, calls, reason
CASES = {
    "a call": (call("weather", city="Rome"), None, [("weather", {"city": "Rome"})], "tool_calls"),
    "text before it": (
        "Checking. " + call("weather", city="Rome"),
        "Checking.",
        [("weather", {"city": "Rome"})],
        "tool_calls",
    ),
    "two calls": (
        call("weather", city="Rome") + call("weather", city="Oslo"),
        None,
        [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})],
        "tool_calls",
    ),
    "no arguments": (call("list_orders"), None, [("list_orders", {})], "tool_calls"),
    "never closed": (
        call("weather", city="Rome").removesuffix("</tool_call>"),
        None,
        [("weather", {"city": "Rome"})],
        "tool_calls",
    ),
    "half closed": (
        call("weather", city="Rome").removesuffix("l>"),
        None,
        [("weather", {"city": "Rome"})],
        "tool_calls",
    ),
    "only a name, declared": (
        "<tool_call>list_orders",
        None,
        [("list_orders", {})],
        "tool_calls",
    ),
    "types": (
        call("typed", id="007", n="10", on="true", tags='["a"]'),
        None,
        [("typed", {"id": "007", "n": 10, "on": True, "tags": ["a"]})],
        "tool_calls",
    ),
    "a text that looks like a number": (
        call("weather", city="12345"),
        None,
        [("weather", {"city": "12345"})],
        "tool_calls",
    ),
    "talking about the mark": (
        "Write <tool_call> and then the name.",
        "Write <tool_call> and then the name.",
        [],
        "stop",
    ),
    "a name nobody declared": (
        "<tool_call>drop_all_tables",
        "<tool_call>drop_all_tables",
        [],
        "stop",
    ),
    "text before one that is not closed": (
        "Let me check.\n" + call("weather", city="Rome").removesuffix("</tool_call>"),
        "Let me check.",
        [("weather", {"city": "Rome"})],
        "tool_calls",
    ),
    "one closed, one not": (
        call("weather", city="Rome") + call("weather", city="Oslo").removesuffix("</tool_call>"),
        None,
        [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})],
        "tool_calls",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_calls(tmp_path: Path, case: str) -> None:
    reply, content, calls, reason = CASES[case]

    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            assert await both_modes(gateway, reply) == (content, calls, reason)

    run_async(body)


HALF = "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value>"


@pytest.mark.parametrize("rest", ["", "<arg_key>content</arg_key><arg_value>half of"])
def test_a_call_that_is_not_complete_is_text(tmp_path: Path, rest: str) -> None:
    reply = HALF + rest

    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            choice = await gateway.answer(f"[[reply {reply}]]", tools=TOOLS)
            assert calls_of(choice["message"]) == []
            assert choice["message"]["content"] == reply
            assert choice["finish_reason"] == "stop"
            chunks = await gateway.stream(f"[[reply {reply}]]", tools=TOOLS)
            assert finish_of(chunks) == ["stop"]
            assert joined(chunks) == reply

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
def test_on_every_api_such_a_call_reaches_the_client(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            function = WEATHER["function"]
            tools = {
                PATHS[0]: WEATHER,
                PATHS[1]: {"name": "weather", "input_schema": function["parameters"]},
                PATHS[2]: {"type": "function", **function},
            }
            said = "Look: <tool_call>weather<arg_key>city</arg_key><arg_value>Ro"
            asked = body_of(path, f"[[reply {said}]]", stream=stream)
            response = await gateway.client.post(path, json={**asked, "tools": [tools[path]]})
            assert response.status_code == 200
            assert "<arg_value>Ro" in response.text
            for claim in ('"finish_reason":"tool_calls"', '"stop_reason":"tool_use"'):
                assert claim not in response.text
            if not stream:
                assert '"tool_use"' not in response.text
                assert '"function_call"' not in response.text

    run_async(body)


def test_reasoning_before_a_call(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            text = f"[[reply deciding</think>{call('weather', city='Rome')}]]"
            chunks = await gateway.stream(text, tools=TOOLS, enable_thinking=True)
            assert joined(chunks, "reasoning_content") == "deciding"
            assert joined(chunks) == ""
            assert streamed_calls(chunks) == [("weather", {"city": "Rome"})]

    run_async(body)


def test_the_prompt_of_a_round_trip(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            made = {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
            }
            messages = [
                {"role": "user", "content": "W?"},
                {"role": "assistant", "content": None, "tool_calls": [made]},
                {"role": "tool", "tool_call_id": "call_1", "content": "25 degrees, sunny"},
            ]
            response = await gateway.client.post(
                "/v1/chat/completions", json={"messages": messages, "tools": [WEATHER]}
            )
            choice = response.json()["choices"][0]
            assert choice["finish_reason"] == "stop"
            assert "tool_calls" not in choice["message"]
            prompt = gateway.prompt
            assert "# Tools" in prompt
            assert "<|observation|><tool_response>25 degrees, sunny</tool_response>" in prompt
            assert "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome" in prompt

    run_async(body)


def test_the_choice_shapes_the_prompt_and_is_obeyed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            reply = call("weather", city="Rome")
            content, calls, _ = await both_modes(gateway, reply, tool_choice="none")
            assert calls == []
            assert content == reply
            assert "<tools>" not in gateway.prompt
            await both_modes(gateway, reply, tool_choice="auto")
            assert "<tools>" in gateway.prompt
            assert "You must call" not in gateway.prompt
            await both_modes(gateway, reply, tool_choice="required")
            assert "You must call one of the functions above." in gateway.prompt
            await both_modes(gateway, reply, tool_choice={"function": {"name": "weather"}})
            assert "You must call the function `weather`." in gateway.prompt
            assert "list_orders" not in gateway.prompt

    run_async(body)


def test_a_model_without_tool_syntax_and_without_grammars_refuses_tools(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.chat("Hi", tools=TOOLS)
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, "tools")
            assert error["code"] == "unsupported_parameter"
            assert not gateway.submitted
            assert (await gateway.chat("Hi", tools=TOOLS, tool_choice="none")).status_code == 200

    run_async(body)


def test_counting_counts_the_prompt_with_its_tools(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            for choice in ("none", "auto", "required"):
                fields: dict[str, Any] = {
                    "messages": [{"role": "user", "content": "Hi"}],
                    "tools": TOOLS,
                    "tool_choice": choice,
                }
                counted = (await gateway.client.post("/tokenize", json=fields)).json()["count"]
                answer = await gateway.client.post("/v1/chat/completions", json=fields)
                assert counted == answer.json()["usage"]["prompt_tokens"]

    run_async(body)
