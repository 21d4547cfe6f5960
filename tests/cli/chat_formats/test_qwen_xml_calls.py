"""Qwen's XML-like calls: typed by the schema, whole or cut anywhere, closed or not."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.tool_formats.base import CallArguments, CallStarted
from colibri_cli.chat_formats.tool_formats.qwen_xml import SYNTAX
from tests.fakes.tool_calls import Answer, answer_of, parsed, tool

TOOLS = (tool("write", ["path"], path="string", text="string", n="integer"), tool("now"))
HEAD = "<tool_call>\n<function=write>\n"
END = "</function>\n</tool_call>"
PATH = "<parameter=path>\na b\n</parameter>\n"


def answer(text: str, *, was_cut: bool = False) -> Answer:
    whole = parsed(SYNTAX.parser(TOOLS), [text], was_cut=was_cut)
    assert parsed(SYNTAX.parser(TOOLS), [*text], was_cut=was_cut) == whole
    return answer_of(whole)


def test_values_are_typed_and_lose_one_line_break_at_each_end() -> None:
    text = f"Sure.\n{HEAD}{PATH}<parameter=text>\n\none\n\n</parameter>\n<parameter=n>3</parameter>"
    found = answer(f"{text}\n{END}\nDone.")
    assert found.values() == [("write", {"path": "a b", "text": "\none\n", "n": 3})]
    assert found.content == "Sure.\n\nDone."


def test_a_value_is_streamed_as_it_comes() -> None:
    parser = SYNTAX.parser(TOOLS)
    assert parser.feed(HEAD) == []
    assert parser.feed("<parameter=path>\nab")[0] == CallStarted("write")
    assert parser.feed("c\n</par") == [CallArguments("c")]
    assert parser.feed("x") == [CallArguments("\\n</parx")]


@pytest.mark.parametrize(
    "end", ["", "</func", "</function>", END, "</tool_call>", "</function>\n</to"]
)
def test_a_complete_call_may_lack_its_closing_tags(end: str) -> None:
    assert answer(HEAD + PATH + end) == Answer("", [("write", '{"path":"a b"}')])


def test_a_call_without_arguments() -> None:
    assert answer("<tool_call>\n<function=now>\n</function>\n</tool_call>").calls == [("now", "{}")]
    assert answer("<tool_call><function=now>").calls == [("now", "{}")]


@pytest.mark.parametrize("tail", ["<parameter=text>\ncut", "<parameter=te", "<para"])
def test_nothing_is_made_up_for_a_call_that_is_cut(tail: str) -> None:
    assert answer(HEAD + PATH + tail).calls == []
    assert answer(HEAD + PATH, was_cut=True).calls == []


@pytest.mark.parametrize(
    "text",
    [
        "Write <tool_call> and then the name.",
        "<tool_call>\n<function=",
        "<tool_call>\n<function=write",
        "<tool_call>\n<function=write>\nprose",
        "<tool_call><function=write>",
        "<tool_call><function=\n>",
        "<tool_call><function=other>",
    ],
)
def test_prose_about_the_marker_is_text(text: str) -> None:
    assert answer(text) == Answer(text)


def test_undeclared_and_empty() -> None:
    text = f"<tool_call><function=other><parameter=a>1</parameter>{END}"
    assert answer(text).calls == [("other", '{"a":1}')]
    assert answer("a <tool_call> </tool_call>b") == Answer("a b")
