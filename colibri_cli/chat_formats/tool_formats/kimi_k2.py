"""Kimi K2: a section of calls, each `<|tool_call_begin|>functions.NAME:INDEX`, then its arguments.

The arguments are a JSON object between `<|tool_call_argument_begin|>` and `<|tool_call_end|>`. The
index counts the calls of the conversation and is not used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, Verdict, limited
from colibri_cli.chat_formats.json_box import NamedArguments
from colibri_cli.chat_formats.markers import is_start
from colibri_cli.chat_formats.tool_schema import required_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.chat_formats.lark import LarkGrammar
    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolEvent,
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
        return limited(CallParser(_OPEN, lambda _: _Section(schemas), schemas), parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; one section for each call."""
        return forced_calls(CallShape(_OPEN, _call_body), tools, choice, frame)


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.exact(f"{_CALL}functions.{tool.name}:")
    index = grammar.terminal("/[0-9]{1,4}/")
    end = grammar.exact(_CALL_END + _CLOSE)
    return f"{head} {index} {grammar.exact(_ARGUMENTS)} {json_arguments(grammar, tool)} {end}"


class _Section:
    """Reads one section."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._call: NamedArguments | None = None
        self._has_calls = False

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the section; stops after each call."""
        place = 0
        while self._call is None:
            used, verdict = self._read_between(text[place:])
            place += used
            if verdict is not Verdict.READING or not used:
                return place, [], verdict
        used, events, verdict = self._call.feed(text[place:])
        if verdict is Verdict.DONE:
            self._call, self._has_calls, verdict = None, True, Verdict.READING
        return place + used, events, verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the section that the answer left open."""
        del unread
        if self._call is None:
            return [], Verdict.DONE if self._has_calls else Verdict.TEXT
        schema = self._schemas.get(self._call.name)
        needs_none = schema is not None and not required_names(schema)
        return self._call.finish(may_be_empty=needs_none and not was_cut)

    def _read_between(self, text: str) -> tuple[int, Verdict]:
        """Read a marker between calls; nothing is used while it is incomplete."""
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_CALL_END):
            return space + len(_CALL_END), Verdict.READING
        if rest.startswith(_CLOSE):
            verdict = Verdict.DONE if self._has_calls else Verdict.DROPPED
            return space + len(_CLOSE), verdict
        if rest.startswith(_CALL):
            return self._read_head(rest, space)
        if not rest or is_start(rest, _CALL, _CALL_END, _CLOSE):
            return 0, Verdict.READING
        return (0, Verdict.DONE) if self._has_calls else (space, Verdict.TEXT)

    def _read_head(self, rest: str, space: int) -> tuple[int, Verdict]:
        head, marker, _ = rest.removeprefix(_CALL).partition(_ARGUMENTS)
        if not marker:
            return 0, Verdict.READING
        used = space + len(_CALL) + len(head) + len(marker)
        found = _ID.fullmatch(head)
        if found is None:
            return used, Verdict.BROKEN if self._has_calls else Verdict.TEXT
        self._call = NamedArguments(found[1])
        return used, Verdict.READING


SYNTAX: Final[ToolSyntax] = KimiK2Syntax()
