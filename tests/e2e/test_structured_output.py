"""Structured output of the demo: valid or a call, over each API, judged by `jsonschema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.e2e.test_serve import serving
from tests.fakes.command_line import CommandLine

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome", "Oslo"]},
        "founded": {"type": "string", "format": "date"},
        "colors": {"type": "array", "items": {"enum": ["red", "green"]}, "uniqueItems": True},
        "size": {"type": "integer", "minimum": 1, "not": {"maximum": 9}, "maximum": 99},
    },
    "required": ["city", "founded", "colors", "size"],
    "additionalProperties": False,
}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
}
QUESTION = [{"role": "user", "content": "Tell me about a city."}]
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def client(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    command = CommandLine(tmp_path_factory.mktemp("serve"), {"COLI_MODEL": str(demo_gguf)})
    with serving(command, "--model-id", "demo") as server, server.client() as found:
        server.wait_for("ready")
        yield found


def answer_of(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(path, json={"model": "demo", **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def check(text: str | None, calls: list[Any], *, has_tools: bool) -> None:
    """Check that an answer is one call or a valid document."""
    if calls:
        assert has_tools
        assert not text
        assert len(calls) == 1
        jsonschema.validate(calls[0], PARAMETERS)
    else:
        judge = jsonschema.Draft202012Validator(
            SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        judge.validate(json.loads(text or ""))


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_chat_completions(client: httpx.Client, has_tools: bool, seed: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA, "strict": True}}
    tools = [{"type": "function", "function": WEATHER}] if has_tools else []
    body = {"messages": QUESTION, "response_format": form, "tools": tools, "seed": seed}
    answer = answer_of(client, "/v1/chat/completions", {**body, "parallel_tool_calls": False})
    message = answer["choices"][0]["message"]
    calls = [json.loads(c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    check(message["content"], calls, has_tools=has_tools)


@pytest.mark.parametrize("has_tools", [False, True])
def test_responses(client: httpx.Client, has_tools: bool) -> None:
    form = {"type": "json_schema", "name": "c", "schema": SCHEMA, "strict": True}
    tools = [{"type": "function", **WEATHER}] if has_tools else []
    body = {"input": QUESTION, "text": {"format": form}, "tools": tools}
    answer = answer_of(client, "/v1/responses", {**body, "parallel_tool_calls": False})
    texts = [
        part["text"]
        for item in answer["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    calls = [
        json.loads(item["arguments"])
        for item in answer["output"]
        if item["type"] == "function_call"
    ]
    check("".join(texts), calls, has_tools=has_tools)


@pytest.mark.parametrize("field", ["output_config", "output_format"])
@pytest.mark.parametrize("has_tools", [False, True])
def test_messages(client: httpx.Client, field: str, has_tools: bool) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    body: dict[str, Any] = {"messages": QUESTION, "max_tokens": 1000}
    body[field] = {"format": form} if field == "output_config" else form
    if has_tools:
        body["tools"] = [{"name": "get_weather", "input_schema": PARAMETERS}]
        body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    answer = answer_of(client, "/v1/messages", body)
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    calls = [block["input"] for block in answer["content"] if block["type"] == "tool_use"]
    check("".join(texts), calls, has_tools=has_tools)


def test_a_call_that_must_be_made_is_made_whatever_the_form(client: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA}}
    body = {
        "messages": QUESTION,
        "response_format": form,
        "tools": [{"type": "function", "function": WEATHER}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    answer = answer_of(client, "/v1/chat/completions", body)
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_what_cannot_be_enforced_is_refused_by_name_beside_tools_too(client: httpx.Client) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    for tools in ([], [{"type": "function", "function": WEATHER}]):
        body = {
            "messages": QUESTION,
            "tools": tools,
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "c", "schema": schema}
            },
        }  # fmt: skip
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "response_format"
        assert "uniqueItems" in response.json()["error"]["message"]
