"""gpt-oss: a message to `functions.NAME` on the channel `commentary`, whose text is the arguments.

The splitter of the messages writes every such header in one way, see `chat_formats.harmony`. The
call ends the turn, so there is never a second one in an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.call_grammar import chosen_tools, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, Verdict, limited
from colibri_cli.chat_formats.harmony import (
    ANALYSIS,
    ASSISTANT,
    CALL_HEAD,
    CHANNEL,
    CONSTRAIN,
    END,
    FINAL,
    MESSAGE,
    PREAMBLE,
    is_harmony,
)
from colibri_cli.chat_formats.json_box import NamedArguments
from colibri_cli.chat_formats.lark import LarkGrammar
from colibri_cli.chat_formats.tool_schema import required_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolEvent,
        ToolParser,
        ToolSyntax,
    )


class HarmonySyntax:
    """The syntax."""

    name = "harmony"
    trigger = CALL_HEAD
    kept_markers = (CALL_HEAD,)

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return is_harmony(template) and "functions." in template

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        return limited(CallParser(CALL_HEAD, lambda _: _Box(schemas), schemas), parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text; it is a sequence of messages."""
        grammar = LarkGrammar(frame.special_tokens)
        as_json = f"({grammar.exact(CONSTRAIN)})? {grammar.exact('json' + MESSAGE)}"
        calls = [
            f"{grammar.named(CALL_HEAD, tool.name, ' ')} {as_json} {json_arguments(grammar, tool)}"
            for tool in chosen_tools(tools, choice)
        ]
        last = " | ".join(calls)
        if choice.mode == "auto" and frame.final is not None:
            head = f'{grammar.exact(f"{CHANNEL}final")} (" " {as_json} | {grammar.exact(MESSAGE)})'
            last += f" | {head} {grammar.form(frame.final)}"
        elif choice.mode == "auto":
            last += f" | {grammar.exact(FINAL)} {grammar.free_text()}"
        before = [
            f"{grammar.exact(head)} {grammar.until(END)} {grammar.exact(ASSISTANT)}"
            for head in (ANALYSIS, PREAMBLE)
        ]
        return grammar.text(f"({grammar.rule(' | '.join(before))})* {grammar.rule(last)}")


class _Box:
    """Reads a name, a marker and the arguments."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._arguments: NamedArguments | None = None

    def feed(self, text: str) -> tuple[int, list[ToolEvent], Verdict]:
        """Take more of the message."""
        used = 0
        if self._arguments is None:
            name, marker, _ = text.partition(MESSAGE)
            if not marker:
                return 0, [], Verdict.READING
            self._arguments = NamedArguments(name)
            used = len(name) + len(marker)
        more, events, verdict = self._arguments.feed(text[used:])
        return used + more, events, verdict

    def finish(self, unread: str, *, was_cut: bool) -> tuple[list[ToolEvent], Verdict]:
        """End the message that the answer left open."""
        del unread
        if self._arguments is None:
            return [], Verdict.TEXT
        schema = self._schemas.get(self._arguments.name)
        needs_none = schema is not None and not required_names(schema)
        return self._arguments.finish(may_be_empty=needs_none and not was_cut)


SYNTAX: Final[ToolSyntax] = HarmonySyntax()
