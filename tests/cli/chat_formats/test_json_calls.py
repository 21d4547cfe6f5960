"""Calls written as JSON: hermes, Mistral in both generations, Llama 3, Inkling."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.tool_formats import hermes, inkling, llama, mistral
from colibri_cli.chat_formats.tool_formats.base import (
    CallArguments,
    CallFinished,
    CallStarted,
    Text,
    ToolSyntax,
)
from tests.fakes.tool_calls import Answer, answer_of, parsed, tool

LS = tool("ls", ["path"], path="string")
NOW = tool("now")
WEATHER = tool("weather", ["city"], city="string", days="integer")
TOOLS = (LS, NOW, WEATHER)
ROME, OSLO = ("weather", '{"city":"Rome"}'), ("weather", '{"city":"Oslo"}')


def answer(
    syntax: ToolSyntax, text: str, *, was_cut: bool = False, parallel: bool = True
) -> Answer:
    whole = parsed(syntax.parser(TOOLS, parallel=parallel), [text], was_cut=was_cut)
    assert parsed(syntax.parser(TOOLS, parallel=parallel), [*text], was_cut=was_cut) == whole
    return answer_of(whole)


def box(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_hermes_calls_with_text_around_them() -> None:
    text = "Let me check.\n" + box("weather", '{"city": "Rome"}') + "\n"
    found = answer(hermes.SYNTAX, text + box("weather", '{"city": "Oslo"}') + " Done.")
    assert found == Answer("Let me check.\n\n Done.", [ROME, OSLO])
    both = text + box("now", "{}")
    assert answer(hermes.SYNTAX, both, parallel=False).calls == [ROME]


def test_hermes_arguments_are_passed_on_as_they_come() -> None:
    parser = hermes.SYNTAX.parser(TOOLS)
    assert parser.feed('Hi <tool_call>\n{"name": "ls", "argu') == [Text("Hi")]
    assert parser.feed('ments": ') == []
    assert parser.feed('{ "path": "a') == [CallStarted("ls"), CallArguments('{"path":"a')]
    assert parser.feed(" b\n\\") == [CallArguments(" b\\n\\")]
    assert parser.feed('"" }') == [CallArguments('""}')]
    assert parser.feed("}") == [CallFinished()]
    assert parser.feed("\n</tool_call>\nDone") == [Text(" \nDone")]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('<tool_call>{"arguments":{"path":"a"},"name":"ls"}</tool_call>', '{"path":"a"}'),
        ('<tool_call>{"name":"ls","parameters":{"path":"a"}}</tool_call>', '{"path":"a"}'),
        (r'<tool_call>{"name":"ls","arguments":"{\"path\": \"a\"}"}</tool_call>', '{"path":"a"}'),
        (r'<tool_call>{"arguments":"{\"path\": 1}","name":"ls"}</tool_call>', '{"path":1}'),
        ('<tool_call>{"name":"ls","arguments":null}</tool_call>', "{}"),
        ('<tool_call>{"name":"ls","arguments":""}</tool_call>', "{}"),
        ('<tool_call>{"name":"ls"}</tool_call>', "{}"),
        ('<tool_call>{"id":[1,{"a":"}"}],"name":"ls","arguments":{}}</tool_call>', "{}"),
        ('<tool_call>[{"name":"ls","arguments":{}}]</tool_call>', "{}"),
        ('<tool_call>{"name":"ls","arguments":{"n":[1, 2 , -3e5, true]}}}</tool_call>',
         '{"n":[1,2,-3e5,true]}'),
        ('<tool_call>{"name":"ls","arguments":{"path":"a</tool_call>b"}}</tool_call>',
         '{"path":"a</tool_call>b"}'),
    ],
)  # fmt: skip
def test_hermes_forms_that_models_write(text: str, calls: str) -> None:
    assert answer(hermes.SYNTAX, text) == Answer("", [("ls", calls)])


def test_a_list_in_one_box_is_several_calls() -> None:
    text = '<tool_call>[{"name":"now"}, {"name":"weather","arguments":{"city":"Rome"}}]</tool_call>'
    assert answer(hermes.SYNTAX, text).calls == [("now", "{}"), ROME]


@pytest.mark.parametrize("end", ["", "}", "}\n", "}\n</tool_cal", "}<"])
def test_a_call_with_complete_arguments_that_is_not_closed_is_a_call(end: str) -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}' + end
    assert answer(hermes.SYNTAX, text) == Answer("", [ROME])
    assert answer(hermes.SYNTAX, text, was_cut=True).calls == [ROME]


def test_a_call_without_arguments_that_is_not_closed() -> None:
    text = '<tool_call>\n{"name": "now"'
    assert answer(hermes.SYNTAX, text).calls == [("now", "{}")]
    assert answer(hermes.SYNTAX, text, was_cut=True) == Answer(text)
    assert answer(hermes.SYNTAX, text.replace("now", "ls")).calls == []


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "ls", "arguments": {"path": "do',
        '<tool_call>{"name": "ls", "arguments": {"path": "docs"',
        '<tool_call>{"name": "ls", "arguments": {"path": "docs",}}</tool_call>',
        '<tool_call>{"name": "ls", "arguments": {"n": 1 2}}</tool_call>',
        '<tool_call>{"name": "ls", "arguments": {"n": NaN}}</tool_call>',
    ],
)
def test_broken_arguments_are_text_and_no_call(text: str) -> None:
    assert answer(hermes.SYNTAX, text) == Answer(text, [], [text])
    around = answer(hermes.SYNTAX, f"Now {text}" + box("weather", '{"city": "Rome"}'))
    if text.endswith("</tool_call>"):
        assert around == Answer(f"Now {text}", [ROME], [text])
    cut = answer(hermes.SYNTAX, text, was_cut=True)  # the limit is what the client is told
    assert cut == Answer("" if not text.endswith("</tool_call>") else text, [], [text])


@pytest.mark.parametrize(
    "text",
    [
        "Write <tool_call> and then the name.",
        "<tool_call>",
        "<tool_call>ls</tool_call>",
        '<tool_call>{"name": "ls", "argu',
        '<tool_call>{"foo": 1}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name" "ls"}</tool_call>',
        '<tool_call>{"name": "drop", "arguments": {"a": 1}',
        "half <tool_",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert answer(hermes.SYNTAX, text) == Answer(text)


def test_hermes_undeclared_and_nameless() -> None:
    assert answer(hermes.SYNTAX, box("drop", '{"a": 1}')).calls == [("drop", '{"a":1}')]
    assert answer(hermes.SYNTAX, f"a {box('', '{}')}b") == Answer("a b")
    assert answer(hermes.SYNTAX, "a <tool_call>\n</tool_call>b") == Answer("a b")


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}, "id": "abcdefghi"}]',
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}',
        '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}',
        '[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{"city": "Rome"}',
        '[TOOL_CALLS] weather {"city": "Rome"}',
    ],
)
def test_mistral_writes_calls_in_two_forms(text: str) -> None:
    assert answer(mistral.SYNTAX, f"Sure. {text}") == Answer("Sure.", [ROME])


def test_mistral_several_calls() -> None:
    named = '[TOOL_CALLS]weather[ARGS]{"city":"Rome"}[TOOL_CALLS]now[ARGS]{}'
    listed = '[TOOL_CALLS][{"name":"weather","arguments":{"city":"Rome"}},{"name":"now"}] '
    for text in (named, listed):
        assert answer(mistral.SYNTAX, text) == Answer("", [ROME, ("now", "{}")])
        assert answer(mistral.SYNTAX, text, parallel=False).calls == [ROME]


@pytest.mark.parametrize(
    "text",
    [
        "The marker [TOOL_CALLS] begins a call.",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]ls",
        "[TOOL_CALLS]ls[ARG",
        "[TOOL_CALLS]ls and so on",
        "[TOOL_CALLS](x)",
        '[TOOL_CALLS]drop[ARGS]{"a":',
    ],
)
def test_mistral_prose(text: str) -> None:
    assert answer(mistral.SYNTAX, text) == Answer(text)


def test_mistral_broken_arguments() -> None:
    for text in ('[TOOL_CALLS]ls[ARGS]{"path": "do', '[TOOL_CALLS]ls[ARGS]{"path": }'):
        assert answer(mistral.SYNTAX, text) == Answer(text, [], [text])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "parameters": {"city": "Rome"}}',
        '\n{"type": "function", "name": "weather", "parameters": {"city": "Rome"}}',
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}',
        '<|python_tag|>{"name": "weather", "arguments": {"city": "Rome"}',
    ],
)
def test_llama_calls(text: str) -> None:
    assert answer(llama.SYNTAX, text) == Answer("", [ROME])


def test_llama_several_calls() -> None:
    text = '{"name":"weather","parameters":{"city":"Rome"}}; {"name":"now","parameters":{}}'
    for found in (text, f"<|python_tag|>{text}"):
        assert answer(llama.SYNTAX, found) == Answer("", [ROME, ("now", "{}")])


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Rome", "days": 3}',
        '{"name": "Bob", "parameters": {"age": 3}}',
        '{"name": "ls"}',
        "{not JSON}",
        "{",
        'I would write {"name": "ls", "parameters": {"path": "a"}}',
        "<|python_tag|>print(1)",
    ],
)
def test_llama_answers_in_json_stay_answers(text: str) -> None:
    assert answer(llama.SYNTAX, text) == Answer(text)


def test_inkling_calls() -> None:
    text = (
        'Sure.<|content_invoke_tool_json|>{"name":"weather","args":{"city":"Rome"}}'
        '<|content_invoke_tool_json|>{"args":{},"name":"now"}'
    )
    assert answer(inkling.SYNTAX, text) == Answer("Sure.", [ROME, ("now", "{}")])
    cut = '<|content_invoke_tool_json|>{"name":"ls","args":{"path":"do'
    assert answer(inkling.SYNTAX, cut, was_cut=True).calls == []
