"""What a body of the Messages API becomes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.anthropic_messages import (
    fold_instructions,
    parse_count,
    parse_request,
)
from colibri_cli.gateway.dialects.base import Served
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.turns import ResponseFormat, ToolMode
from colibri_protocol.messages import Word

EXTENDED = Served(
    ServeSettings("demo", aliases=("small",), max_tokens=256, kv_slots=2),
    words=frozenset({Word.OPTIONS, Word.SEGMENTS, Word.GRAMMAR}),
    can_think=True,
)
BASELINE = Served(ServeSettings("demo", max_tokens=256), family="glm", can_think=True)
TOOL = {
    "name": "weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.fa0; cc_entrypoint=cli; cch={};"


def body_of(*messages: dict[str, Any], **fields: object) -> dict[str, Any]:
    shown = list(messages) or [{"role": "user", "content": "Hi"}]
    return {"model": "demo", "max_tokens": 64, "messages": shown, **fields}


def messages_of(*messages: dict[str, Any], **fields: object) -> tuple[ChatMessage, ...]:
    turn = parse_request(body_of(*messages, **fields), EXTENDED, {}).turn
    assert turn.conversation is not None
    return turn.conversation.messages


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "25 degrees"}
CALL = ToolCall("toolu_1", "weather", {"city": "Rome"})
HI = ChatMessage("user", "Hi")


def test_a_request_with_defaults() -> None:
    parsed = parse_request(body_of(), EXTENDED, {})
    turn = parsed.turn
    assert not parsed.is_stream
    assert turn.conversation is not None
    assert turn.conversation.messages == (HI,)
    assert (turn.conversation.thinking, turn.conversation.effort) == (False, None)
    options = turn.generation.options
    assert (options.max_tokens, options.temperature, options.top_p) == (64, 0.7, 0.9)
    assert options.top_k is None
    assert turn.generation.stop == ()
    assert parsed.render.id.startswith("msg_")
    assert len(parsed.render.id) == len("msg_") + 24


def test_fields_reach_the_turn() -> None:
    fields = {
        "max_tokens": 100000,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "stop_sequences": ["END"],
        "stream": True,
        "cache_slot": 1,
        "metadata": {"user_id": "somebody"},
        "service_tier": "auto",
        "inference_geo": None,
        "something_new": {"a": 1},
    }
    parsed = parse_request(body_of(**fields), EXTENDED, {})
    options = parsed.turn.generation.options
    assert (options.max_tokens, options.temperature, options.top_p, options.top_k) == (
        256, 0.0, 0.5, 40,
    )  # fmt: skip
    assert parsed.turn.generation.stop == ("END",)
    assert parsed.is_stream
    assert parsed.turn.cache_slot == 1
    assert parsed.turn.session_key == "somebody"


# ---- content ----


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user(text("a"), text("b"))], (ChatMessage("user", "ab"),)),
        ([user()], (ChatMessage("user", ""),)),
        (
            [{"role": "user", "content": "q"}, assistant(USE), user(RESULT)],
            (
                ChatMessage("user", "q"),
                ChatMessage("assistant", "", tool_calls=(CALL,)),
                ChatMessage("tool", "25 degrees", tool_call_id="toolu_1", name="weather"),
            ),
        ),
        (
            [assistant(text("see"), USE), user(text("and?"), RESULT, text("!"))],
            (
                ChatMessage("assistant", "see", tool_calls=(CALL,)),
                ChatMessage("tool", "25 degrees", tool_call_id="toolu_1", name="weather"),
                ChatMessage("user", "and?!"),
            ),
        ),
        ([assistant(), user(text("Hi"))], (HI,)),
        (
            [
                assistant({"type": "thinking", "thinking": "hm", "signature": "x"}, text("a")),
                user(text("Hi")),
            ],
            (ChatMessage("assistant", "a", reasoning="hm"), HI),
        ),
        (
            [
                assistant({"type": "redacted_thinking", "data": "…"}, text("a")),
                user(text("Hi")),
            ],
            (ChatMessage("assistant", "a"), HI),
        ),
    ],
)
def test_blocks_become_turns(
    messages: list[dict[str, Any]], expected: tuple[ChatMessage, ...]
) -> None:
    assert messages_of(*messages) == expected


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        (None, False, ""),
        ([text("a"), text("b")], False, "ab"),
        ("no such file", True, "Error: no such file"),
        ("Error: no such file", True, "Error: no such file"),
        ("<tool_use_error>no</tool_use_error>", True, "<tool_use_error>no</tool_use_error>"),
    ],
)
def test_results_of_tools(content: object, is_error: bool, expected: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error}
    assert messages_of(user(block)) == (ChatMessage("tool", expected, tool_call_id="t"),)


def test_a_call_without_id_and_arguments() -> None:
    (message,) = messages_of(assistant({"type": "tool_use", "name": "now", "input": None}))
    (call,) = message.tool_calls
    assert (call.name, call.arguments) == ("now", {})
    assert call.id.startswith("toolu_")


def test_the_system_prompt_comes_first() -> None:
    assert messages_of(system="be brief") == (ChatMessage("system", "be brief"), HI)
    assert messages_of(system=[text("be "), text("brief")])[0].content == "be brief"
    assert messages_of(system="") == (HI,)
    assert messages_of(system=[]) == (HI,)


def test_instructions_within_the_conversation_stay_in_place() -> None:
    instruction = {"role": "system", "content": [text("now in French")]}
    assert messages_of({"role": "user", "content": "a"}, instruction, user(text("Hi"))) == (
        ChatMessage("user", "a"),
        ChatMessage("system", "now in French"),
        HI,
    )


def test_instructions_become_part_of_user_turns_where_a_template_has_no_place_for_them() -> None:
    instruction = {"role": "system", "content": "in French"}
    reminder = "<system-reminder>\nin French\n</system-reminder>"
    body = body_of(user(text("a")), instruction, assistant(text("b")), instruction, system="s")
    conversation = parse_request(body, EXTENDED, {}).turn.conversation
    assert conversation is not None
    folded = fold_instructions(conversation)
    assert folded is not None
    assert folded.messages == (
        ChatMessage("system", "s"),
        ChatMessage("user", f"a\n\n{reminder}"),
        ChatMessage("assistant", "b"),
        ChatMessage("user", reminder),
    )
    assert fold_instructions(folded) is None


@pytest.mark.parametrize("as_text", [True, False])
def test_the_billing_line_reaches_neither_model_nor_key(as_text: bool) -> None:
    turns = []
    for checksum in ("aaaa", "bbbb"):
        line = BILLING.format(checksum)
        blocks = [text(line), text("You are helpful.")]
        system: Any = f"{line}\nYou are helpful." if as_text else blocks
        turns.append(parse_request(body_of(system=system), EXTENDED, {}).turn)
    assert turns[0].conversation == turns[1].conversation
    assert turns[0].conversation is not None
    assert turns[0].conversation.messages[0] == ChatMessage("system", "You are helpful.")


def test_the_words_of_the_billing_line_are_kept_elsewhere() -> None:
    assert messages_of(user(text(BILLING.format("a"))))[0].content == BILLING.format("a")


def test_a_last_assistant_message_is_continued() -> None:
    turn = parse_request(body_of(user(text("Hi")), assistant(text("The"))), EXTENDED, {}).turn
    assert turn.conversation is not None
    assert turn.conversation.continues_last
    assert turn.conversation.thinking is False


# ---- tools ----


def test_tools_reach_prompt_and_parser() -> None:
    turn = parse_request(
        body_of(tools=[TOOL, {"name": "now", "type": "custom", "strict": True}]), EXTENDED, {}
    ).turn
    assert [tool.name for tool in turn.tools] == ["weather", "now"]
    assert [tool.is_strict for tool in turn.tools] == [False, True]
    assert turn.tools[1].parameters == {"type": "object", "properties": {}}
    assert turn.conversation is not None
    assert turn.conversation.tools[0] == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city.",
            "parameters": TOOL["input_schema"],
        },
    }


@pytest.mark.parametrize(
    ("choice", "mode", "offered"),
    [
        ({"type": "auto"}, ToolMode.AUTO, 2),
        ({"type": "any"}, ToolMode.REQUIRED, 2),
        ({"type": "none"}, ToolMode.NONE, 0),
        ({"type": "tool", "name": "now"}, ToolMode.NAMED, 1),
    ],
)
def test_tool_choice(choice: dict[str, Any], mode: ToolMode, offered: int) -> None:
    fields = {"tools": [TOOL, {"name": "now"}], "tool_choice": choice}
    turn = parse_request(body_of(**fields), EXTENDED, {}).turn
    assert turn.tool_choice.mode is mode
    assert turn.parallel_tool_calls
    assert turn.conversation is not None
    assert len(turn.conversation.tools) == offered


def test_one_call_at_a_time() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    turn = parse_request(body_of(tools=[TOOL], tool_choice=choice), EXTENDED, {}).turn
    assert not turn.parallel_tool_calls


# ---- reasoning and form ----


@pytest.mark.parametrize(
    ("fields", "thinking", "effort", "budget"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, True, "high", 2048),
        ({"thinking": {"type": "enabled"}}, True, "high", None),
        ({"thinking": {"type": "adaptive"}}, True, "high", None),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            True, "low", None,
        ),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, False, None, None),
        ({}, False, None, None),
    ],
)  # fmt: skip
def test_thinking(
    fields: dict[str, Any], thinking: bool, effort: str | None, budget: int | None
) -> None:
    turn = parse_request(body_of(**fields), EXTENDED, {}).turn
    assert turn.conversation is not None
    assert (turn.conversation.thinking, turn.conversation.effort) == (thinking, effort)
    assert turn.thinking_budget == budget


def test_thinking_as_the_server_was_started() -> None:
    served = Served(ServeSettings("demo", thinking=True), can_think=True)
    parsed = parse_request(body_of(), served, {})
    assert parsed.turn.conversation is not None
    assert parsed.turn.conversation.thinking
    off = parse_request(body_of(thinking={"type": "disabled"}), served, {})
    assert off.turn.conversation is not None
    assert not off.turn.conversation.thinking


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_a_schema_for_the_answer(name: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    fields = {name: {"format": form} if name == "output_config" else form}
    for tools in ([], [TOOL]):
        turn = parse_request(body_of(**fields, tools=tools), EXTENDED, {}).turn
        assert turn.response_format == ResponseFormat("json_schema", '{"type": "object"}')
        assert len(turn.tools) == len(tools)


# ---- counting ----


def test_counting_needs_no_limit() -> None:
    body = body_of(system="s", tools=[TOOL])
    del body["max_tokens"]
    conversation = parse_count(body, BASELINE)
    assert [message.role for message in conversation.messages] == ["system", "user"]
    assert len(conversation.tools) == 1


# ---- refusals ----

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "assistant", "content": []}]}, "messages"),
        ({"messages": [user({"type": "text"})]}, "messages.0.content.0.text"),
        ({"messages": [user(text("a"), IMAGE)]}, "messages.0.content.1.type"),
        ({"messages": [user({"type": "document"})]}, "messages.0.content.0.type"),
        ({"messages": [user({"type": ["text"]})]}, "messages.0.content.0.type"),
        ({"messages": [user(USE)]}, "messages.0.content.0"),
        ({"messages": [assistant(RESULT)]}, "messages.0.content.0"),
        (
            {"messages": [user({**RESULT, "content": [IMAGE]})]},
            "messages.0.content.0.content.0.type",
        ),
        ({"messages": [user({**RESULT, "content": 5})]}, "messages.0.content.0.content"),
        (
            {"messages": [assistant({"type": "thinking", "thinking": "x"})]},
            "messages.0.content.0.signature",
        ),
        ({"messages": [assistant({**USE, "name": ""})]}, "messages.0.content.0.name"),
        ({"messages": [assistant({**USE, "input": "x"})]}, "messages.0.content.0.input"),
        ({"messages": [user(text("a\0b"))]}, "messages"),
        ({"system": 5}, "system"),
        ({"system": [IMAGE]}, "system.0"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools.0"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "tools.2.name"),
        ({"tools": [{"name": "a", "input_schema": 5}]}, "tools.0.input_schema"),
        ({"tools": [{"type": ["custom"], "name": "a"}]}, "tools.0.type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tool_choice": {"type": "auto"}}, "tool_choice"),
        ({"tool_choice": "auto", "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool", "name": "no"}, "tools": [TOOL]}, "tool_choice"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "yaml"}}}, "output_config.format"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"cache_slot": 2}, "cache_slot"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop_sequences"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"container": "x"}, "container"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_request({**body_of(), **fields}, EXTENDED, {})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_sequences": ["STOP"]}, "stop_sequences"),
        ({"top_k": 40}, "top_k"),
        ({"top_k": 0}, "top_k"),
        ({"tools": [{"name": "a", "strict": True}]}, "tools.0.strict"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            "output_config.format",
        ),
    ],
)
def test_what_an_engine_of_the_baseline_cannot_do(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_request({**body_of(), **fields}, BASELINE, {})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message


def test_nothing_asked_for_is_nothing_refused() -> None:
    parse_request(body_of(stop_sequences=[], top_k=None, tools=[], mcp_servers=[]), BASELINE, {})


def test_other_names_of_the_model() -> None:
    parse_request({**body_of(), "model": "small"}, EXTENDED, {})
    with pytest.raises(HttpError) as caught:
        parse_request({**body_of(), "model": "large"}, EXTENDED, {})
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_an_enabled_budget_and_a_begun_answer_exclude_each_other() -> None:
    with pytest.raises(HttpError) as caught:
        parse_request(
            body_of(user(text("Hi")), assistant(text("The")), thinking={"type": "enabled"}),
            EXTENDED,
            {},
        )
    assert caught.value.param == "thinking"
