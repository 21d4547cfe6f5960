"""GLM: `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>`.

Values are plain text; the declared schema says how they are read. A value ends at `</arg_value>`
only, so it may contain any other marker. A box that is not closed is completed only if nothing in
it is cut off and no required parameter is missing.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, text_arguments
from colibri_cli.chat_formats.call_parser import CallParser, Verdict, limited
from colibri_cli.chat_formats.markers import held_length, is_start
from colibri_cli.chat_formats.typed_call import TypedCall

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

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_KEY_OPEN: Final = "<arg_key>"
_KEY_CLOSE: Final = "</arg_key>"
_VALUE_OPEN: Final = "<arg_value>"
_VALUE_CLOSE: Final = "</arg_value>"
_NAME_CHARACTERS: Final = r"A-Za-z0-9_.\-"
_ARGUMENT_TAG: Final = re.compile(r"</?arg_(?:key|value)>")


class GlmSyntax:
    """The syntax.

    Args:
        salvages: A closed box whose content is not in this form still gives its text to the
            function's first parameter.
    """

    name = "glm"
    trigger = _OPEN
    kept_markers: tuple[str, ...] = ()

    def __init__(self, *, salvages: bool = False) -> None:
        self._salvages = salvages

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return _OPEN in template and _KEY_OPEN in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        parser = CallParser(_OPEN, lambda _: _Box(schemas, self._salvages), schemas)
        return limited(parser, parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text."""
        return forced_calls(CallShape(_OPEN, _call_body), tools, choice, frame)


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    def pair(name: str, value: str) -> str:
        key = grammar.named(_KEY_OPEN, name, _KEY_CLOSE)
        return f"{key} {line_break} {grammar.exact(_VALUE_OPEN)} {value} {line_break}"

    line_break = f"({grammar.exact(chr(10))})?"  # GLM-4 writes them, GLM-5 does not
    arguments = text_arguments(grammar, tool, pair, _VALUE_CLOSE)
    return f"{grammar.named('', tool.name)} {line_break} {arguments} {grammar.exact(_CLOSE)}"


class _State(Enum):
    NAME = "name"
    BETWEEN = "between"  # after the name or a pair
    KEY = "key"
    AFTER_KEY = "after_key"
    VALUE = "value"
    NAMELESS = "nameless"


class _Box:
    """Reads one box."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]], salvages: bool) -> None:
        self._salvages = salvages
        letters = "".join(re.escape(c) for c in sorted(set("".join(schemas))) if c not in "<\t\n ")
        self._name_pattern = re.compile(rf"\s*([{_NAME_CHARACTERS}{letters}]*)")
        self._state = _State.NAME
        self._call = TypedCall(schemas)
        self._key = ""
        self._stray = ""  # what stands where a tag should
        self._verdict = Verdict.READING
        self._steps = {
            _State.NAME: self._read_name,
            _State.BETWEEN: self._read_between,
            _State.KEY: self._read_key,
            _State.AFTER_KEY: self._read_after_key,
            _State.VALUE: self._read_value,
            _State.NAMELESS: self._read_nameless,
        }

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the box."""
        place = 0
        while self._verdict is Verdict.READING:
            used = self._steps[self._state](text[place:])
            if used is None:
                break
            place += used
        return place, self._call.take(), self._verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the box that the answer left open."""
        tail = unread.strip()
        if self._state is _State.NAME:
            self._call.name, tail = tail, ""
            self._state = _State.BETWEEN
        if self._state is _State.NAMELESS:
            return [], Verdict.TEXT
        is_whole = tail.startswith("</") if was_cut else True
        if self._state is not _State.BETWEEN or not (is_whole and _CLOSE.startswith(tail)):
            return [], self._broken()
        verdict = self._end_unclosed()
        return self._call.take(), verdict

    def _read_name(self, text: str) -> int | None:
        found = self._name_pattern.match(text)
        end = found.end() if found else 0
        rest = text[end:]
        if not rest or found is None:
            return None
        self._call.name = found[1]
        if self._call.name:
            self._state = _State.BETWEEN
        elif rest.startswith((_KEY_OPEN, _CLOSE)):
            self._state = _State.NAMELESS
        elif is_start(rest, _KEY_OPEN, _CLOSE):
            return None
        else:
            self._verdict = Verdict.TEXT
        return end

    def _read_between(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_KEY_OPEN):
            self._call.start()
            self._state = _State.KEY
            return space + len(_KEY_OPEN)
        if rest.startswith(_CLOSE):
            self._end()
            return space + len(_CLOSE)
        if rest.startswith(_OPEN):
            self._verdict = self._end_unclosed()
            return space
        if not rest or is_start(rest, _KEY_OPEN, _CLOSE, _OPEN):
            return None
        if not self._call.has_arguments and not self._call.is_declared:
            self._verdict = Verdict.TEXT  # prose about the marker
            return space
        stray = text[: space + 1] + rest[1:].partition("<")[0]
        self._stray += stray
        return len(stray)

    def _read_key(self, text: str) -> int | None:
        key, closer, _ = text.partition(_KEY_CLOSE)
        if not closer:
            return None
        self._key = key.strip()
        self._state = _State.AFTER_KEY
        return len(key) + len(closer)

    def _read_after_key(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_VALUE_OPEN):
            self._call.begin_value(self._key)
            self._state = _State.VALUE
            return space + len(_VALUE_OPEN)
        if not rest or is_start(rest, _VALUE_OPEN):
            return None
        self._state = _State.BETWEEN  # a key without a value is no argument
        return space

    def _read_value(self, text: str) -> int | None:
        value, closer, _ = text.partition(_VALUE_CLOSE)
        kept = len(value) if closer else len(value) - held_length(value, (_VALUE_CLOSE,))
        self._call.add_value(value[:kept])
        if closer:
            self._call.end_value()
            self._state = _State.BETWEEN
            return kept + len(closer)
        return kept or None

    def _read_nameless(self, text: str) -> int | None:
        before, closer, _ = text.partition(_CLOSE)
        if closer:
            self._verdict = Verdict.DROPPED
            return len(before) + len(closer)
        return (len(before) - held_length(before, (_CLOSE,))) or None

    def _end_unclosed(self) -> Verdict:
        """Complete the call if nothing is missing."""
        if self._call.is_complete and (self._call.has_arguments or not self._stray):
            self._call.end()
            return Verdict.DONE
        return self._broken()

    def _end(self) -> None:
        if self._salvages and not self._call.has_arguments and self._stray.strip():
            self._salvage()
        self._call.end()
        self._verdict = Verdict.DONE

    def _salvage(self) -> None:
        text = _ARGUMENT_TAG.sub("", self._stray).strip()
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1].strip()
        self._call.start()
        self._call.begin_value(self._call.first_parameter)
        self._call.add_value(text)
        self._call.end_value()

    def _broken(self) -> Verdict:
        return Verdict.BROKEN if self._call.is_started else Verdict.TEXT


SYNTAX: Final[ToolSyntax] = GlmSyntax()
