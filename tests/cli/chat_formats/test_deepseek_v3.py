"""DeepSeek V3 and V3.1: both ways of writing a call, and the prompts of their templates."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation, ThinkingStart, ToolCall
from colibri_cli.chat_formats.deepseek_calls import CALL, CALL_END, CLOSE, OPEN, SEPARATOR
from colibri_cli.chat_formats.registry import format_for_model, tool_support_for
from colibri_cli.chat_formats.tool_formats import deepseek_v3, deepseek_v31
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame, ToolSyntax
from colibri_protocol.messages import Grammar, SegmentKind
from tests.fakes.grammar_texts import ByteVocabulary
from tests.fakes.tool_calls import Choice, answer_of, parsed, tool

TOOLS = (tool("ls", ["path"], path="string"), tool("now"))
SYNTAXES = (deepseek_v3.SYNTAX, deepseek_v31.SYNTAX)
TOKENS = (OPEN, CLOSE, CALL, CALL_END, SEPARATOR)
A: tuple[str, object] = ("ls", {"path": "a```<｜b"})  # noqa: RUF001
B: tuple[str, object] = ("now", {})

Written = Callable[[str, str], str]


def fenced(name: str, arguments: str) -> str:
    return f"{CALL}function{SEPARATOR}{name}\n```json\n{arguments}\n```{CALL_END}"


def plain(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEPARATOR}{arguments}{CALL_END}"


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("call", [fenced, plain])
def test_both_ways_of_writing_a_call_are_read(syntax: ToolSyntax, call: Written) -> None:
    ls, now = call("ls", '{"path": "a```<｜b"}'), call("now", "{}")  # noqa: RUF001
    no_call = f"{OPEN}{call('ls', '[1]')}{CLOSE}"
    for text, was_cut, calls, content in [
        (f"I look.{OPEN}{ls}\n{now}{CLOSE}", False, [A, B], "I look."),
        (f"{OPEN}\n{ls}{CLOSE} Bye.", False, [A], "Bye."),
        (f"{OPEN}{ls}{CLOSE}{OPEN}{now}{CLOSE}", False, [A, B], ""),
        (f"{OPEN}{ls}{now}", True, [A, B], ""),
        (f"{OPEN}{ls.partition('}')[0]}}}", True, [A], ""),
        (f"{OPEN}{ls.partition('}')[0]}", True, [], ""),
        (f"{OPEN}{ls}{now.partition('{')[0]}", True, [A], ""),
        (f"{no_call}Hi.", False, [], f"{no_call}Hi."),
        (f"{OPEN}{CLOSE}Hi.", False, [], "Hi."),
        (f"The mark is {OPEN} and no more.", False, [], f"The mark is {OPEN} and no more."),
    ]:
        for pieces in ([text], [*text]):
            found = answer_of(parsed(syntax.parser(TOOLS), pieces, was_cut=was_cut))
            assert found.values() == calls, text
            assert found.content == content, text


def test_arguments_are_passed_on_as_they_come() -> None:
    parser = deepseek_v31.SYNTAX.parser(TOOLS)
    parser.feed(f"{OPEN}{CALL}ls{SEPARATOR}")
    started = parser.feed('{"path": "a')
    assert [getattr(event, "name", None) or getattr(event, "text", None) for event in started] == [
        "ls",
        '{"path":"a',
    ]


def test_only_the_first_call_where_one_is_wanted() -> None:
    parser = deepseek_v3.SYNTAX.parser(TOOLS, parallel=False)
    text = f"{OPEN}{fenced('now', '{}')}{fenced('ls', '{}')}{CLOSE}"
    assert answer_of(parsed(parser, [text])).values() == [B]


# What the published templates do with roles, calls and results, in fewer words.
END = "<｜end▁of▁sentence｜>"  # noqa: RUF001
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"  # noqa: RUF001
RESULT, RESULT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"  # noqa: RUF001
RESULTS, RESULTS_END = "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"  # noqa: RUF001
V31_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% for m in messages %}"
    f"{{% if m['role'] == 'user' %}}{{{{ '{USER}' + m['content'] + '{ASSISTANT}</think>' }}}}"
    "{% elif m['role'] == 'assistant' and m['tool_calls'] is defined %}"
    "{% if m['content'] is not none %}{{ m['content'] }}{% endif %}"
    f"{OPEN}{{% for c in m['tool_calls'] %}}"
    f"{{{{ '{CALL}' + c['function']['name'] + '{SEPARATOR}' + c['function']['arguments']"
    f" + '{CALL_END}' }}}}{{% endfor %}}{CLOSE}{END}"
    f"{{% elif m['role'] == 'assistant' %}}{{{{ m['content'] + '{END}' }}}}"
    f"{{% elif m['role'] == 'tool' %}}{{{{ '{RESULT}' + m['content'] + '{RESULT_END}' }}}}"
    "{% endif %}{% endfor %}"
)
V3_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% set ns = namespace(is_tool=false) %}{% for m in messages %}"
    f"{{% if m['role'] == 'user' %}}{{{{ '{USER}' + m['content'] }}}}{{% endif %}}"
    "{% if m['role'] == 'assistant' and m['content'] is none %}"
    f"{ASSISTANT}{OPEN}{{% for c in m['tool_calls'] %}}"
    f"{{{{ '{CALL}' + c['type'] + '{SEPARATOR}' + c['function']['name'] + '\\n```json\\n'"
    f" + c['function']['arguments'] + '\\n```{CALL_END}' }}}}{{% endfor %}}{CLOSE}{END}"
    "{% elif m['role'] == 'assistant' %}"
    f"{{% if ns.is_tool %}}{RESULTS_END}{{% set ns.is_tool = false %}}{{% endif %}}"
    f"{{{{ m['content'] + '{END}' }}}}{{% endif %}}"
    "{% if m['role'] == 'tool' %}"
    f"{{% if not ns.is_tool %}}{RESULTS}{{% endif %}}{{% set ns.is_tool = true %}}"
    f"{{{{ '{RESULT}' + m['content'] + '{RESULT_END}' }}}}{{% endif %}}{{% endfor %}}"
    f"{{% if ns.is_tool %}}{RESULTS_END}{{% elif add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)
TURNS = (
    ChatMessage("user", "Hi"),
    ChatMessage("assistant", "", tool_calls=(ToolCall("1", "ls", {"path": f"é{END}"}),
                                             ToolCall("2", "now", {}))),
    ChatMessage("tool", "12", tool_call_id="1"),
    ChatMessage("tool", "13", tool_call_id="2"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("template", "syntax", "expected"),
    [
        (
            V31_TEMPLATE,
            deepseek_v31,
            f"{USER}Hi{ASSISTANT}</think>{OPEN}"
            + plain("ls", f'{{"path": "é{END}"}}')
            + plain("now", "{}")
            + f"{CLOSE}{END}{RESULT}12{RESULT_END}{RESULT}13{RESULT_END}",
        ),
        (
            V3_TEMPLATE,
            deepseek_v3,
            f"{USER}Hi{ASSISTANT}{OPEN}"
            + fenced("ls", f'{{"path": "é{END}"}}')
            + fenced("now", "{}")
            + f"{CLOSE}{END}{RESULTS}{RESULT}12{RESULT_END}{RESULT}13{RESULT_END}{RESULTS_END}",
        ),
    ],
    ids=["v31", "v3"],
)
def test_templates_get_calls_as_text_and_tools_in_the_system_message(
    template: str, syntax: object, expected: str
) -> None:
    info = {"chat_template": template}
    support = tool_support_for(info)
    assert support.syntax is getattr(syntax, "SYNTAX", None)
    assert not support.needs_grammar
    chat_format = format_for_model(info)
    prompt = chat_format.render(support.offer(Conversation(TURNS), TOOLS, Choice("none")))
    assert prompt.text == expected
    control = "".join(s.text for s in prompt.segments if s.kind is SegmentKind.CONTROL)
    assert control.count(END) == 1
    offered = support.offer(Conversation(TURNS), TOOLS, Choice("named", "ls"))
    system = chat_format.render(offered).text.removesuffix(expected)
    assert "## Tools\n" in system
    assert f"### ls\nDescription: \n\nParameters: {json.dumps(TOOLS[0].parameters)}\n" in system
    assert "### now" not in system
    assert system.endswith("You must call the function `ls`. Do not answer directly.")


FORM = Grammar("json_schema", '{"type": "integer"}')


@pytest.mark.parametrize("special", [(), TOKENS])
@pytest.mark.parametrize(("syntax", "call"), [(SYNTAXES[0], fenced), (SYNTAXES[1], plain)])
def test_grammars(special: tuple[str, ...], syntax: ToolSyntax, call: Written) -> None:
    one = OPEN + call("ls", '{"path": "a"}') + CLOSE
    other = OPEN + call("now", "{}") + CLOSE
    vocabulary = ByteVocabulary(special)
    for mode, final, allowed, refused in [
        ("required", None, [one, one + other], ["hi", f"hi {one}", one.replace('"a"', "1")]),
        ("auto", None, ["", "hi", f"hi {one} bye"], [f"{OPEN}x", f"{one}{OPEN}"]),
        ("auto", FORM, ["12", one, one + other], ["hi", f"hi {one}", f"{one}12"]),
    ]:
        frame = AnswerFrame(ThinkingStart.CLOSED, vocabulary.special_tokens, final=final)
        grammar = syntax.forced_grammar(TOOLS, Choice(mode), frame)
        assert [text for text in allowed if not vocabulary.allows(grammar, text)] == []
        assert [text for text in refused if vocabulary.allows(grammar, text)] == []
