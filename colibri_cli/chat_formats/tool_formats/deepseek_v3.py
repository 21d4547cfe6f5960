"""DeepSeek V3 and R1: a section of calls, each `function`, its name, and its arguments in a fence.

Later versions write the name first and no fence: `deepseek_v31`.
"""

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

_JSON_FENCE: Final = f"\n{marks.FENCE}json\n"
_END: Final = f"\n{marks.FENCE}{marks.CALL_END}{marks.CLOSE}"


class DeepseekV3Syntax:
    """The syntax."""

    name = "deepseek_v3"
    trigger = marks.OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return marks.SEPARATOR in template and f"{marks.FENCE}json" in template

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
    head = f"{marks.OPEN}{marks.CALL}function{marks.SEPARATOR}tool name"
    return marks.declared(conversation, f"{head}{_JSON_FENCE}arguments as JSON{_END}")


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named(f"{marks.CALL}function{marks.SEPARATOR}", tool.name, _JSON_FENCE)
    return f"{head} {json_arguments(grammar, tool)} {grammar.exact(_END)}"


SYNTAX: Final[ToolSyntax] = DeepseekV3Syntax()
