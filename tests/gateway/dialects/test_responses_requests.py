"""What a body of the Responses API becomes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.base import ParsedRequest, Served
from colibri_cli.gateway.dialects.responses_dialect import item_page, parse_request, render_error
from colibri_cli.gateway.dialects.responses_input import pack_reasoning, unpack_reasoning
from colibri_cli.gateway.dialects.responses_shapes import ResponseRender
from colibri_cli.gateway.dialects.responses_store import (
    OwnedResponses,
    ResponseStore,
    StoredResponse,
)
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.turns import ResponseFormat, ToolMode
from colibri_protocol.messages import Word

EXTENDED = Served(
    ServeSettings("demo", aliases=("small",), max_tokens=256, kv_slots=2),
    words=frozenset({Word.OPTIONS, Word.SEGMENTS, Word.GRAMMAR, Word.LOGPROBS}),
    can_think=True,
)
BASELINE = Served(ServeSettings("demo", max_tokens=256), family="glm", can_think=True)
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [{"type": "function", "name": "spawn"}, {"type": "function", "name": "weather"}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Rome"}',
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "25 degrees"}
ROME = ToolCall("call_1", "weather", {"city": "Rome"})
HI = ChatMessage("user", "Hi")


def parsed(served: Served = EXTENDED, **fields: object) -> ParsedRequest[ResponseRender]:
    return parse_request({"model": "demo", "input": "Hi", **fields}, served, {})


def messages_of(*items: dict[str, Any], tools: object = None) -> tuple[ChatMessage, ...]:
    conversation = parsed(input=list(items), tools=tools).turn.conversation
    assert conversation is not None
    return conversation.messages


def message(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "content": [{"type": kind, "text": text} for text in texts]}


def test_a_request_with_defaults() -> None:
    request = parsed()
    turn = request.turn
    assert not request.is_stream
    assert turn.conversation is not None
    assert turn.conversation.messages == (HI,)
    assert (turn.conversation.thinking, turn.conversation.effort) == (False, None)
    options = turn.generation.options
    assert (options.max_tokens, options.temperature, options.top_p) == (256, 0.7, 0.9)
    assert options.logprobs is None
    assert request.render.id.startswith("resp_")
    assert request.render.responses is not None


def test_fields_reach_the_turn() -> None:
    request = parsed(
        instructions="be brief",
        max_output_tokens=100000,
        temperature=0,
        top_p=0.5,
        top_logprobs=2,
        stream=True,
        store=False,
        cache_slot=1,
        prompt_cache_key="thread",
        parallel_tool_calls=False,
        metadata={"a": "b"},
        include=["message.output_text.logprobs"],
        service_tier="auto",
        background=False,
        truncation="auto",
        client_metadata={"x": 1},
        something_new={"a": 1},
    )
    turn = request.turn
    options = turn.generation.options
    assert turn.conversation is not None
    assert turn.conversation.messages == (ChatMessage("system", "be brief"), HI)
    assert (options.max_tokens, options.temperature, options.top_p) == (256, 0.0, 0.5)
    assert options.logprobs == 2
    assert request.is_stream
    assert (turn.cache_slot, turn.session_key) == (1, "thread")
    assert not turn.parallel_tool_calls
    assert request.render.responses is None


# ---- input ----


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"role": "user", "content": "Hi"}], (HI,)),
        ([message("user", "H", "i")], (HI,)),
        (
            [message("system", "s"), message("developer", "d"), message("user", "Hi")],
            (ChatMessage("system", "s"), ChatMessage("system", "d"), HI),
        ),
        (
            [message("user", "Hi"), CALL, OUTPUT],
            (
                HI,
                ChatMessage("assistant", "", tool_calls=(ROME,)),
                ChatMessage("tool", "25 degrees", tool_call_id="call_1", name="weather"),
            ),
        ),
        (
            [
                {"type": "reasoning", "id": "r", "summary": [], "content": [{"text": "hm"}]},
                message("assistant", "see"),
                CALL,
                {**CALL, "call_id": "call_2"},
                OUTPUT,
                {**OUTPUT, "output": [{"type": "input_text", "text": "done"}]},
                message("assistant", "warm"),
                message("user", "Hi"),
            ],
            (
                ChatMessage(
                    "assistant",
                    "see",
                    reasoning="hm",
                    tool_calls=(ROME, ToolCall("call_2", "weather", {"city": "Rome"})),
                ),
                ChatMessage("tool", "25 degrees", tool_call_id="call_1", name="weather"),
                ChatMessage("tool", "done", tool_call_id="call_1", name="weather"),
                ChatMessage("assistant", "warm"),
                HI,
            ),
        ),
        (
            [
                message("assistant", "a"),
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                message("assistant", "b"),
                message("user", "Hi"),
            ],
            (ChatMessage("assistant", "a"), ChatMessage("assistant", "b", reasoning="hm"), HI),
        ),
        (
            [
                {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "x"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
            ],
            (
                ChatMessage(
                    "assistant", "", tool_calls=(ToolCall("c", "apply_patch", {"input": "x"}),)
                ),
                ChatMessage("tool", "ok", tool_call_id="c", name="apply_patch"),
            ),
        ),
    ],
)
def test_items_become_turns(items: list[dict[str, Any]], expected: tuple[ChatMessage, ...]) -> None:
    assert messages_of(*items) == expected


def test_reasoning_travels_as_a_parcel() -> None:
    parcel = pack_reasoning("hm, 世界")
    item = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": parcel}
    turns = messages_of(item, message("assistant", "a"), message("user", "Hi"))
    assert turns == (ChatMessage("assistant", "a", reasoning="hm, 世界"), HI)
    assert unpack_reasoning("gAAAAA") is None
    assert unpack_reasoning("colibri:%%%") is None


# ---- going on ----


def kept(store: ResponseStore, owner: str | None = None) -> StoredResponse:
    body = {
        "id": "resp_1",
        "output": [{"id": "msg_1", "type": "message", "role": "assistant", "content": "Hello."}],
    }
    stored = StoredResponse(body, (HI, ChatMessage("assistant", "Hello.")), num_bytes=10)
    store.put(owner, stored)
    return stored


def test_a_request_goes_on_from_a_kept_answer() -> None:
    store = ResponseStore()
    kept(store)
    body = {"previous_response_id": "resp_1", "input": "And?", "instructions": "new"}
    request = parse_request(body, EXTENDED, {}, OwnedResponses(store))
    assert request.turn.conversation is not None
    assert request.turn.conversation.messages == (
        ChatMessage("system", "new"),
        HI,
        ChatMessage("assistant", "Hello."),
        ChatMessage("user", "And?"),
    )
    assert request.render.messages[0] == HI  # instructions are not carried over
    assert request.render.echo["previous_response_id"] == "resp_1"


def test_outputs_of_an_earlier_answers_calls_get_their_names() -> None:
    store = ResponseStore()
    turns = (HI, ChatMessage("assistant", "", tool_calls=(ROME,)))
    store.put(None, StoredResponse({"id": "resp_1", "output": []}, turns))
    body = {"previous_response_id": "resp_1", "input": [OUTPUT]}
    conversation = parse_request(body, EXTENDED, {}, OwnedResponses(store)).turn.conversation
    assert conversation is not None
    assert conversation.messages[-1].name == "weather"


def test_items_can_be_referred_to() -> None:
    store = ResponseStore()
    kept(store)
    items = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "And?"}]
    request = parse_request({"input": items}, EXTENDED, {}, OwnedResponses(store))
    assert request.render.messages == (
        ChatMessage("assistant", "Hello."),
        ChatMessage("user", "And?"),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_1", "input": "And?"},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
    ],
)
def test_what_is_not_there(fields: dict[str, Any]) -> None:
    store = ResponseStore()
    kept(store, owner="somebody else")
    with pytest.raises(HttpError) as caught:
        parse_request(fields, EXTENDED, {}, OwnedResponses(store))
    assert caught.value.status == 404


def test_the_store_is_bounded() -> None:
    now = [0.0]
    store = ResponseStore(max_responses=2, max_bytes=100, lifetime_s=60, clock=lambda: now[0])

    def put(name: str, num_bytes: int) -> None:
        store.put(None, StoredResponse({"id": name, "output": []}, (), (), num_bytes))

    def names() -> list[str]:
        return [name for name in "abcd" if store.get(None, name) is not None]

    put("a", 10)
    put("b", 10)
    put("c", 10)
    assert names() == ["b", "c"]
    put("d", 95)
    assert names() == ["d"]
    put("a", 200)
    assert names() == []
    put("a", 10)
    now[0] = 30
    put("b", 10)
    now[0] = 61
    assert names() == ["b"]
    assert store.delete(None, "b")
    assert not store.delete(None, "b")
    assert len(store) == 0


def test_pages_of_items() -> None:
    items = [{"id": f"msg_{index}"} for index in range(5)]
    page = item_page(items, {"limit": "2"})
    assert [item["id"] for item in page["data"]] == ["msg_4", "msg_3"]
    assert (page["has_more"], page["last_id"]) == (True, "msg_3")
    page = item_page(items, {"order": "asc", "after": "msg_2"})
    assert [item["id"] for item in page["data"]] == ["msg_3", "msg_4"]
    assert not page["has_more"]
    for query in ({"limit": "0"}, {"limit": "x"}, {"order": "random"}):
        with pytest.raises(HttpError):
            item_page(items, query)


# ---- tools ----


def test_tools_reach_prompt_and_parser() -> None:
    request = parsed(tools=[TOOL, PATCH, AGENTS, {"type": "web_search"}])
    turn = request.turn
    assert [tool.name for tool in turn.tools] == [
        "weather",
        "apply_patch",
        "spawn",
        "agents.weather",
    ]
    assert turn.conversation is not None
    assert len(turn.conversation.tools) == 4
    assert request.render.echo["tools"] == [TOOL, PATCH, AGENTS]


def test_calls_of_a_namespace_are_found_again() -> None:
    call = {**CALL, "namespace": "agents"}
    (turn,) = messages_of(call, tools=[TOOL, AGENTS])
    assert turn.tool_calls[0].name == "agents.weather"


@pytest.mark.parametrize(
    ("choice", "mode", "offered"),
    [
        ("auto", ToolMode.AUTO, 2),
        ("required", ToolMode.REQUIRED, 2),
        ("none", ToolMode.NONE, 0),
        ({"type": "function", "name": "weather"}, ToolMode.NAMED, 1),
        ({"type": "custom", "name": "apply_patch"}, ToolMode.NAMED, 1),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
            ToolMode.REQUIRED,
            1,
        ),
    ],
)
def test_tool_choice(choice: object, mode: ToolMode, offered: int) -> None:
    request = parsed(tools=[TOOL, PATCH], tool_choice=choice)
    assert request.turn.tool_choice.mode is mode
    assert request.turn.conversation is not None
    assert len(request.turn.conversation.tools) == offered
    assert request.render.echo["tool_choice"] == choice
    assert request.render.has_tools is bool(offered)


def test_auto_needs_no_tools() -> None:
    assert parsed(tools=[], tool_choice="auto").turn.tools == ()


# ---- reasoning and form ----


@pytest.mark.parametrize(
    ("reasoning", "default", "thinking", "effort"),
    [
        (None, False, False, None),
        (None, True, True, None),
        ({"summary": "auto"}, False, False, None),
        ({"effort": "none"}, True, False, None),
        ({"effort": "low"}, False, True, "low"),
        ({"effort": None, "summary": None}, True, True, None),
    ],
)
def test_reasoning(
    reasoning: dict[str, Any] | None, default: bool, thinking: bool, effort: str | None
) -> None:
    served = Served(ServeSettings("demo", thinking=default), can_think=True)
    conversation = parsed(served, reasoning=reasoning).turn.conversation
    assert conversation is not None
    assert (conversation.thinking, conversation.effort) == (thinking, effort)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            ResponseFormat("json_schema", '{"type":"object"}'),
        ),
    ],
)
def test_the_form_of_the_answer(form: object, expected: ResponseFormat | None) -> None:
    assert parsed(text={"format": form, "verbosity": "low"}).turn.response_format == expected


def test_a_form_stands_beside_tools() -> None:
    turn = parsed(text=SCHEMA, tools=[TOOL]).turn
    assert turn.response_format == ResponseFormat("json_schema", "{}")
    assert [tool.name for tool in turn.tools] == ["weather"]


# ---- refusals ----

SCHEMA = {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["Hi"]}, "input.0"),
        ({"input": [{}]}, "input.0.type"),
        ({"input": [{"type": ["message"]}]}, "input.0.type"),
        ({"input": [{"type": "web_search_call", "id": "w"}]}, "input.0.type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input.0.content.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
         "input.0.content.0.text"),
        ({"input": [{**CALL, "arguments": "{"}]}, "input.0.arguments"),
        ({"input": [{**CALL, "arguments": "[]"}]}, "input.0.arguments"),
        ({"input": [{**CALL, "name": None}]}, "input.0.name"),
        ({"input": [{**OUTPUT, "output": None}]}, "input.0.output"),
        ({"input": [{**OUTPUT, "output": [IMAGE]}]}, "input.0.output.0"),
        ({"input": [{"type": "reasoning", "content": "x"}]}, "input.0.content"),
        ({"input": "a\0b"}, "input"),
        ({"instructions": 5}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools.0"),
        ({"tools": [{"name": "a"}]}, "tools.0.type"),
        ({"tools": [{"type": "file_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools.0.type"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{**TOOL, "parameters": []}]}, "tools.0.parameters"),
        ({"tools": [{**TOOL, "strict": "yes"}]}, "tools.0.strict"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [{**PATCH, "format": {"type": "grammar", "syntax": "lark"}}]},
         "tools.0.format"),
        ({"tools": [{**AGENTS, "tools": [AGENTS]}]}, "tools.0.tools.0.type"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "no"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "no"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
         "tool_choice.tools"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"include": ["everything"]}, "include.0"),
        ({"metadata": {"a": 5}}, "metadata"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"cache_slot": 2}, "cache_slot"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "middle"}, "truncation"),
        ({"stop": ["x"]}, "stop"),
        ({"seed": 7}, "seed"),
        ({"messages": []}, "messages"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as caught:
        parsed(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{**TOOL, "strict": True}]}, "tools.0.strict"),
        ({"text": SCHEMA}, "text.format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
    ],
)
def test_what_an_engine_of_the_baseline_cannot_do(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as caught:
        parsed(BASELINE, **fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


def test_other_names_of_the_model() -> None:
    parsed(model="small")
    with pytest.raises(HttpError) as caught:
        parsed(model="large")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("param", "expected"), [("messages", "input"), ("response_format", "text.format")]
)
def test_errors_name_the_fields_of_this_api(param: str, expected: str) -> None:
    error = HttpError(400, f"{param} is wrong", code="c", param=param)
    body = json.loads(render_error(error, "req_1").body)["error"]
    assert (body["param"], body["code"], body["type"]) == (expected, "c", "invalid_request_error")


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("messages", "input"),
        ("max_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("logprobs", "message.output_text.logprobs"),
        ("seed", "leave it out"),
    ],
)
def test_a_field_of_another_api_is_named_as_it_was_sent(name: str, replacement: str) -> None:
    fields: dict[str, Any] = {name: [{"role": "user", "content": "Hi"}]}
    with pytest.raises(HttpError) as caught:
        parsed(**fields)
    error = json.loads(render_error(caught.value, "req_1").body)["error"]
    assert (error["param"], error["code"]) == (name, "unknown_parameter")
    assert name in error["message"]
    assert replacement in error["message"]


def test_a_form_without_its_schema_is_told_where_that_belongs() -> None:
    with pytest.raises(HttpError) as caught:
        parsed(text={"format": {"type": "json_schema", "name": "n"}})
    assert "text.format" in caught.value.message
    assert "json_schema.schema" not in caught.value.message
