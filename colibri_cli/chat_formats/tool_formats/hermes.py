"""Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, also of Qwen.

The form for every model whose template knows no tools: `offer` writes the declarations into the
system message and earlier calls and results into the turns.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import ChatMessage, Conversation, with_system_text
from colibri_cli.chat_formats.call_grammar import CallShape, forced_calls, json_arguments
from colibri_cli.chat_formats.call_parser import CallParser, limited
from colibri_cli.chat_formats.json_box import BoxForm, JsonBox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_formats.base import ToolCall
    from colibri_cli.chat_formats.lark import LarkGrammar
    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolParser,
        ToolSyntax,
    )

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"
_JSON_KEY: Final = re.compile(r'"(name|arguments)\\?":')
_CALL_KEYS: Final = frozenset({"name", "arguments"})
_FORM: Final = BoxForm(closer=_CLOSE)
_HEAD: Final = (
    "You can use the functions below. Each line between <tools> and </tools> describes one of them"
    " as JSON.\n<tools>\n"
)
_TAIL: Final = (
    "</tools>\n"
    "To use a function, write its name and arguments as one JSON object between <tool_call> and"
    " </tool_call>, like this:\n"
    '<tool_call>\n{"name": "function name", "arguments": {"parameter": "value"}}\n</tool_call>\n'
    "You get what it returned between <tool_response> and </tool_response>. If no function is"
    " needed, just answer."
)


class HermesSyntax:
    """The syntax."""

    name = "hermes"
    trigger = _OPEN
    kept_markers: tuple[str, ...] = ()

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        return _OPEN in template and set(_JSON_KEY.findall(template)) >= _CALL_KEYS

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer."""
        schemas = {tool.name: tool.parameters for tool in tools}
        parser = CallParser(_OPEN, lambda _: JsonBox(_FORM, schemas), schemas)
        return limited(parser, parallel=parallel)

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar for the whole generated text."""
        return forced_calls(CallShape(_OPEN, _call_body), tools, choice, frame)


def offer(conversation: Conversation) -> Conversation:
    """Return a conversation in which tools are only text, for a format that knows none."""
    messages: list[ChatMessage] = []
    for message in conversation.messages:
        if message.role == "tool":
            _add_result(messages, message.content)
        elif message.tool_calls:
            calls = "\n".join(_written(call) for call in message.tool_calls)
            content = "\n".join(filter(None, [message.content, calls]))
            messages.append(replace(message, content=content, tool_calls=()))
        else:
            messages.append(message)
    written = replace(conversation, messages=tuple(messages), tools=(), call_instruction="")
    return with_system_text(written, _declarations(conversation)) if conversation.tools else written


def _declarations(conversation: Conversation) -> str:
    functions = [tool.get("function", tool) for tool in conversation.tools]
    lines = "".join(json.dumps(function, ensure_ascii=False) + "\n" for function in functions)
    sentence = conversation.call_instruction
    return _HEAD + lines + _TAIL + (f"\n{sentence}" if sentence else "")


def _add_result(messages: list[ChatMessage], text: str) -> None:
    """Add a result; several in a row are one user turn, which strict templates ask for."""
    result = f"<tool_response>\n{text}\n</tool_response>"
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and last.content.endswith("</tool_response>"):
        messages[-1] = replace(last, content=f"{last.content}\n{result}")
    else:
        messages.append(ChatMessage("user", result))


def _written(call: ToolCall) -> str:
    body = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{_OPEN}\n{json.dumps(body, ensure_ascii=False)}\n{_CLOSE}"


def _call_body(grammar: LarkGrammar, tool: DeclaredTool) -> str:
    head = grammar.named('\n{"name": ', json.dumps(tool.name), ', "arguments": ')
    return f"{head} {json_arguments(grammar, tool)} {grammar.exact('}' + chr(10) + _CLOSE)}"


SYNTAX: Final[ToolSyntax] = HermesSyntax()
