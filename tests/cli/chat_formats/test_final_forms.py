"""Calls beside an answer of a wanted form: one or the other, and nothing else."""

from __future__ import annotations

import json

import pytest

from colibri_cli.chat_formats.base import ThinkingStart
from colibri_cli.chat_formats.tool_formats import (
    dsml,
    glm,
    hermes,
    inkling,
    llama,
    mistral,
    qwen_xml,
)
from colibri_cli.chat_formats.tool_formats.base import AnswerFrame, ToolSyntax
from colibri_protocol.messages import Grammar
from tests.fakes.grammar_texts import ByteVocabulary
from tests.fakes.tool_calls import Choice, tool

TOOLS = (tool("ls", ["path"], path="string"),)
AUTO, REQUIRED = Choice("auto"), Choice("required")
PLAIN = ByteVocabulary()
GLM_TOKENS = ByteVocabulary(
    [
        "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
        "<think>", "</think>",
    ]
)  # fmt: skip
CHANNELS = ByteVocabulary(
    [
        "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_text|>",
        "<|content_thinking|>", "<|message_model|>",
    ]
)  # fmt: skip
HERMES_TOKENS = ByteVocabulary(["<tool_call>", "</tool_call>"])
MISTRAL_TOKENS = ByteVocabulary(["[TOOL_CALLS]", "[ARGS]"])

GLM_LS = "<tool_call>ls<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>"
LS = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'
INKLING_LS = 'ls<|content_invoke_tool_json|>{"name": "ls", "args": {"path": "a"}}<|end_message|>'
MISTRAL_LS = '[TOOL_CALLS] [{"name": "ls", "arguments": {"path": "a"}}]'
NAMED_LS = '[TOOL_CALLS]ls[ARGS]{"path": "a"}'
LLAMA_LS = '{"name": "ls", "parameters": {"path": "a"}}'
QWEN_LS = "<tool_call>\n<function=ls>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>"
DSML_LS = (
    '<M tool_calls>\n<M invoke name="ls">\n<M parameter name="path" string="true">a</M parameter>\n'
    "</M invoke>\n</M tool_calls>"
).replace("M ", "｜DSML｜")  # noqa: RUF001

PERSON = Grammar(
    "json_schema",
    json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.com/person",
            "type": "object",
            "properties": {"name": {"$ref": "#/$defs/name"}},
            "required": ["name"],
            "additionalProperties": False,
            "$defs": {"name": {"type": "string", "maxLength": 3}},
        }
    ),
)
ADA = '{"name": "Ada"}'
NOT_ADA = ["", "Ada", '{"name": "Lovelace"}', '{"name": 1}', "{}", f"{ADA} ", f"Here: {ADA}"]


def check(
    syntax: ToolSyntax,
    choice: Choice,
    vocabulary: ByteVocabulary,
    frame: AnswerFrame,
    texts: tuple[list[str], list[str]],
) -> None:
    """Check what is allowed and what is refused."""
    grammar = syntax.forced_grammar(TOOLS, choice, frame)
    allowed, refused = texts
    assert [text for text in allowed if not vocabulary.allows(grammar, text)] == []
    assert [text for text in refused if vocabulary.allows(grammar, text)] == []


@pytest.mark.parametrize(
    ("syntax", "vocabulary", "call", "between"),
    [
        (glm.SYNTAX, GLM_TOKENS, GLM_LS, "\n"),
        (glm.SYNTAX, PLAIN, GLM_LS, ""),
        (hermes.SYNTAX, PLAIN, LS, "\n"),
        (hermes.SYNTAX, HERMES_TOKENS, LS, ""),
        (mistral.SYNTAX, MISTRAL_TOKENS, NAMED_LS, ""),
        (mistral.SYNTAX, PLAIN, MISTRAL_LS, " "),
        (llama.SYNTAX, PLAIN, LLAMA_LS, "; "),
        (qwen_xml.SYNTAX, PLAIN, QWEN_LS, "\n"),
        (dsml.SYNTAX, PLAIN, DSML_LS, "\n"),
    ],
)
def test_an_answer_is_calls_or_has_the_form(
    syntax: ToolSyntax, vocabulary: ByteVocabulary, call: str, between: str
) -> None:
    two = call + between + call
    refused = [*NOT_ADA, f"{call}{ADA}", f"{ADA}{call}", f"hi {call}", call[:-1]]
    closed, tokens = ThinkingStart.CLOSED, vocabulary.special_tokens
    frame = AnswerFrame(closed, tokens, final=PERSON)
    check(syntax, AUTO, vocabulary, frame, ([ADA, call, two], refused))
    check(syntax, REQUIRED, vocabulary, frame, ([call, two], [ADA]))
    one = AnswerFrame(closed, tokens, parallel=False, final=PERSON)
    check(syntax, AUTO, vocabulary, one, ([ADA, call], [*refused, two]))


@pytest.mark.parametrize(
    ("thinking", "before"),
    [
        (ThinkingStart.OPEN, "so</think>\n"),
        (ThinkingStart.BY_MODEL, "<think>so</think>"),
        (ThinkingStart.BY_MODEL, ""),
    ],
)
def test_reasoning_stays_free(thinking: ThinkingStart, before: str) -> None:
    frame = AnswerFrame(thinking, GLM_TOKENS.special_tokens, final=PERSON)
    allowed = [before + ADA, before + GLM_LS]
    refused = [f"{before}hi", f"{before}hi {ADA}", "so"]
    check(glm.SYNTAX, AUTO, GLM_TOKENS, frame, (allowed, refused))


@pytest.mark.parametrize("syntax", [inkling.SYNTAX, hermes.SYNTAX])
def test_in_channels_the_text_has_the_form(syntax: ToolSyntax) -> None:
    frame = AnswerFrame(ThinkingStart.CHANNELS, CHANNELS.special_tokens, final=PERSON)
    begin, end = "<|content_text|>", "<|end_message|>"
    thought = f"<|content_thinking|>why{end}<|message_model|>"
    call = INKLING_LS if syntax is inkling.SYNTAX else LS
    allowed = [f"{begin}{ADA}{end}", f"{thought}{ADA}{end}", thought + call]
    refused = [f"{begin}{text}{end}" for text in NOT_ADA]
    check(syntax, AUTO, CHANNELS, frame, (allowed, refused))


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("[a-c]{2}/[0-9]+", ["ab/12"], ["ab/", "ab12", "hi"]),
        (r"a\/b\\/", ["a/b\\/"], ["a/b/"]),
        ("x\ny", ["x\ny"], ["xy", "x y"]),
    ],
)
def test_an_answer_may_have_to_match_a_regex(
    pattern: str, allowed: list[str], refused: list[str]
) -> None:
    frame = AnswerFrame(ThinkingStart.CLOSED, final=Grammar("regex", pattern))
    check(hermes.SYNTAX, AUTO, PLAIN, frame, ([*allowed, LS], refused))
