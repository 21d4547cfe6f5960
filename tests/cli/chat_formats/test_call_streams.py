"""Every parser gives the same events however the answer is cut, and never loses text."""

from __future__ import annotations

import importlib
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.chat_formats import deepseek_calls as marks
from colibri_cli.chat_formats import tool_formats
from colibri_cli.chat_formats.tool_formats import (
    deepseek_v3,
    deepseek_v31,
    dsml,
    glm,
    harmony,
    hermes,
    inkling,
    kimi_k2,
    llama,
    mistral,
    qwen_xml,
)
from colibri_cli.chat_formats.tool_formats.base import Text, ToolSyntax
from tests.fakes.tool_calls import answer_of, parsed, tool

FOLDER = Path(tool_formats.__file__).parent
FILES = sorted(f.stem for f in FOLDER.glob("*.py") if f.stem not in {"__init__", "base"})
SYNTAXES = [
    module.SYNTAX
    for module in (
        deepseek_v3,
        deepseek_v31,
        dsml,
        glm,
        harmony,
        hermes,
        inkling,
        kimi_k2,
        llama,
        mistral,
        qwen_xml,
    )
]
TOOLS = (tool("ls", ["path"], path="string", n="integer"), tool("now"))
DEEPSEEK = [
    deepseek_v3.SYNTAX.trigger, marks.CALL, marks.SEPARATOR, marks.CALL_END, marks.CLOSE,
    "function", "ls", "now", "\n```json\n", "\n```", '{"path": "a"}', "{}", "[1]",
    f"{marks.OPEN}{marks.CALL}function{marks.SEPARATOR}now\n```json\n{{",
    f"{marks.OPEN}{marks.CALL}ls{marks.SEPARATOR}",
]  # fmt: skip
PARTS = {
    "deepseek_v3": DEEPSEEK,
    "deepseek_v31": DEEPSEEK,
    "glm": [
        "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
        "ls", "now", "other", "path", "n", "7", "(", "<tool_call>ls<arg_key>path</arg_key>",
        "<arg_value>a</arg_value>", "</tool_call",
    ],
    "dsml": [
        f"<{dsml.MARK}", "tool_calls>", f"<{dsml.MARK}tool_calls>", f"</{dsml.MARK}tool_calls>",
        f'<{dsml.MARK}invoke name="', 'ls">', 'other">', f"</{dsml.MARK}invoke>",
        f'<{dsml.MARK}parameter name="', 'path" string="true">', 'n" string="false">', "7",
        f"</{dsml.MARK}parameter>", f'<{dsml.MARK}tool_calls>\n<{dsml.MARK}invoke name="ls">',
    ],
    "harmony": [
        harmony.SYNTAX.trigger, "ls", "now", "other", "<|message|>", '{"path": "a"}', "{}", "[1]",
        f"{harmony.SYNTAX.trigger}ls<|message|>", f"{harmony.SYNTAX.trigger}now<|message|>{{}}",
    ],
    "kimi_k2": [
        kimi_k2.SYNTAX.trigger, "<|tool_call_begin|>", "functions.ls:0", "now:1", "functions.",
        "<|tool_call_argument_begin|>", '{"path": "a"}', "{}", "[1]", "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        f"{kimi_k2.SYNTAX.trigger}<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>",
    ],
    "hermes": [
        "<tool_call>", "</tool_call>", '{"name": "ls"', '"arguments": {', '"path": "a"', "}", "{",
        ",", ":", '"', "[", "]", "1", "\\", '{"name":"now","arguments":{}}', '"name"', "null",
    ],
    "qwen_xml": [
        "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>",
        "ls", "now", "other", ">", "path>", "n>", "7", "<function=ls>\n<parameter=path>\na\n",
        "</parameter>\n</function>\n</tool_call>",
    ],
    "mistral": [
        "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "ls", "now", "{", "}", '"path":"a"', "[", "]", ",",
        '{"name":"ls","arguments":{}}', '"',
    ],
    "llama": [
        "<|python_tag|>", '{"name": "ls", "parameters": {', '"path": "a"', "}}", "{", "}", ";",
        '{"name":"now","parameters":{}}', '{"name":"other"', ",", '"',
    ],
    "inkling": [
        "<|content_invoke_tool_json|>", '{"name":"ls","args":{', '"path":"a"', "}}", "{", '"', ",",
        '{"args":{},"name":"now"}',
    ],
}  # fmt: skip
COMMON = ["a", " ", "\n", "é", "<", "</", "[", "text "]


@st.composite
def cut_answers(draw: st.DrawFn) -> tuple[ToolSyntax, str, list[str]]:
    syntax = draw(st.sampled_from(SYNTAXES))
    parts = st.sampled_from(PARTS[syntax.name] + COMMON)
    text = "".join(draw(st.lists(parts, max_size=14)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return syntax, text, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]


@pytest.mark.parametrize("name", FILES)
def test_a_syntax_module_offers_its_syntax(name: str) -> None:
    module = importlib.import_module(f"{tool_formats.__name__}.{name}")
    assert module.SYNTAX.name == name
    assert module.SYNTAX.trigger
    assert isinstance(module.SYNTAX.kept_markers, tuple)
    assert not module.SYNTAX.is_used_by("{{ messages }}{{ tools }}")
    assert module.SYNTAX in SYNTAXES, f"{name} is not among the tested syntaxes"
    assert parsed(module.SYNTAX.parser(TOOLS), ["x"]) == [Text("x")]


@given(cut_answers(), st.booleans(), st.booleans())
def test_events_do_not_depend_on_the_pieces(
    cut: tuple[ToolSyntax, str, list[str]], was_cut: bool, parallel: bool
) -> None:
    syntax, text, pieces = cut
    whole = parsed(syntax.parser(TOOLS, parallel=parallel), [text], was_cut=was_cut)
    for other in (pieces, [*text]):
        assert parsed(syntax.parser(TOOLS, parallel=parallel), other, was_cut=was_cut) == whole
    answer = answer_of(whole)
    for name, arguments in answer.calls:
        assert name
        assert isinstance(json.loads(arguments), dict)
    assert parallel or len(answer.calls) <= 1


@given(cut_answers())
def test_an_answer_without_calls_and_boxes_is_the_text(
    cut: tuple[ToolSyntax, str, list[str]],
) -> None:
    syntax, text, pieces = cut
    plain = text.replace(syntax.trigger, "").lstrip().lstrip("{").lstrip()
    if syntax.trigger in plain or plain.startswith("{"):
        return
    del pieces
    assert answer_of(parsed(syntax.parser(TOOLS), [*plain])).content == plain


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
def test_text_is_held_back_only_while_it_may_be_a_marker(syntax: ToolSyntax) -> None:
    parser = syntax.parser(TOOLS)
    shown = ""
    for character in "The answer is < 3, [see] <tool> or {x}.":
        shown += "".join(getattr(event, "text", "") for event in parser.feed(character))
    assert shown == "The answer is < 3, [see] <tool> or {x}."
