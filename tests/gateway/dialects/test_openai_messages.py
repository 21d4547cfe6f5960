"""Chat messages: which are taken, as what, and how the others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation, ToolCall
from tests.gateway.dialects.openai_rig import chat, refused

WEATHER_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Rome","days":3}'},
}


def conversation(*messages: object) -> Conversation:
    found = chat(messages=list(messages)).turn.conversation
    assert found is not None
    return found


def refusal_of(message: object) -> tuple[str | None, str | None]:
    error = refused(messages=[{"role": "user", "content": "Hi"}, message])
    return error.param, error.code


def test_a_conversation_with_every_role() -> None:
    found = conversation(
        {"role": "system", "content": "System"},
        {"role": "developer", "content": "Developer"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "W"}, {"type": "input_text", "text": "?"}],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [WEATHER_CALL],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "25 degrees"},
        {"role": "user", "name": "me", "content": " as it is "},
    )
    call = ToolCall("call_1", "weather", {"city": "Rome", "days": 3})
    assert found.messages == (
        ChatMessage("system", "System"),
        ChatMessage("system", "Developer"),
        ChatMessage("user", "W?"),
        ChatMessage("assistant", "", reasoning="r", tool_calls=(call,)),
        ChatMessage("tool", "25 degrees", tool_call_id="call_1"),
        ChatMessage("user", " as it is ", name="me"),
    )
    assert not found.continues_last


@pytest.mark.parametrize("value", [None, [], {}, "Hi", 7])
def test_messages_must_be_an_array_with_something_in_it(value: object) -> None:
    error = refused(messages=value)
    assert (error.param, error.code) == ("messages", None)


@pytest.mark.parametrize(
    ("message", "where", "code"),
    [
        ("Hi", "", None),
        ({"content": "Hi"}, ".role", "unsupported_role"),
        ({"role": "function", "content": "Hi"}, ".role", "unsupported_role"),
        ({"role": ["user"], "content": "Hi"}, ".role", "unsupported_role"),
        ({"role": "user"}, ".content", None),
        ({"role": "user", "content": None}, ".content", None),
        ({"role": "tool", "content": None}, ".content", None),
        ({"role": "user", "content": 7}, ".content", None),
        ({"role": "user", "content": {"type": "text"}}, ".content", None),
        ({"role": "user", "content": [{"type": "text", "text": 7}]}, ".content.0.text", None),
        ({"role": "user", "content": [{"type": "text"}]}, ".content.0.text", None),
        ({"role": "assistant", "reasoning_content": 7}, ".reasoning_content", None),
        ({"role": "tool", "content": "", "reasoning_content": "r"}, ".reasoning_content", None),
        ({"role": "user", "content": "", "tool_calls": [WEATHER_CALL]}, ".tool_calls", None),
        ({"role": "assistant", "tool_calls": {}}, ".tool_calls", None),
        ({"role": "assistant", "tool_calls": [7]}, ".tool_calls.0", None),
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, ".tool_calls.0", None),
        ({"role": "assistant", "tool_calls": [{}]}, ".tool_calls.0.function", None),
        (
            {"role": "assistant", "function_call": {"name": "x"}},
            ".function_call",
            "unsupported_parameter",
        ),
        ({"role": "user", "content": "a\0b"}, "messages", None),
        ({"role": "assistant", "reasoning_content": "\0"}, "messages", None),
        ({"role": "user", "content": "", "name": "\0"}, "messages", None),
    ],
)
def test_messages_that_are_refused(message: object, where: str, code: str | None) -> None:
    param = where if where == "messages" else f"messages.1{where}"
    assert refusal_of(message) == (param, code)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {}},
        {"type": "refusal", "refusal": "no"},
        {"text": "no type"},
        {"type": ["text"], "text": "x"},
        "text",
        None,
    ],
)
def test_anything_but_text_is_refused_where_it_stands(part: object) -> None:
    error = refused(messages=[{"role": "user", "content": [part]}])
    assert (error.param, error.code) == ("messages.0.content.0", "unsupported_content_type")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a":1}', {"a": 1}),
        ('{"a":2,"a":1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{}", {}),
    ],
)
def test_arguments_of_earlier_calls(arguments: object, expected: dict[str, Any]) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    found = conversation(
        {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}
    )
    assert found.messages[0].tool_calls[0].arguments == expected


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ({"arguments": "{}"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "f", "arguments": "{"}, "arguments"),
        ({"name": "f", "arguments": "[1]"}, "arguments"),
        ({"name": "f", "arguments": 7}, "arguments"),
        ({"name": "f", "arguments": '{"a":"\\ud800"}'}, "arguments"),
        ({"name": "f", "arguments": '{"a":NaN}'}, "arguments"),
        ({"name": "f", "arguments": '{"a":' + "[" * 200 + "]" * 200 + "}"}, "arguments"),
    ],
)
def test_calls_that_are_none(function: dict[str, Any], where: str) -> None:
    param, code = refusal_of(
        {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    )
    assert (param, code) == (f"messages.1.tool_calls.0.function.{where}", None)


def test_nul_in_arguments_is_found_through_escapes() -> None:
    function = {"name": "f", "arguments": '{"a":["\\u0000"]}'}
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    assert refusal_of(message) == ("messages", None)


@pytest.mark.parametrize(
    ("last", "continues"),
    [
        ({"role": "assistant", "content": "The capital is"}, True),
        ({"role": "assistant", "content": " "}, False),
        ({"role": "assistant", "content": "x", "tool_calls": [WEATHER_CALL]}, False),
        ({"role": "user", "content": "x"}, False),
    ],
)
def test_a_last_assistant_message_is_the_beginning_of_the_answer(
    last: dict[str, Any], continues: bool
) -> None:
    assert conversation({"role": "user", "content": "Hi"}, last).continues_last is continues
