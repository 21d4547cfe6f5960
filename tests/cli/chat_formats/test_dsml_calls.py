"""DeepSeek's calls: blocks of several, typed, whole or cut anywhere, closed or not."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.tool_formats.base import CallArguments, CallStarted
from colibri_cli.chat_formats.tool_formats.dsml import MARK, SYNTAX
from tests.fakes.tool_calls import Answer, answer_of, parsed, tool

TOOLS = (tool("write", ["path"], path="string", n="integer"), tool("now"))
OPEN, CLOSE = f"<{MARK}tool_calls>", f"</{MARK}tool_calls>"
END = f"</{MARK}invoke>"


def invoke(name: str, **values: str) -> str:
    lines = "".join(parameter(key, value) for key, value in values.items())
    return f'\n<{MARK}invoke name="{name}">\n{lines}'


def parameter(key: str, value: str, is_text: str = "true") -> str:
    return f'<{MARK}parameter name="{key}" string="{is_text}">{value}</{MARK}parameter>\n'


def answer(text: str, *, was_cut: bool = False) -> Answer:
    whole = parsed(SYNTAX.parser(TOOLS), [text], was_cut=was_cut)
    assert parsed(SYNTAX.parser(TOOLS), [*text], was_cut=was_cut) == whole
    return answer_of(whole)


def test_a_block_holds_several_calls() -> None:
    first = invoke("write", path="a\nb", n="3")
    text = f"Sure.\n\n{OPEN}{first}{END}{invoke('now')}{END}\n{CLOSE} "
    found = answer(text + "Done.")
    assert found.values() == [("write", {"path": "a\nb", "n": 3}), ("now", {})]
    assert found.content == "Sure.\n\n Done."
    assert answer(text.replace("tool_calls", "function_calls")).calls == found.calls


def test_the_schema_wins_over_what_the_model_says_of_a_value() -> None:
    lines = (
        parameter("path", "7", "false") + parameter("n", "7")
        + parameter("x", "7") + parameter("y", "7", "false")
    )  # fmt: skip
    text = f"{OPEN}{invoke('write')}{lines}{END}\n{CLOSE}"
    assert answer(text).values() == [("write", {"path": "7", "n": 7, "x": "7", "y": 7})]


def test_a_value_is_streamed_as_it_comes() -> None:
    parser = SYNTAX.parser(TOOLS)
    assert parser.feed(f"{OPEN}{invoke('write')}") == []
    assert parser.feed(f'<{MARK}parameter name="path" string="true">ab')[0] == CallStarted("write")
    assert parser.feed(f"c</{MARK}para") == [CallArguments("c")]


@pytest.mark.parametrize(
    "end", ["", f"</{MARK}inv", END, f"{END}\n", f"{END}\n</{MARK}tool", END + CLOSE]
)
def test_a_complete_call_may_lack_its_closing_tags(end: str) -> None:
    text = f"{OPEN}{invoke('write', path='a')}{end}"
    assert answer(text) == Answer("", [("write", '{"path":"a"}')])


def test_nothing_is_made_up_for_a_call_that_is_cut() -> None:
    head = f"{OPEN}{invoke('write', path='a')}"
    for tail in (
        f'<{MARK}parameter name="n',
        f'<{MARK}parameter name="n" string="false">3',
        "prose",
    ):
        assert answer(head + tail).calls == []
    assert answer(head, was_cut=True).calls == []
    assert len(answer(head + END + invoke("now"), was_cut=True).calls) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"The marker <{MARK} begins a call.",
        f"<{MARK}tool_ca",
        f"{OPEN} and so on",
        f"{OPEN}\n<{MARK}invoke name=",
        f'{OPEN}\n<{MARK}invoke name="write',
        f"{OPEN}{invoke('write')}prose",
        f"{OPEN}{invoke('other', a='1')}",
    ],
)
def test_prose_about_the_marker_is_text(text: str) -> None:
    assert answer(text) == Answer(text)


def test_undeclared_and_empty() -> None:
    assert answer(f"{OPEN}{invoke('other', a='1')}{END}{CLOSE}").values() == [("other", {"a": "1"})]
    assert answer(f"a {OPEN}\n{CLOSE}b") == Answer("a b")
