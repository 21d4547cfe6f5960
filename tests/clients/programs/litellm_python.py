"""What LiteLLM does with a server: `litellm_python.py URL`."""

# mypy: ignore-errors
# ruff: noqa: ANN401, PT017

from __future__ import annotations

import json
import sys
from typing import Any

import checks
import litellm

URL = sys.argv[1]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
litellm.telemetry = False


def ask(**fields: Any) -> Any:
    """Ask through the OpenAI API."""
    common = {"model": "openai/demo", "api_base": f"{URL}/v1", "api_key": "any"}
    return litellm.completion(**{**common, "messages": QUESTION, "max_tokens": 24, **fields})


def ask_messages(**fields: Any) -> Any:
    """Ask through the Messages API."""
    return ask(model="anthropic/demo", api_base=URL, **fields)


def openai_chat() -> None:
    assert "Paris" in ask().choices[0].message.content


def openai_stream() -> None:
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(stream=True)]
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3


def openai_tools() -> None:
    answer = ask(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    call = answer.choices[0].message.tool_calls[0]
    assert set(json.loads(call.function.arguments)) == {"city"}


def openai_errors() -> None:
    try:
        ask(messages=[{"role": "user", "content": "word " * 9000}])
    except litellm.ContextWindowExceededError as error:
        assert "maximum context length is 409" in str(error)
        return
    raise AssertionError("no ContextWindowExceededError")


def anthropic_chat() -> None:
    assert "Paris" in ask_messages().choices[0].message.content


def anthropic_stream() -> None:
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask_messages(stream=True)]
    assert "Paris" in "".join(pieces)


def anthropic_tools() -> None:
    answer = ask_messages(tools=[WEATHER], tool_choice="required", max_tokens=200)
    call = answer.choices[0].message.tool_calls[0]
    assert set(json.loads(call.function.arguments)) == {"city"}


def anthropic_errors() -> None:
    try:
        ask_messages(messages=[{"role": "user", "content": "word " * 9000}])
    except litellm.ContextWindowExceededError as error:
        assert "> 409" in str(error)
        return
    raise AssertionError("no ContextWindowExceededError")


checks.run(
    (
        openai_chat,
        openai_stream,
        openai_tools,
        openai_errors,
        anthropic_chat,
        anthropic_stream,
        anthropic_tools,
        anthropic_errors,
    )
)
