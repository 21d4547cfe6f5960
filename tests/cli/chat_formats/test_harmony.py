"""gpt-oss: messages with channels, calls, the prompt of its template, grammars."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation, ThinkingStart, ToolCall
from colibri_cli.chat_formats.call_history import one_call_each
from colibri_cli.chat_formats.harmony import CALL_HEAD
from colibri_cli.chat_formats.jinja import JinjaChatFormat
from colibri_cli.chat_formats.reasoning import splitter_for
from colibri_cli.chat_formats.registry import tool_support_for
from colibri_cli.chat_formats.template_traits import thinking_variables, traits_of
from colibri_cli.chat_formats.tool_formats import harmony, hermes
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame, ToolSyntax
from colibri_protocol.messages import Grammar, SegmentKind
from tests.fakes.grammar_texts import ByteVocabulary
from tests.fakes.tool_calls import Choice, answer_of, parsed, tool

START, END, RETURN, CALL = "<|start|>", "<|end|>", "<|return|>", "<|call|>"
ANALYSIS = "<|channel|>analysis<|message|>"
COMMENTARY = "<|channel|>commentary<|message|>"
FINAL = "<|channel|>final<|message|>"
THEN = f"{END}{START}assistant"
LS = "<|channel|>commentary to=functions.ls <|constrain|>json<|message|>"
TALK = f"{COMMENTARY}I look.{THEN}"
TOOLS = (tool("ls", ["path"], path="string"), tool("now"))
# What the published template does with roles, calls and reasoning, in fewer words.
TEMPLATE = (
    "{{ '<|start|>system<|message|>Reasoning: ' + (reasoning_effort | default('medium'))"
    " + '<|end|>' }}"
    "{% if tools %}<|start|>developer<|message|>namespace functions"
    "{% for t in tools %} {{ t.function.name }}{% endfor %}<|end|>{% endif %}"
    "{% set last = namespace(name=none) %}{% for m in messages %}"
    "{% if m.role == 'assistant' and m.tool_calls %}{% set call = m.tool_calls[0].function %}"
    "{% if m.content and m.thinking %}{{ raise_exception('both') }}"
    "{% elif m.content or m.thinking %}"
    "<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.content or m.thinking }}<|end|>{% endif %}"
    "{{ '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}"
    "{{ call.arguments | tojson }}<|call|>{% set last.name = call.name %}"
    "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
    "{% elif m.role == 'tool' %}{% if not last.name %}{{ raise_exception('no call') }}{% endif %}"
    "{{ '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' }}"
    "{{ m.content | tojson }}<|end|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
HI = ChatMessage("user", "Hi<|end|>")
VOCABULARY = ByteVocabulary(
    [START, END, RETURN, CALL, "<|channel|>", "<|message|>", "<|constrain|>"]
)


def split(pieces: list[str], *, keeps_calls: bool = True) -> tuple[str, str]:
    splitter = splitter_for(ThinkingStart.HARMONY, (CALL_HEAD,) if keeps_calls else ())
    parts = [splitter.feed(piece) for piece in pieces]
    parts.append(splitter.flush())
    return "".join(p.reasoning for p in parts), "".join(p.answer for p in parts)


# ---- channels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{FINAL}Hello.{RETURN}", ("", "Hello.")),
        (f"{ANALYSIS}why{THEN}{FINAL}Hello.", ("why", "Hello.")),
        (f"{ANALYSIS}a{THEN}{ANALYSIS}b{THEN}{FINAL}c", ("ab", "c")),
        (f"{ANALYSIS}never ends", ("never ends", "")),
        (f"{COMMENTARY}Let me look.{THEN}{FINAL}Done.", ("", "Let me look.\n\nDone.")),
        (f"<|channel|>final <|constrain|>json<|message|>{{}}{RETURN}", ("", "{}")),
        (f"{ANALYSIS}a<b{THEN}{FINAL}<i> <|x|> <|chan", ("a<b", "<i> <|x|> <|chan")),
        ("just talk", ("", "just talk")),
        ("talk " * 200, ("", "talk " * 200)),
        (f"{ANALYSIS}a{END}and talk", ("a", "and talk")),
        ("<|channel|>analysis", ("", "")),
        ("", ("", "")),
    ],
)
def test_each_message_goes_to_its_side(text: str, expected: tuple[str, str]) -> None:
    assert split([text]) == expected
    assert split([*text]) == expected


def test_while_a_header_is_read_nothing_is_thought() -> None:
    splitter = splitter_for(ThinkingStart.HARMONY)
    states = []
    for piece in ("<|channel|>", "analysis", "<|message|>", "why", END, f"{START}assistant"):
        splitter.feed(piece)
        states.append(splitter.is_thinking)
    assert states == [False, False, True, True, False, False]
    assert splitter.held == "assistant"


# ---- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        LS,
        "<|channel|>commentary to=functions.ls<|message|>",
        "<|channel|>commentary to=functions.ls json<|message|>",
        " to=functions.ls<|channel|>commentary json<|message|>",
        " to=functions.ls<|channel|>analysis <|constrain|>json<|message|>",
    ],
)
@pytest.mark.parametrize("end", [CALL, END, ""])
def test_a_call_is_found_in_any_order_of_its_header(head: str, end: str) -> None:
    text = f'{ANALYSIS}why{THEN}{head}{{"path": "a<|b"}}{end}'
    for pieces in ([text], [*text]):
        reasoning, answer = split(pieces)
        assert reasoning == "why"
        found = answer_of(parsed(harmony.SYNTAX.parser(TOOLS), [answer]))
        assert found.values() == [("ls", {"path": "a<|b"})]
        assert found.content == ""


@pytest.mark.parametrize(
    ("text", "was_cut", "calls", "content"),
    [
        (
            f"{COMMENTARY}I look.{THEN}{LS}" + '{"path":"a"}',
            False,
            [("ls", {"path": "a"})],
            "I look.",
        ),
        (LS + '{"path":"a', True, [], ""),
        (LS + '{"path":"a', False, [], LS + '{"path":"a'),
        (LS, True, [], ""),
        (LS, False, [], LS),
        (LS.replace("ls", "now"), False, [("now", {})], ""),
        (LS.replace("ls", "now"), True, [], ""),
        (LS + "[1]", False, [], LS + "[1]"),
        (LS.replace("ls", "rm") + "{}", False, [("rm", {})], ""),
        (f"{FINAL}to=functions.ls is a name", False, [], "to=functions.ls is a name"),
    ],
)
def test_calls_that_end_early_and_text_beside_them(
    text: str, was_cut: bool, calls: list[object], content: str
) -> None:
    _, answer = split([*text])
    for pieces in ([answer], [*answer]):
        events = parsed(harmony.SYNTAX.parser(TOOLS), pieces, was_cut=was_cut)
        found = answer_of(events)
        assert found.values() == calls
        assert found.content == content.replace(" <|constrain|>json", "")


def test_without_tools_a_call_is_text() -> None:
    assert split([LS + "{}"], keeps_calls=False) == ("", "{}")


# ---- prompts ----------------------------------------------------------------------------------


def render(*messages: ChatMessage, **changes: object) -> str:
    conversation = Conversation(messages, **changes)  # type: ignore[arg-type]  # a test's shorthand
    return JinjaChatFormat(TEMPLATE, VOCABULARY.special_tokens, {}).render(conversation).text


def test_the_prompt_ends_in_a_header_and_text_stays_text() -> None:
    prompt = JinjaChatFormat(TEMPLATE, VOCABULARY.special_tokens, {}).render(Conversation((HI,)))
    assert prompt.text == (
        f"{START}system<|message|>Reasoning: medium{END}{START}user<|message|>Hi{END}{END}"
        f"{START}assistant"
    )
    assert prompt.thinking_start is ThinkingStart.HARMONY
    texts = [part.text for part in prompt.segments if part.kind is SegmentKind.TEXT]
    assert texts == ["Hi<|end|>"]


def test_an_answer_can_be_continued() -> None:
    chat_format = JinjaChatFormat(TEMPLATE, VOCABULARY.special_tokens, {})
    messages = (HI, ChatMessage("assistant", "Once upon"))
    prompt = chat_format.render(Conversation(messages, continues_last=True))
    assert prompt.text.endswith(f"{START}assistant{FINAL}Once upon")
    assert prompt.thinking_start is ThinkingStart.CLOSED


@pytest.mark.parametrize(
    ("thinking", "effort", "level"),
    [
        (None, None, None), (False, None, "low"), (True, None, None), (True, "minimal", "low"),
        (True, "medium", "medium"), (True, "xhigh", "high"), (None, "none", "low"),
    ],
)  # fmt: skip
def test_it_always_reasons_the_level_says_how_much(
    thinking: bool | None, effort: str | None, level: str | None
) -> None:
    conversation = Conversation((HI,), thinking=thinking, effort=effort)
    variables = thinking_variables(traits_of(TEMPLATE), conversation)
    assert variables.get("reasoning_effort") == level


def test_calls_and_results_are_written_one_after_the_other() -> None:
    calls = (ToolCall("c1", "ls", {"path": "é"}), ToolCall("c2", "now", {}))
    text = render(
        HI,
        ChatMessage("assistant", "I look.", reasoning="why ", tool_calls=calls),
        ChatMessage("tool", '"12"', tool_call_id="c2"),
        ChatMessage("tool", "a\nb", tool_call_id="c1"),
    )
    head = "<|channel|>commentary json<|message|>"
    result = " to=assistant<|channel|>commentary<|message|>"
    assert text.split(f"Hi{END}{END}")[1] == (
        f"{START}assistant{ANALYSIS}why I look.{END}"
        f'{START}assistant to=functions.ls{head}{{"path": "é"}}{CALL}'
        f'{START}functions.ls{result}"a\\nb"{END}'
        f"{START}assistant to=functions.now{head}{{}}{CALL}"
        f'{START}functions.now{result}"\\"12\\""{END}'
        f"{START}assistant"
    )


def test_results_without_a_call_of_theirs_keep_their_order() -> None:
    calls = (ToolCall("c1", "a", {}), ToolCall("c2", "b", {}))
    message = ChatMessage("assistant", "", tool_calls=calls)
    results = [ChatMessage("tool", text) for text in "123"]
    turns = one_call_each([message, *results])
    assert [turn.content or turn.tool_calls[0].name for turn in turns] == ["a", "1", "b", "2", "3"]
    assert one_call_each([message]) == one_call_each([message, *[]])
    assert one_call_each([HI]) == (HI,)


def test_its_syntax_is_told_by_the_template() -> None:
    support = tool_support_for({"chat_template": TEMPLATE})
    assert support.syntax is harmony.SYNTAX
    assert support.writer is None
    assert not support.needs_grammar


# ---- grammars ---------------------------------------------------------------------------------

AUTO, REQUIRED, NOW = Choice("auto"), Choice("required"), Choice("named", "now")
CALL_LS = LS + '{"path": "a"}'
CALL_NOW = "<|channel|>commentary to=functions.now json<|message|>{}"
HERMES_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
THOUGHT = f"{ANALYSIS}why <b>{THEN}"
FORM = Grammar("json_schema", '{"type": "integer"}')


@pytest.mark.parametrize(
    ("syntax", "choice", "final", "allowed", "refused"),
    [
        (
            harmony.SYNTAX, AUTO, None,
            [f"{FINAL}hi", FINAL, CALL_LS, THOUGHT + CALL_LS, f"{TALK}{CALL_NOW}",
             f"{THOUGHT}{THOUGHT}{FINAL}x"],
            ["hi", "", LS, LS + '{"path": 1}', THOUGHT, CALL_LS + CALL_NOW,
             f"{FINAL}x{THEN}{FINAL}y"],
        ),
        (
            harmony.SYNTAX, REQUIRED, None,
            [CALL_LS, THOUGHT + CALL_NOW], [f"{FINAL}hi", THOUGHT + FINAL, "hi"],
        ),
        (harmony.SYNTAX, NOW, None, [THOUGHT + CALL_NOW], [CALL_LS]),
        (
            harmony.SYNTAX, AUTO, FORM,
            [f"{FINAL}12", f"{THOUGHT}<|channel|>final <|constrain|>json<|message|>12", CALL_LS],
            [f"{FINAL}x", "12", f"{COMMENTARY}12"],
        ),
        (harmony.SYNTAX, REQUIRED, FORM, [CALL_LS], [f"{FINAL}12"]),
        (
            hermes.SYNTAX, AUTO, FORM,
            [f"{FINAL}12", f"{THOUGHT}{FINAL}{HERMES_NOW}"],
            ["12", f"{FINAL}x"],
        ),
    ],
)  # fmt: skip
def test_grammars_are_sequences_of_messages(
    syntax: ToolSyntax,
    choice: Choice,
    final: Grammar | None,
    allowed: list[str],
    refused: list[str],
) -> None:
    frame = AnswerFrame(ThinkingStart.HARMONY, VOCABULARY.special_tokens, final=final)
    grammar = syntax.forced_grammar(TOOLS, choice, frame)
    assert [text for text in allowed if not VOCABULARY.allows(grammar, text)] == []
    assert [text for text in refused if VOCABULARY.allows(grammar, text)] == []
