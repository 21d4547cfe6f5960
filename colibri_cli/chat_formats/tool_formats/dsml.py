"""DeepSeek: a `<｜DSML｜tool_calls>` block of `<｜DSML｜invoke name="…">` with named parameters.

A parameter says whether its value is text (`string="true"`) or JSON; the declared schema wins.
Older models call the block `function_calls`.
"""  # noqa: RUF002 - the vocabulary's own full-width bars

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, text_arguments
from colibri_cli.chat_formats.call_parser import CallParser, Verdict, limited
from colibri_cli.chat_formats.markers import held_length, is_start
from colibri_cli.chat_formats.tool_schema import ValueKind, value_kind
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

MARK: Final = "｜DSML｜"  # noqa: RUF001
_OPEN: Final = f"<{MARK}"
_BLOCK: Final = f"<{MARK}tool_calls>"
_BLOCK_CLOSE: Final = f"</{MARK}tool_calls>"
_OLD_BLOCK_CLOSE: Final = f"</{MARK}function_calls>"
_BLOCK_NAMES: Final = ("tool_calls>", "function_calls>")
_INVOKE: Final = f'<{MARK}invoke name="'
_INVOKE_CLOSE: Final = f"</{MARK}invoke>"
_PARAMETER: Final = f'<{MARK}parameter name="'
_PARAMETER_CLOSE: Final = f"</{MARK}parameter>"
_IS_TEXT: Final = re.compile(r'"\s*string="true"?\s*\Z')


class DsmlSyntax:
    """The syntax."""

    name = "dsml"
    trigger = _BLOCK
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return MARK in template and "invoke name=" in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        return limited(CallParser(_OPEN, lambda _: _Block(schemas), schemas), parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; one block for each call."""
        return forced_calls(CallShape(_BLOCK, _call_body), tools, choice, frame)


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    def pair(name: str, value: str) -> str:
        is_text = value_kind(tool.parameters, name) is ValueKind.TEXT
        kind = f'" string="{"true" if is_text else "false"}">'
        line_break = grammar.exact("\n")
        return f"{grammar.named(_PARAMETER, name, kind)} {value} {line_break}"

    arguments = text_arguments(grammar, tool, pair, _PARAMETER_CLOSE)
    head = grammar.named(f"\n{_INVOKE}", tool.name, '">\n')
    return f"{head} {arguments} {grammar.exact(f'{_INVOKE_CLOSE}{chr(10)}{_BLOCK_CLOSE}')}"


class _State(Enum):
    BLOCK = "block"
    BETWEEN = "between"  # before, between and after calls
    NAME = "name"
    ARGUMENTS = "arguments"
    KEY = "key"
    VALUE = "value"


class _Block:
    """Reads one block."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._state = _State.BLOCK
        self._call = TypedCall(schemas)
        self._has_calls = False
        self._verdict = Verdict.READING
        self._steps = {
            _State.BLOCK: self._read_block,
            _State.BETWEEN: self._read_between,
            _State.NAME: self._read_name,
            _State.ARGUMENTS: self._read_arguments,
            _State.KEY: self._read_key,
            _State.VALUE: self._read_value,
        }

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the block; stops after each call."""
        place = 0
        while self._verdict is Verdict.READING:
            call = self._call
            used = self._steps[self._state](text[place:])
            if used is None:
                break
            place += used
            if call is not self._call:
                return place, call.take(), self._verdict
        return place, self._call.take(), self._verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the block that the answer left open."""
        tail = unread.strip()
        if self._state is _State.BETWEEN:
            return [], Verdict.DONE if self._has_calls else Verdict.TEXT
        is_whole = tail.startswith("</") or not was_cut
        is_end = self._state is _State.ARGUMENTS and _INVOKE_CLOSE.startswith(tail)
        if is_end and is_whole and self._call.is_complete:
            self._call.end()
            return self._call.take(), Verdict.DONE
        return [], self._broken()

    def _read_block(self, text: str) -> int | None:
        for name in _BLOCK_NAMES:
            if text.startswith(name):
                self._state = _State.BETWEEN
                return len(name)
        if not is_start(text, *_BLOCK_NAMES):
            self._verdict = Verdict.TEXT
            return 0
        return None

    def _read_between(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_INVOKE):
            self._state = _State.NAME
            return space + len(_INVOKE)
        for closer in (_BLOCK_CLOSE, _OLD_BLOCK_CLOSE):
            if rest.startswith(closer):
                self._verdict = Verdict.DONE if self._has_calls else Verdict.DROPPED
                return space + len(closer)
        if not rest or is_start(rest, _INVOKE, _BLOCK_CLOSE, _OLD_BLOCK_CLOSE):
            return None
        self._verdict = Verdict.DONE if self._has_calls else Verdict.TEXT
        return 0 if self._has_calls else space

    def _read_name(self, text: str) -> int | None:
        name, closer, _ = text.partition(">")
        if not closer:
            return None
        self._call.name = name.rstrip().removesuffix('"')
        self._state = _State.ARGUMENTS
        if not self._call.name:
            self._verdict = Verdict.TEXT
        return len(name) + 1

    def _read_arguments(self, text: str) -> int | None:
        rest = text.lstrip()
        space = len(text) - len(rest)
        if rest.startswith(_PARAMETER):
            self._call.start()
            self._state = _State.KEY
            return space + len(_PARAMETER)
        if rest.startswith(_INVOKE_CLOSE):
            self._call.end()
            self._call = TypedCall(self._schemas)
            self._has_calls = True
            self._state = _State.BETWEEN
            return space + len(_INVOKE_CLOSE)
        if not rest or is_start(rest, _PARAMETER, _INVOKE_CLOSE):
            return None
        self._verdict = self._broken()
        return space

    def _read_key(self, text: str) -> int | None:
        head, closer, _ = text.partition(">")
        if not closer:
            return None
        is_text = _IS_TEXT.search(head) is not None
        self._call.begin_value(head.partition('"')[0], is_text=is_text)
        self._state = _State.VALUE
        return len(head) + 1

    def _read_value(self, text: str) -> int | None:
        value, closer, _ = text.partition(_PARAMETER_CLOSE)
        kept = len(value) if closer else len(value) - held_length(value, (_PARAMETER_CLOSE,))
        self._call.add_value(value[:kept])
        if closer:
            self._call.end_value()
            self._state = _State.ARGUMENTS
            return kept + len(closer)
        return kept or None

    def _broken(self) -> Verdict:
        return Verdict.BROKEN if self._call.is_started else Verdict.TEXT


SYNTAX: Final[ToolSyntax] = DsmlSyntax()
