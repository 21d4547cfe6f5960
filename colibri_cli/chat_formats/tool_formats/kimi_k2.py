"""Kimi K2: a section of calls, each `<|tool_call_begin|>functions.NAME:INDEX`, then its arguments.

The arguments are a JSON object between `<|tool_call_argument_begin|>` and `<|tool_call_end|>`. The
index counts the calls of the conversation and is not used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, limited
from colibri_cli.chat_formats.call_section import CallSection, SectionForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.lark import LarkGrammar
    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolParser,
        ToolSyntax,
    )

_OPEN: Final = "<|tool_calls_section_begin|>"
_CLOSE: Final = "<|tool_calls_section_end|>"
_CALL: Final = "<|tool_call_begin|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_ID: Final = re.compile(r"\s*(?:functions\.)?([A-Za-z0-9_.\-]+?)(?::[0-9]+)?\s*")


class KimiK2Syntax:
    """The syntax."""

    name = "kimi_k2"
    trigger = _OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return _ARGUMENTS in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        return limited(
            CallParser(_OPEN, lambda _: CallSection(_FORM, schemas), schemas), parallel=parallel
        )

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; one section for each call."""
        return forced_calls(CallShape(_OPEN, _call_body), tools, choice, frame)


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named(f"{_CALL}functions.", tool.name, ":")
    index = grammar.terminal("/[0-9]{1,4}/")
    end = grammar.exact(_CALL_END + _CLOSE)
    return f"{head} {index} {grammar.exact(_ARGUMENTS)} {json_arguments(grammar, tool)} {end}"


def _read_head(text: str) -> tuple[int, str | None]:
    head, marker, _ = text.partition(_ARGUMENTS)
    if not marker:
        return 0, None
    found = _ID.fullmatch(head)
    return len(head) + len(marker), None if found is None else found[1]


_FORM: Final = SectionForm(_CALL, (_CALL_END,), _CLOSE, _read_head)
SYNTAX: Final[ToolSyntax] = KimiK2Syntax()
