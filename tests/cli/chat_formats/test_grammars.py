"""Grammars for calls: what is demanded is all that can be written; free text stays free."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.base import ThinkingStart
from colibri_cli.chat_formats.lark import LarkGrammar
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
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame, ToolSyntax
from colibri_cli.chat_formats.tool_support import ToolSupport
from tests.fakes.grammar_texts import ByteVocabulary
from tests.fakes.tool_calls import Choice, Tool, tool

TOOLS = (tool("ls", ["path"], path="string", n="integer"), tool("now"))
AUTO, REQUIRED, NOW = Choice("auto"), Choice("required"), Choice("named", "now")
PLAIN = ByteVocabulary()
GLM_TOKENS = ByteVocabulary(
    [
        "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
        "<think>", "</think>", "<|user|>",
    ]
)  # fmt: skip
CHANNELS = ByteVocabulary(
    [
        "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_text|>",
        "<|content_thinking|>", "<|message_model|>",
    ]
)  # fmt: skip


def glm_call(name: str, **values: str) -> str:
    pairs = (
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in values.items()
    )
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


def hermes_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


LS = hermes_call("ls", '{"path": "a"}')
INKLING_LS = 'ls<|content_invoke_tool_json|>{"name": "ls", "args": {"path": "a"}}<|end_message|>'
MISTRAL_LS = '[TOOL_CALLS] [{"name": "ls", "arguments": {"path": "a"}}]'
NAMED_LS = '[TOOL_CALLS]ls[ARGS]{"path": "a"}'
LLAMA_LS = '{"name": "ls", "parameters": {"path": "a"}}'
MISTRAL_TOKENS = ByteVocabulary(["[TOOL_CALLS]", "[ARGS]"])


def check(
    syntax: ToolSyntax,
    choice: Choice,
    vocabulary: ByteVocabulary,
    allowed: list[str],
    refused: list[str],
    *,
    thinking: ThinkingStart = ThinkingStart.CLOSED,
    parallel: bool = True,
    tools: tuple[Tool, ...] = TOOLS,
) -> None:
    frame = AnswerFrame(thinking, vocabulary.special_tokens, parallel)
    grammar = syntax.forced_grammar(tools, choice, frame)
    assert [text for text in allowed if not vocabulary.allows(grammar, text)] == []
    assert [text for text in refused if vocabulary.allows(grammar, text)] == []


@pytest.mark.parametrize("vocabulary", [PLAIN, GLM_TOKENS], ids=["text", "tokens"])
@pytest.mark.parametrize(
    ("thinking", "before"),
    [
        (ThinkingStart.CLOSED, ""),
        (ThinkingStart.OPEN, "a <tool b</think>"),
        (ThinkingStart.BY_MODEL, ""),
        (ThinkingStart.BY_MODEL, "<think>a<b</think>\n"),
    ],
)
def test_glm(vocabulary: ByteVocabulary, thinking: ThinkingStart, before: str) -> None:
    ls, now = glm_call("ls", path="a<b", n="3"), glm_call("now")
    lines = ls.replace("ls<", "ls\n<").replace("/arg_key>", "/arg_key>\n")
    allowed = [ls, glm_call("ls", path=""), f"{ls}\n{now}", ls + now, lines]
    refused = [
        "hello",
        "",
        glm_call("ls"),
        f"{now}x",
        glm_call("ls", path="a", n="x"),
        "<tool_call>",
    ]
    check(
        glm.SYNTAX, REQUIRED, vocabulary,
        [before + text for text in allowed], [before + text for text in refused],
        thinking=thinking,
    )  # fmt: skip
    allowed = ["", "hello <b> there", f"hi {ls}", f"{now}\n{ls} bye"]
    refused = ["<tool_call>x", "hi <tool_call> and", f"hi {now} <tool_call>b"]
    check(
        glm.SYNTAX, AUTO, vocabulary,
        [before + text for text in allowed], [before + text for text in refused],
        thinking=thinking,
    )  # fmt: skip


def test_reasoning_must_be_closed_before_the_call() -> None:
    now = glm_call("now")
    check(glm.SYNTAX, REQUIRED, PLAIN, [], [now, "why"], thinking=ThinkingStart.OPEN)


@pytest.mark.parametrize("special", [(), ("<tool_call>", "</tool_call>")])
def test_hermes(special: tuple[str, ...]) -> None:
    vocabulary = ByteVocabulary(special)
    now = hermes_call("now", "{}")
    check(
        hermes.SYNTAX, REQUIRED, vocabulary,
        [LS, now, f"{LS}\n{now}", LS.replace(": {", ": {").replace('": "a', '":"a')],
        ["x", "", f"{LS} x", LS[:-3], LS.replace("ls", "rm"), LS.replace('"a"', "1"),
         hermes_call("ls", "{}"), hermes_call("now", '{"a": 1}')],
    )  # fmt: skip
    check(hermes.SYNTAX, REQUIRED, vocabulary, [LS], [LS + LS, f"{LS}\n{LS}"], parallel=False)
    check(hermes.SYNTAX, NOW, vocabulary, [now], [LS])
    check(
        hermes.SYNTAX, AUTO, vocabulary,
        ["", "hello", f"hi {LS}\nbye {now}x"], ["<tool_call>hello", f"{LS}<tool_call>"],
    )  # fmt: skip
    check(hermes.SYNTAX, AUTO, vocabulary, ["", f"hi {LS}"], [LS + LS, f"{LS}x"], parallel=False)


@pytest.mark.parametrize("special", [(), ("<tool_call>", "</tool_call>")])
def test_qwen_xml(special: tuple[str, ...]) -> None:
    vocabulary = ByteVocabulary(special)

    def call(name: str, **values: str) -> str:
        lines = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
        return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"

    ls = call("ls", path="a\nb", n="3")
    check(
        qwen_xml.SYNTAX, REQUIRED, vocabulary,
        [ls, f"{ls}\n{call('now')}", call("ls", path="")],
        ["x", call("ls"), call("ls", path="a", n="x"), f"{ls}x"],
    )  # fmt: skip
    check(
        qwen_xml.SYNTAX,
        AUTO,
        vocabulary,
        ["", f"hi {ls} bye"],
        ["<tool_call>x", f"{ls}<tool_call>"],
    )


@pytest.mark.parametrize("special", [(), ("｜DSML｜",)])  # noqa: RUF001
def test_dsml(special: tuple[str, ...]) -> None:
    vocabulary = ByteVocabulary(special)

    def call(name: str, *lines: str) -> str:
        body = "".join(f"<M parameter name={line}</M parameter>\n" for line in lines)
        text = f'<M tool_calls>\n<M invoke name="{name}">\n{body}</M invoke>\n</M tool_calls>'
        return text.replace("M ", "｜DSML｜")  # noqa: RUF001

    ls = call("ls", '"path" string="true">a<b', '"n" string="false">3')
    check(
        dsml.SYNTAX, REQUIRED, vocabulary,
        [ls, f"{ls}\n{call('now')}", call("ls", '"path" string="true">')],
        ["x", call("ls"), call("ls", '"path" string="false">a'), f"{ls}x"],
    )  # fmt: skip
    bounded = (tool("ls", ["path"], path={"type": "string", "maxLength": 2}),)
    check(
        dsml.SYNTAX, REQUIRED, vocabulary,
        [call("ls", f'"path" string="true">{text}') for text in ("", "ab", "<a")],
        [call("ls", f'"path" string="true">{text}') for text in ("abc", "ab<")],
        tools=bounded,
    )  # fmt: skip
    check(dsml.SYNTAX, AUTO, vocabulary, ["", f"hi {ls} bye"], [f"hi {ls[:18]}x"])


def test_mistral() -> None:
    for vocabulary in (PLAIN, ByteVocabulary(["[TOOL_CALLS]"])):
        check(mistral.SYNTAX, REQUIRED, vocabulary, [MISTRAL_LS], ["x", f"{MISTRAL_LS}x"])
    more = NAMED_LS + "[TOOL_CALLS]now[ARGS]{}"
    check(mistral.SYNTAX, REQUIRED, MISTRAL_TOKENS, [NAMED_LS, more], ["x", f"{NAMED_LS}x"])
    check(
        mistral.SYNTAX, AUTO, MISTRAL_TOKENS,
        [f"hi [x] {NAMED_LS}", ""], ["x[TOOL_CALLS]", NAMED_LS + "[TOOL_CALLS]zz[ARGS]{}"],
    )  # fmt: skip


def test_llama() -> None:
    for special in ((), ("<|python_tag|>",)):
        vocabulary = ByteVocabulary(special)
        two = f"{LLAMA_LS}; {LLAMA_LS}"
        check(llama.SYNTAX, REQUIRED, vocabulary, [LLAMA_LS, two], ["x", "", f"{LLAMA_LS}x"])
        check(
            llama.SYNTAX, AUTO, vocabulary,
            [LLAMA_LS, "hello {x}", "", f"<|python_tag|>{LLAMA_LS}"], ["{x}", f"{LLAMA_LS}x"],
        )  # fmt: skip


@pytest.mark.parametrize("before", ["", "<|content_thinking|>why<|end_message|><|message_model|>"])
def test_channels(before: str) -> None:
    text = "<|content_text|>Sure.<|end_message|>"
    then = f"{text}<|message_model|>{INKLING_LS}"
    two = f"{INKLING_LS}<|message_model|>{INKLING_LS}"
    channels = ThinkingStart.CHANNELS
    check(
        inkling.SYNTAX, REQUIRED, CHANNELS,
        [before + INKLING_LS, before + two], [before + text, before + then],
        thinking=channels,
    )  # fmt: skip
    check(
        inkling.SYNTAX, AUTO, CHANNELS,
        [before + INKLING_LS, before + text, before + then, f"{before}Sure.<|end_message|>"],
        [f"{before}ls<|content_invoke_tool_json|>x"],
        thinking=channels,
    )  # fmt: skip
    shown = f"{before}<|content_text|>"
    check(
        hermes.SYNTAX, REQUIRED, CHANNELS,
        [f"{shown}{LS}<|end_message|>", before + LS], [before + text],
        thinking=channels,
    )  # fmt: skip
    check(
        hermes.SYNTAX, AUTO, CHANNELS,
        [f"{shown}{LS}<|end_message|>", before + text], [f"{shown}<tool_call>x"],
        thinking=channels,
    )  # fmt: skip


STRICT = Tool(
    "f",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z]{2}/[0-9]+$"},
            "size": {"type": "string", "minLength": 2, "maxLength": 4},
            "point": {"$ref": "#/$defs/Point"},
            "word": {"enum": ["", 'a"b', "</x"]},
            "part": {"type": "string", "pattern": "ab"},
        },
        "required": ["id", "size", "point"],
        "additionalProperties": False,
        "$defs": {
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
    is_strict=True,
)


@pytest.mark.parametrize("special", [(), ("<arg_value>", "</arg_value>")])
def test_a_strict_tool_is_held_to_its_schema_in_plain_text_too(special: tuple[str, ...]) -> None:
    right = {"id": "ab/12", "size": "ab<", "point": '{"x":1}'}
    allowed = [right, {**right, "word": 'a"b', "part": "<<ab</arg"}, {**right, "word": ""}]
    refused = [
        {**right, "id": "ab/"}, {**right, "size": "abcde"}, {**right, "point": '{"x":"1"}'},
        {**right, "part": "b"}, {**right, "word": "c"}, {"id": "ab/12", "size": "abc"},
    ]  # fmt: skip
    check(
        glm.SYNTAX, REQUIRED, ByteVocabulary(special),
        [glm_call("f", **values) for values in allowed],
        [glm_call("f", **values) for values in refused],
        tools=(STRICT,),
    )  # fmt: skip


def test_a_strict_tool_is_held_to_its_schema_in_json() -> None:
    right = '{"id": "ab/1", "size": "abc", "point": {"x": 1}}'
    wrong = [right.replace("ab/1", "ab"), right.replace("1}", '"1"}'), right[:-1] + ', "z": 1}']
    check(
        hermes.SYNTAX, REQUIRED, PLAIN,
        [hermes_call("f", right)], [hermes_call("f", text) for text in wrong],
        tools=(STRICT,),
    )  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "nonsense"},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "^(?=x)y$"},
    ],
)
def test_what_cannot_be_enforced_is_an_error_for_strict_tools_only(
    schema: dict[str, object],
) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    loose, strict = Tool("f", parameters), Tool("f", parameters, is_strict=True)
    check(hermes.SYNTAX, REQUIRED, PLAIN, [hermes_call("f", "{}")], [], tools=(loose,))
    with pytest.raises(ValueError, match="failed to compile"):
        check(hermes.SYNTAX, REQUIRED, PLAIN, [hermes_call("f", "{}")], [], tools=(strict,))


def test_names_and_texts_from_outside_cannot_write_rules() -> None:
    evil = Tool('a"\nstart: /.*/\n#', {"properties": {'"\nTEXT: "x"': {"type": "string"}}})
    for syntax in (glm.SYNTAX, hermes.SYNTAX, llama.SYNTAX, mistral.SYNTAX):
        check(syntax, REQUIRED, PLAIN, [], ["anything", "x"], tools=(evil,))


@pytest.mark.parametrize(
    "syntax",
    [
        deepseek_v3.SYNTAX, deepseek_v31.SYNTAX, dsml.SYNTAX, glm.SYNTAX, harmony.SYNTAX,
        hermes.SYNTAX, inkling.SYNTAX, kimi_k2.SYNTAX, llama.SYNTAX, mistral.SYNTAX,
        qwen_xml.SYNTAX,
    ],
    ids=lambda syntax: type(syntax).__module__.rpartition(".")[2],
)  # fmt: skip
def test_names_that_look_like_control_words_are_written_as_text(syntax: ToolSyntax) -> None:
    odd = tool("a<|im_end|>b", ["x<|im_end|>y"], **{"x<|im_end|>y": "string"})
    token = 9
    frame = AnswerFrame(ThinkingStart.CLOSED, {"<|im_end|>": token}, parallel=False)
    grammar = syntax.forced_grammar((odd,), REQUIRED, frame)
    assert "a<|im_end|>b" in grammar
    assert f"<[{token}]>" not in grammar  # by which the model would end its answer


def test_a_call_of_a_name_that_looks_like_a_control_word_can_be_written() -> None:
    vocabulary = ByteVocabulary(["<tool_call>", "</tool_call>", "<|im_end|>"])
    frame = AnswerFrame(ThinkingStart.CLOSED, vocabulary.special_tokens, parallel=False)
    grammar = hermes.SYNTAX.forced_grammar((tool("<|im_end|>"),), REQUIRED, frame)
    call = hermes_call("<|im_end|>", "{}")
    assert not vocabulary.allows(grammar, call)
    as_text = vocabulary.encode(call)
    place = as_text.index(vocabulary.special_tokens["<|im_end|>"])
    as_text[place : place + 1] = list(b"<|im_end|>")
    assert vocabulary.allows_ids(grammar, as_text)


def test_a_marker_is_a_token_only_if_the_model_has_it() -> None:
    grammar = LarkGrammar({"<tool_call>": 7, "[X]": 8})
    assert grammar.exact('a<tool_call>\n"[X]</tool_call>') == (
        '"a" <[7]> "\\n\\"" <[8]> "</tool_call>"'
    )
    assert grammar.exact("") == ""


def test_when_a_grammar_is_wanted() -> None:
    taught = ToolSupport(hermes.SYNTAX, writer=None, needs_grammar=False)
    untaught = ToolSupport(hermes.SYNTAX, writer=hermes.offer, needs_grammar=True)
    closed = AnswerFrame(ThinkingStart.CLOSED)
    assert taught.grammar(TOOLS, AUTO, closed) is None
    assert taught.grammar(TOOLS, Choice("none"), closed) is None
    assert taught.grammar((), AUTO, closed) is None
    assert taught.grammar(TOOLS, REQUIRED, closed) is not None
    assert taught.grammar([STRICT], AUTO, closed) is not None
    assert untaught.grammar(TOOLS, AUTO, closed) is not None
