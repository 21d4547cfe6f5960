"""Kimi K2: calls in sections, ids that name the function, the prompt of its template."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation, ThinkingStart, ToolCall
from colibri_cli.chat_formats.jinja import JinjaChatFormat
from colibri_cli.chat_formats.registry import tool_support_for
from colibri_cli.chat_formats.tool_formats import kimi_k2
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame
from colibri_protocol.messages import Grammar
from tests.fakes.grammar_texts import ByteVocabulary
from tests.fakes.tool_calls import Choice, answer_of, parsed, tool

TOOLS = (tool("ls", ["path"], path="string"), tool("now"))
OPEN, CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
TOKENS = (
    OPEN, CLOSE, "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>",
)  # fmt: skip
# What the published template does with roles, tools and calls, in fewer words.
TEMPLATE = (
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|im_assistant|>assistant<|im_middle|>{{ m.content }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}"
    "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}"
    "<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}"
    "{% elif m.role == 'tool' %}<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n"
    "{{ m.content }}"
    "{% else %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}{% endif %}"
    "<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"
)


def call(call_id: str, arguments: str) -> str:
    return f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


LS_BEGUN = f"{OPEN}<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>"
LS, NOW = call("functions.ls:0", '{"path": "a<|b"}'), call("functions.now:1", "{}")
A: tuple[str, object] = ("ls", {"path": "a<|b"})
B: tuple[str, object] = ("now", {})


@pytest.mark.parametrize(
    ("text", "was_cut", "calls", "content"),
    [
        (f"I look.{OPEN}{LS}{NOW}{CLOSE}", False, [A, B], "I look."),
        (f"{OPEN}\n{LS}\n{NOW}\n{CLOSE} Bye.", False, [A, B], "Bye."),
        (f"{OPEN}{LS}{CLOSE}{OPEN}{NOW}{CLOSE}", False, [A, B], ""),
        (f"{OPEN}{call('ls', '{}')}{CLOSE}", False, [("ls", {})], ""),
        (f"{OPEN}{call(' functions.ls:12 ', '{}')}", False, [("ls", {})], ""),
        (f"{OPEN}{call('a.b-c:3', '{}')}{CLOSE}", False, [("a.b-c", {})], ""),
        (f"{OPEN}{LS[:-17]}", True, [A], ""),
        (f"{OPEN}{LS[:-19]}", True, [], ""),
        (f"{OPEN}{LS}{NOW[:-18]}", True, [A], ""),
        (f"{OPEN}<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>", False, [B], ""),
        (LS_BEGUN, False, [], LS_BEGUN),
        (LS_BEGUN, True, [], ""),
        (f"{OPEN}{CLOSE}Hi.", False, [], "Hi."),
        (f"The mark is {OPEN} and no more.", False, [], f"The mark is {OPEN} and no more."),
    ],
)
def test_calls_in_sections(text: str, was_cut: bool, calls: list[object], content: str) -> None:
    for pieces in ([text], [*text]):
        found = answer_of(parsed(kimi_k2.SYNTAX.parser(TOOLS), pieces, was_cut=was_cut))
        assert found.values() == calls
        assert found.content == content


def test_only_the_first_call_where_one_is_wanted() -> None:
    parser = kimi_k2.SYNTAX.parser(TOOLS, parallel=False)
    assert answer_of(parsed(parser, [f"{OPEN}{LS}{NOW}{CLOSE}"])).values() == [A]


def test_ids_name_the_function_in_the_prompt() -> None:
    messages = (
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "ls", {"path": "é"}),
                                                 ToolCall("c2", "now", {}))),
        ChatMessage("tool", "12", tool_call_id="c2"),
        ChatMessage("tool", "a", tool_call_id="c1"),
        ChatMessage("tool", "?", tool_call_id="c9"),
    )  # fmt: skip
    prompt = JinjaChatFormat(TEMPLATE, TOKENS, {}).render(Conversation(messages))
    head = "<|im_end|><|im_system|>tool<|im_middle|>## Return of "
    first = call("functions.ls:0", '{"path": "é"}')
    assert prompt.text == (
        "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant<|im_middle|>"
        f"{OPEN}{first}{NOW}{CLOSE}"
        f"{head}functions.now:1\n12{head}functions.ls:0\na{head}c9\n?"
        "<|im_end|><|im_assistant|>assistant<|im_middle|>"
    )


def test_its_syntax_is_told_by_the_template() -> None:
    support = tool_support_for({"chat_template": TEMPLATE})
    assert (support.syntax, support.writer) == (kimi_k2.SYNTAX, None)


FORM = Grammar("json_schema", '{"type": "integer"}')
ONE = OPEN + call("functions.ls:0", '{"path": "a"}') + CLOSE
OTHER = f"{OPEN}{NOW}{CLOSE}"


@pytest.mark.parametrize("special", [(), TOKENS])
@pytest.mark.parametrize(
    ("mode", "final", "allowed", "refused"),
    [
        ("required", None, [ONE, ONE + OTHER], ["hi", f"hi {ONE}", ONE.replace('"a"', "1")]),
        ("auto", None, ["", "hi", f"hi {ONE} bye"], [f"{OPEN}x", f"{ONE}{OPEN}"]),
        ("auto", FORM, ["12", ONE, ONE + OTHER], ["hi", f"hi {ONE}", f"{ONE}12"]),
    ],
)
def test_grammars(
    special: tuple[str, ...],
    mode: str,
    final: Grammar | None,
    allowed: list[str],
    refused: list[str],
) -> None:
    vocabulary = ByteVocabulary(special)
    frame = AnswerFrame(ThinkingStart.CLOSED, vocabulary.special_tokens, final=final)
    grammar = kimi_k2.SYNTAX.forced_grammar(TOOLS, Choice(mode), frame)
    assert [text for text in allowed if not vocabulary.allows(grammar, text)] == []
    assert [text for text in refused if vocabulary.allows(grammar, text)] == []
