"""Mistral: `[TOOL_CALLS]` before a JSON list of calls, or before `name[ARGS]{…}` for each call.

The second form may name the call's id (`name[CALL_ID]id[ARGS]{…}`), which is not used.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, Verdict, limited
from colibri_cli.chat_formats.json_box import BoxForm, JsonBox, NamedArguments
from colibri_cli.chat_formats.json_calls import WHITE_SPACE

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

_OPEN: Final = "[TOOL_CALLS]"
_ARGUMENTS: Final = "[ARGS]"
_CALL_ID: Final = "[CALL_ID]"
_FORM: Final = BoxForm(separators=",")
_NAME: Final = re.compile(r"([A-Za-z0-9_.\-]+)\s*")


class MistralSyntax:
    """The syntax; forced calls are written in the first form unless the model has `[ARGS]`."""

    name = "mistral"
    trigger = _OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return _OPEN in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        parser = CallParser(_OPEN, lambda _: _Box(schemas), schemas)
        return limited(parser, parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text."""
        body = _named_body if _ARGUMENTS in (frame.special_tokens or {}) else _listed_body
        return forced_calls(CallShape(_OPEN, body), tools, choice, frame)


def _named_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    return f"{grammar.named('', tool.name, _ARGUMENTS)} {json_arguments(grammar, tool)}"


def _listed_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named(' [{"name": ', json.dumps(tool.name), ', "arguments": ')
    return f"{head} {json_arguments(grammar, tool)} {grammar.exact('}]')}"


class _State(Enum):
    NAME = "name"
    AFTER_NAME = "after_name"
    CALL_ID = "call_id"


class _Box:
    """Reads what follows one marker."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._list: JsonBox | None = None
        self._arguments: NamedArguments | None = None
        self._schemas = schemas
        self._state = _State.NAME
        self._name = ""
        self._verdict = Verdict.READING
        self._steps = {
            _State.NAME: self._read_name,
            _State.AFTER_NAME: self._read_after_name,
            _State.CALL_ID: self._read_call_id,
        }

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the box."""
        place = 0
        while self._verdict is Verdict.READING and (self._list or self._arguments) is None:
            used = self._steps[self._state](text[place:])
            if used is None:
                break
            place += used
        inner = self._list or self._arguments
        if inner is None:
            return place, [], self._verdict
        used, events, verdict = inner.feed(text[place:])
        return place + used, events, verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the box that the answer left open."""
        if self._list is not None:
            return self._list.finish(unread, was_cut=was_cut)
        return [], Verdict.TEXT if self._arguments is None else Verdict.BROKEN

    def _read_name(self, text: str) -> int | None:
        rest = text.lstrip(WHITE_SPACE)
        space = len(text) - len(rest)
        if not rest:
            return None
        if rest[0] in "[{":
            self._list = JsonBox(_FORM, self._schemas)
            return space
        found = _NAME.match(rest)
        if found is None:
            self._verdict = Verdict.TEXT
            return space
        if found.end() == len(rest):
            return None
        self._name = found[1]
        self._state = _State.AFTER_NAME
        return space + found.end()

    def _read_after_name(self, text: str) -> int | None:
        if text.startswith(_ARGUMENTS):
            self._arguments = NamedArguments(self._name)
            return len(_ARGUMENTS)
        if text.startswith(_CALL_ID):
            self._state = _State.CALL_ID
            return len(_CALL_ID)
        if _ARGUMENTS.startswith(text) or _CALL_ID.startswith(text):
            return None
        if text.startswith("{"):
            self._arguments = NamedArguments(self._name)
        else:
            self._verdict = Verdict.TEXT
        return 0

    def _read_call_id(self, text: str) -> int | None:
        before, marker, _ = text.partition(_ARGUMENTS)
        if not marker:
            return None
        self._arguments = NamedArguments(self._name)
        return len(before) + len(marker)


SYNTAX: Final[ToolSyntax] = MistralSyntax()
