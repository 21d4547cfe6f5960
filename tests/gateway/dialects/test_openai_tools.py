"""Tools, the choice among them, and forms of the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colibri_cli.gateway.dialects.base import Served
from colibri_cli.gateway.turns import ResponseFormat, ToolChoice, ToolMode
from colibri_protocol.limits import MAX_GRAMMAR_BYTES
from colibri_protocol.messages import Word
from tests.gateway.dialects.openai_rig import ABLE, BASELINE, TOOL, chat, refused

NOW = {"name": "now"}
SCHEMA = {"type": "object", "properties": {"é": {"type": "integer"}}, "required": ["é"]}
SCHEMA_TEXT = '{"type":"object","properties":{"é":{"type":"integer"}},"required":["é"]}'
WITHOUT_GRAMMAR = replace(ABLE, words=frozenset(Word) - {Word.GRAMMAR})


def json_schema(**members: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": members}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    members = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": members}}


def test_declared_functions_in_both_forms() -> None:
    turn = chat(tools=[TOOL, NOW]).turn
    first, second = turn.tools
    assert first.name == "weather"
    assert first.parameters == TOOL["function"]["parameters"]  # type: ignore[index]
    assert first.declaration == TOOL["function"]
    assert not first.is_strict
    assert second.name == "now"
    assert second.parameters == {"type": "object", "properties": {}}
    assert turn.conversation is not None
    assert turn.conversation.tools == (TOOL, {"type": "function", "function": NOW})


def test_the_flat_form_loses_its_type() -> None:
    (tool,) = chat(tools=[{"type": "function", **NOW}]).turn.tools
    assert tool.declaration == NOW


@pytest.mark.parametrize("fields", [{"tools": []}, {"tools": None}, {"functions": []}, {}])
def test_no_tools(fields: dict[str, Any]) -> None:
    parsed = chat(**fields)
    assert parsed.turn.tools == ()
    assert not parsed.render.has_tools


def test_the_older_name_is_used_when_the_newer_says_nothing() -> None:
    assert [tool.name for tool in chat(functions=[NOW], tools=[]).turn.tools] == ["now"]
    assert [tool.name for tool in chat(functions=[NOW], tools=[TOOL]).turn.tools] == ["weather"]
    assert refused(functions=[{}]).param == "functions.0.function.name"
    choice = chat(functions=[NOW], function_call={"name": "now"}).turn.tool_choice
    assert choice == ToolChoice(ToolMode.NAMED, "now")


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        (5, "tools"),
        ({}, "tools"),
        ([5], "tools.0"),
        ([TOOL, "x"], "tools.1"),
        ([{"type": "web_search"}], "tools.0"),
        ([{"type": "function", "function": "x"}], "tools.0.function"),
        ([{"type": "function", "function": {}}], "tools.0.function.name"),
        ([{"function": {"name": 7}}], "tools.0.function.name"),
        ([{"function": {"name": ""}}], "tools.0.function.name"),
        ([{}], "tools.0.function.name"),
        ([{"function": {"name": "f", "parameters": 7}}], "tools.0.function.parameters"),
        ([{"function": {"name": "f", "strict": "yes"}}], "tools.0.function.strict"),
        ([{"function": {"name": "f", "description": "a\0"}}], "tools"),
        ([TOOL, NOW, {"name": "weather"}], "tools.2.function.name"),
    ],
)
def test_declarations_that_are_refused(tools: object, param: str) -> None:
    error = refused(tools=tools)
    assert (error.param, error.code) == (param, "invalid_value")


def test_a_name_that_stands_twice_is_told() -> None:
    error = refused(tools=[NOW, TOOL, NOW])
    assert "'now'" in error.message
    assert "tools.0" in error.message
    assert refused(functions=[NOW, NOW]).param == "functions.1.function.name"


def test_strict_tools_need_grammars() -> None:
    strict = {"type": "function", "function": {**NOW, "strict": True}}
    assert chat(tools=[strict]).turn.tools[0].is_strict
    error = refused(BASELINE, tools=[strict])
    assert (error.param, error.code) == ("tools.0.function.strict", "unsupported_parameter")
    relaxed = {"type": "function", "function": {**NOW, "strict": False}}
    assert not chat(BASELINE, tools=[relaxed]).turn.tools[0].is_strict


@pytest.mark.parametrize(
    ("value", "mode", "offered"),
    [
        (None, ToolMode.AUTO, ["weather", "now"]),
        ("auto", ToolMode.AUTO, ["weather", "now"]),
        ("none", ToolMode.NONE, []),
        ("required", ToolMode.REQUIRED, ["weather", "now"]),
        ({"type": "function", "function": {"name": "now"}}, ToolMode.NAMED, ["now"]),
        ({"name": "now"}, ToolMode.NAMED, ["now"]),
        (allowed("auto", "now"), ToolMode.AUTO, ["now"]),
        (allowed("required", "now", "weather"), ToolMode.REQUIRED, ["weather", "now"]),
    ],
)
def test_the_choice_decides_what_is_offered(
    value: object, mode: ToolMode, offered: list[str]
) -> None:
    parsed = chat(tools=[TOOL, NOW], tool_choice=value)
    assert parsed.turn.tool_choice.mode is mode
    assert parsed.turn.conversation is not None
    names = [tool["function"]["name"] for tool in parsed.turn.conversation.tools]
    assert names == offered
    assert parsed.render.has_tools is bool(offered)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("maybe", "unsupported_value"),
        ("", "unsupported_value"),
        (7, "invalid_value"),
        ([], "invalid_value"),
        ({}, "invalid_value"),
        ({"type": "function", "function": {"name": "undeclared"}}, "invalid_value"),
        ({"type": "function", "function": {}}, "invalid_value"),
        ({"type": "tool", "name": "now"}, "invalid_value"),
        ({"type": "allowed_tools"}, "invalid_value"),
        (allowed("none", "now"), "invalid_value"),
        (allowed("auto"), "invalid_value"),
        (allowed("auto", "now", "undeclared"), "invalid_value"),
        ({**allowed("auto", "now"), "allowed_tools": {"mode": [], "tools": []}}, "invalid_value"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["now"]}},
            "invalid_value",
        ),
    ],
)
def test_choices_that_are_refused(value: object, code: str) -> None:
    error = refused(tools=[TOOL, NOW], tool_choice=value)
    assert (error.param, error.code) == ("tool_choice", code)


def test_a_tool_that_is_not_allowed_is_no_call_either() -> None:
    parsed = chat(tools=[TOOL, NOW], tool_choice=allowed("auto", "now"))
    assert [tool.name for tool in parsed.turn.tools] == ["now"]


@pytest.mark.parametrize("value", ["required", "auto", {"name": "now"}, allowed("auto", "now")])
def test_only_none_needs_no_tools(value: object) -> None:
    error = refused(tool_choice=value)
    assert (error.param, error.code) == ("tool_choice", "invalid_value")
    chat(tool_choice="none")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        (
            json_schema(name="n", schema=SCHEMA),
            ResponseFormat("json_schema", SCHEMA_TEXT),
        ),
        ({"type": "gbnf", "grammar": 'root ::= "a"'}, ResponseFormat("gbnf", 'root ::= "a"')),
        ({"type": "lark", "grammar": "start: /a/"}, ResponseFormat("lark", "start: /a/")),
        ({"type": "regex", "pattern": "a+"}, ResponseFormat("regex", "a+")),
    ],
)
def test_forms_of_the_answer(value: object, expected: ResponseFormat | None) -> None:
    assert chat(response_format=value).turn.response_format == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"type": "yaml"}, "unsupported_value"),
        ("json", "invalid_value"),
        ({}, "invalid_value"),
        ({"type": 7}, "invalid_value"),
        ({"type": "json_schema"}, "invalid_value"),
        (json_schema(name="n"), "invalid_value"),
        (json_schema(schema="x"), "invalid_value"),
        (json_schema(schema={}, strict="yes"), "invalid_value"),
        ({"type": "gbnf", "grammar": "  \n"}, "invalid_value"),
        ({"type": "gbnf"}, "invalid_value"),
        ({"type": "gbnf", "grammar": "x" * (MAX_GRAMMAR_BYTES + 1)}, "invalid_value"),
        ({"type": "regex", "pattern": 7}, "invalid_value"),
        ({"type": "gbnf", "grammar": "a\0"}, None),
        (json_schema(schema={"a": "\0"}), None),
    ],
)
def test_forms_that_are_refused(value: object, code: str | None) -> None:
    for served in (ABLE, BASELINE):
        error = refused(served, response_format=value)
        assert (error.param, error.code) == ("response_format", code)


def test_the_largest_grammar_is_taken() -> None:
    text = "x" * MAX_GRAMMAR_BYTES
    parsed = chat(response_format={"type": "gbnf", "grammar": text})
    assert parsed.turn.response_format == ResponseFormat("gbnf", text)


def test_the_baseline_takes_forms_as_drafts_and_promises_nothing() -> None:
    assert chat(BASELINE, response_format={"type": "json_object"}).turn.response_format
    assert chat(BASELINE, response_format=json_schema(schema=SCHEMA)).turn.response_format
    for value in (json_schema(schema=SCHEMA, strict=True), {"type": "regex", "pattern": "a"}):
        error = refused(BASELINE, response_format=value)
        assert (error.param, error.code) == ("response_format", "unsupported_parameter")


@pytest.mark.parametrize("served", [WITHOUT_GRAMMAR, replace(BASELINE, family="olmoe")])
def test_other_engines_without_grammars_refuse_every_form(served: Served) -> None:
    error = refused(served, response_format={"type": "json_object"})
    assert (error.param, error.code) == ("response_format", "unsupported_parameter")
    assert chat(served, response_format={"type": "text"}).turn.response_format is None
