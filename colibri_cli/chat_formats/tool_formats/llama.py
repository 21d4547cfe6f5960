"""Llama 3: `{"name": …, "parameters": {…}}` as the whole answer, or after `<|python_tag|>`.

Without the marker an answer in JSON is a call only if it is one of a declared function, so that
JSON answers stay answers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.call_grammar import (
    DEFINITIONS,
    arguments_schema,
    chosen_tools,
    json_arguments,
)
from colibri_cli.chat_formats.call_parser import CallParser, limited
from colibri_cli.chat_formats.json_box import BoxForm, JsonBox
from colibri_cli.chat_formats.lark import LarkGrammar, with_reasoning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolParser,
        ToolSyntax,
    )

_TAG: Final = "<|python_tag|>"
_MARKED: Final = BoxForm(separators=";,")
_BARE: Final = BoxForm(separators=";,", is_bare=True)


class LlamaSyntax:
    """The syntax."""

    name = "llama"
    trigger = _TAG
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return _TAG in template or ('"parameters": ' in template and "<|eot_id|>" in template)

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}

        def box(is_marked: bool) -> JsonBox:
            return JsonBox(_MARKED if is_marked else _BARE, schemas)

        return limited(CallParser(_TAG, box, schemas, opens_answer="{"), parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; a free answer never begins with `{`."""
        grammar = LarkGrammar(frame.special_tokens)
        # Beside a JSON answer the opening brace must be read alike in both.
        write = _call if frame.final is None else _call_in_json
        calls = [write(grammar, tool) for tool in chosen_tools(tools, choice)]
        call = grammar.rule(" | ".join(calls))
        answer = f'{call} ("; " {call})*' if frame.parallel else call
        if choice.mode == "auto":
            if frame.final is None:
                other = grammar.terminal(r"/([^{\s](?s:.*))?/")
            else:
                other = grammar.form(frame.final)
            marked = f"{grammar.exact(_TAG)} {answer}"
            answer = f"({other} | {answer} | {marked})"
        return grammar.text(with_reasoning(grammar, frame.thinking, answer))


def _call(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named('{"name": ', json.dumps(tool.name), ', "parameters": ')
    return f"{head} {json_arguments(grammar, tool)} {grammar.exact('}')}"


def _call_in_json(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    arguments = arguments_schema(tool)
    schema = {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "parameters": arguments},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }
    # references lead from the root of the whole
    definitions = {key: arguments[key] for key in DEFINITIONS if key in arguments}
    return grammar.json(schema | definitions, is_strict=tool.is_strict)


SYNTAX: Final[ToolSyntax] = LlamaSyntax()
