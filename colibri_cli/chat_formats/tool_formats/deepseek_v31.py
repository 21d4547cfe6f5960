"""DeepSeek V3.1: a section of calls, each its name, a separator and its arguments as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats import deepseek_calls as marks
from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, json_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.chat_formats.lark import LarkGrammar
    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolParser,
        ToolSyntax,
    )

_END: Final = marks.CALL_END + marks.CLOSE


class DeepseekV31Syntax:
    """The syntax."""

    name = "deepseek_v31"
    trigger = marks.OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return marks.SEPARATOR in template and f"{marks.FENCE}json" not in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        return marks.parser_of(tools, parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; one section for each call."""
        return forced_calls(CallShape(marks.OPEN, _call_body), tools, choice, frame)


def declare(conversation: Conversation) -> Conversation:
    """Return the conversation with its tools in the system message."""
    head = f"{marks.OPEN}{marks.CALL}tool name{marks.SEPARATOR}"
    return marks.declared(conversation, f"{head}arguments as JSON{_END}")


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named(marks.CALL, tool.name, marks.SEPARATOR)
    return f"{head} {json_arguments(grammar, tool)} {grammar.exact(_END)}"


SYNTAX: Final[ToolSyntax] = DeepseekV31Syntax()
