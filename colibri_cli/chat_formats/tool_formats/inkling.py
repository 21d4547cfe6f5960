"""Inkling's own form, of checkpoints with a template: a part of kind `invoke_tool_json`.

`name<|content_invoke_tool_json|>{"name": …, "args": {…}}<|end_message|>`. The reasoning splitter
leaves the marker in and takes the name before it away, because the call repeats it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.call_grammar import chosen_tools, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, limited
from colibri_cli.chat_formats.json_box import BoxForm, JsonBox
from colibri_cli.chat_formats.lark import LarkGrammar
from colibri_cli.chat_formats.reasoning import CALL_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolParser,
        ToolSyntax,
    )

_FORM: Final = BoxForm()
_END: Final = "<|end_message|>"
_MODEL: Final = "<|message_model|>"


class InklingSyntax:
    """The syntax."""

    name = "inkling"
    trigger = CALL_CHANNEL
    kept_markers = (CALL_CHANNEL,)

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return CALL_CHANNEL in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        parser = CallParser(CALL_CHANNEL, lambda _: JsonBox(_FORM, schemas), schemas)
        return limited(parser, parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; it is a sequence of parts."""
        grammar = LarkGrammar(frame.special_tokens)
        calls = [_call(grammar, tool) for tool in chosen_tools(tools, choice)]
        call = grammar.rule(" | ".join(calls))
        body, model = grammar.until(_END), grammar.exact(_MODEL)
        thought = f"{grammar.exact('<|content_thinking|>')} {body}"
        begin = f"({grammar.exact('<|content_text|>')})?"
        more = f"({model} {call})*" if frame.parallel else ""
        if choice.mode == "auto" and frame.final is not None:
            last = f"({call} {more} | {begin} {grammar.form(frame.final)} {grammar.exact(_END)})"
        elif choice.mode == "auto":
            last = f"({call} {more} | {begin} {body} ({model} {call} {more})?)"
        else:
            last = f"{call} {more}"
        return grammar.text(f"({thought} {model})* {last}")


def _call(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    channel = grammar.named("", tool.name, CALL_CHANNEL)
    head = grammar.named('{"name": ', json.dumps(tool.name), ', "args": ')
    return f"{channel} {head} {json_arguments(grammar, tool)} {grammar.exact('}' + _END)}"


SYNTAX: Final[ToolSyntax] = InklingSyntax()
