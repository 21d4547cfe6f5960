"""DeepSeek V4 behind another engine: system texts first, tool results inside user turns.

Calls and results are written in the model's own markup (`tool_formats/dsml`); the words around the
declarations are ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.chat_formats.tool_formats.dsml import MARK
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from colibri_cli.chat_formats.base import ChatMessage, Conversation, ToolCall

_BEGIN: Final = "<｜begin▁of▁sentence｜>"  # noqa: RUF001 - the vocabulary's own full-width bars
_END: Final = "<｜end▁of▁sentence｜>"  # noqa: RUF001
_USER: Final = "<｜User｜>"  # noqa: RUF001
_ASSISTANT: Final = "<｜Assistant｜>"  # noqa: RUF001
_CONTROL_TOKENS: Final = (
    _BEGIN, _END, _USER, _ASSISTANT, "<think>", "</think>", "<tool_result>", "</tool_result>", MARK,
)  # fmt: skip
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_USER_ROLES: Final = frozenset({"user", "tool"})
_TOOLS_HEAD: Final = (
    "## Tools\n\nYou can call the functions described below, one JSON object per line. To call"
    f' some, write a block like this:\n\n<{MARK}tool_calls>\n<{MARK}invoke name="$NAME">\n'
    f'<{MARK}parameter name="$PARAMETER" string="true|false">$VALUE</{MARK}parameter>\n'
    f"</{MARK}invoke>\n</{MARK}tool_calls>\n\n"
    'Text values stand as they are, with string="true"; all other values are JSON, with'
    ' string="false".\n\n'
)


class DeepseekV4ChatFormat:
    """The built-in renderer."""

    @property
    def can_think(self) -> bool:
        """Always."""
        return True

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt for the next (or the continued last) assistant turn.

        Raises:
            ChatFormatError: a role is unknown.
        """
        writer = PromptWriter()
        writer.control(_BEGIN)
        _write_system(writer, conversation)
        turns = [m for m in conversation.messages if m.role not in _SYSTEM_ROLES]
        previous = ""
        for message in turns:
            is_continued = conversation.continues_last and message is turns[-1]
            if message.role in _USER_ROLES:
                writer.control("\n\n" if previous in _USER_ROLES else _USER)
                _write_user(writer, message)
            elif message.role == "assistant":
                writer.control(f"{_ASSISTANT}</think>")
                _write_answer(writer, message)
                writer.control("" if is_continued else _END)
            else:
                raise ChatFormatError(f"{message.role[:40]!r} is no role of a message")
            previous = message.role
        if conversation.continues_last:
            return RenderedPrompt(writer.segments(), ThinkingStart.CLOSED, _CONTROL_TOKENS)
        is_thinking = bool(conversation.thinking)
        writer.control(_ASSISTANT + ("<think>" if is_thinking else "</think>"))
        start = ThinkingStart.OPEN if is_thinking else ThinkingStart.CLOSED
        return RenderedPrompt(writer.segments(), start, _CONTROL_TOKENS)


def _write_system(writer: PromptWriter, conversation: Conversation) -> None:
    texts = [m.content for m in conversation.messages if m.role in _SYSTEM_ROLES]
    writer.text("\n\n".join(texts))
    if not conversation.tools:
        return
    writer.control(("\n\n" if texts else "") + _TOOLS_HEAD)
    for tool in conversation.tools:
        writer.text(json.dumps(tool.get("function", tool), ensure_ascii=False) + "\n")
    if conversation.call_instruction:
        writer.text(f"\n{conversation.call_instruction}\n")


def _write_user(writer: PromptWriter, message: ChatMessage) -> None:
    is_result = message.role == "tool"
    writer.control("<tool_result>" if is_result else "")
    writer.text(message.content)
    writer.control("</tool_result>" if is_result else "")


def _write_answer(writer: PromptWriter, message: ChatMessage) -> None:
    writer.text(message.content)
    if message.tool_calls:
        writer.control(f"\n\n<{MARK}tool_calls>\n")
        for call in message.tool_calls:
            _write_call(writer, call)
        writer.control(f"</{MARK}tool_calls>")


def _write_call(writer: PromptWriter, call: ToolCall) -> None:
    writer.control(f'<{MARK}invoke name="')
    writer.text(call.name)
    writer.control('">\n')
    for key, value in call.arguments.items():
        is_text = isinstance(value, str)
        writer.control(f'<{MARK}parameter name="')
        writer.text(key)
        writer.control(f'" string="{"true" if is_text else "false"}">')
        writer.text(value if is_text else json.dumps(value, ensure_ascii=False))
        writer.control(f"</{MARK}parameter>\n")
    writer.control(f"</{MARK}invoke>\n")
