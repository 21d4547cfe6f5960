"""Qwen Coder and its kin: `<tool_call><function=name><parameter=key>value</parameter>…`.

Values are plain text, read by the declared schema; one line break after the opening and one before
the closing tag belong to the form. The box closes with `</function></tool_call>`.
"""

from __future__ import annotations

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
_FUNCTION: Final = "<function="
_FUNCTION_CLOSE: Final = "</function>"
_PARAMETER: Final = "<parameter="
_PARAMETER_CLOSE: Final = "</parameter>"
_LAST_LINE: Final = f"\n{_PARAMETER_CLOSE}"


class QwenXmlSyntax:
    """The syntax."""

    name = "qwen_xml"
    trigger = _OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return all(mark in template for mark in (_OPEN, _FUNCTION, _PARAMETER))

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        return limited(CallParser(_OPEN, lambda _: _Box(schemas), schemas), parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text."""
        return forced_calls(CallShape(_OPEN, _call_body), tools, choice, frame)


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    def pair(name: str, value: str) -> str:
        line_break = grammar.exact("\n")
        return f"{grammar.named(_PARAMETER, name, '>' + chr(10))} {value} {line_break}"

    arguments = text_arguments(grammar, tool, pair, _LAST_LINE)
    head = grammar.named(f"\n{_FUNCTION}", tool.name, ">\n")
    return f"{head} {arguments} {grammar.exact(f'{_FUNCTION_CLOSE}{chr(10)}{_CLOSE}')}"


class _State(Enum):
    START = "start"
    NAME = "name"
    BETWEEN = "between"  # after the name or an argument
    KEY = "key"
    VALUE = "value"
    AFTER = "after"  # after </function>


class _Box:
    """Reads one box."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._state = _State.START
        self._call = TypedCall(schemas)
        self._is_value_begun = False
        self._verdict = Verdict.READING
        self._steps = {
            _State.START: self._read_start,
            _State.NAME: self._read_name,
            _State.BETWEEN: self._read_between,
            _State.KEY: self._read_key,
            _State.VALUE: self._read_value,
            _State.AFTER: self._read_after,
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
        if self._state is _State.AFTER:
            return [], Verdict.DONE
        is_end = any(marker.startswith(tail) for marker in (_FUNCTION_CLOSE, _CLOSE))
        is_whole = is_end and (tail.startswith("</") or not was_cut)
        if self._state is _State.BETWEEN and is_whole and self._call.is_complete:
            self._call.end()
            return self._call.take(), Verdict.DONE
        return [], Verdict.BROKEN if self._call.is_started else Verdict.TEXT

    def _read_start(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_FUNCTION):
            self._state = _State.NAME
            return space + len(_FUNCTION)
        if rest.startswith(_CLOSE):
            self._verdict = Verdict.DROPPED
            return space + len(_CLOSE)
        if not rest or is_start(rest, _FUNCTION, _CLOSE):
            return None
        self._verdict = Verdict.TEXT
        return space

    def _read_name(self, text: str) -> int | None:
        name, closer, _ = text.partition(">")
        if "\n" in name:
            self._verdict = Verdict.TEXT
            return 0
        if not closer:
            return None
        self._call.name = name.strip().strip('"')
        self._state = _State.BETWEEN
        if not self._call.name:
            self._verdict = Verdict.TEXT
        return len(name) + 1

    def _read_between(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_PARAMETER):
            self._call.start()
            self._state = _State.KEY
            return space + len(_PARAMETER)
        for closer in (_FUNCTION_CLOSE, _CLOSE):
            if rest.startswith(closer):
                self._call.end()
                self._state = _State.AFTER
                return space + (len(closer) if closer == _FUNCTION_CLOSE else 0)
        if not rest or is_start(rest, _PARAMETER, _FUNCTION_CLOSE, _CLOSE):
            return None
        if self._call.is_started:
            return space + 1  # stray text between arguments
        self._verdict = Verdict.TEXT
        return space

    def _read_key(self, text: str) -> int | None:
        key, closer, _ = text.partition(">")
        if not closer:
            return None
        self._call.begin_value(key.strip().strip('"'))
        self._is_value_begun = False
        self._state = _State.VALUE
        return len(key) + 1

    def _read_value(self, text: str) -> int | None:
        if not text:
            return None
        if not self._is_value_begun:
            self._is_value_begun = True
            return 1 if text.startswith("\n") else 0
        value, closer, _ = text.partition(_PARAMETER_CLOSE)
        if closer:
            self._call.add_value(value.removesuffix("\n"))
            self._call.end_value()
            self._state = _State.BETWEEN
            return len(value) + len(closer)
        kept = len(value) - held_length(value, (_LAST_LINE, _PARAMETER_CLOSE))
        self._call.add_value(value[:kept])
        return kept or None

    def _read_after(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_CLOSE):
            self._verdict = Verdict.DONE
            return space + len(_CLOSE)
        if not rest or is_start(rest, _CLOSE):
            return None
        self._verdict = Verdict.DONE
        return 0


SYNTAX: Final[ToolSyntax] = QwenXmlSyntax()
