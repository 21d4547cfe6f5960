"""GLM-5.2 without a template of its own: the format the model was trained on, byte for byte.

The tool block and the order of the parts are training data: any rewording makes the model invent
other syntaxes. Levels: the model knows `High` and `Max` only. Old reasoning stays, so that the
cached prefix of a conversation stays valid.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.effort import LEVELS
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.chat_formats.base import ChatMessage, Conversation, ToolCall

_CONTROL_TOKENS: Final = (
    "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
    "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>",
    "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>",
)  # fmt: skip
STOP_MARKERS: Final = ("<|user|>", "<|observation|>")  # a turn that reaches one is over

_WORDS: Final = {level: "Max" if level in {"xhigh", "max"} else "High" for level in LEVELS}
_TOOLS_HEAD: Final = (
    "<|system|>\n# Tools\n\n"
    "You may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_TOOLS_TAIL: Final = (
    "</tools>\n\n"
    "For each function call, output the function name and arguments within the following XML"
    " format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}"
    "</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>"
)
_HIDDEN_KEYS: Final = frozenset({"defer_loading", "strict"})


class GlmChatFormat:
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
        writer.control("[gMASK]<sop>")
        is_thinking = bool(conversation.thinking)
        if is_thinking:
            word = _WORDS[conversation.effort or "high"]
            writer.control(f"<|system|>Reasoning Effort: {word}")
        if conversation.tools:
            _write_tools(writer, conversation)
        previous = ""
        for message in conversation.messages:
            is_last = message is conversation.messages[-1]
            is_continued = is_last and conversation.continues_last
            _write_message(writer, message, previous, is_continued=is_continued)
            previous = message.role
        if conversation.continues_last:
            return RenderedPrompt(writer.segments(), ThinkingStart.CLOSED, _CONTROL_TOKENS)
        writer.control("<|assistant|><think>" if is_thinking else "<|assistant|><think></think>")
        start = ThinkingStart.OPEN if is_thinking else ThinkingStart.CLOSED
        return RenderedPrompt(writer.segments(), start, _CONTROL_TOKENS)


def _write_tools(writer: PromptWriter, conversation: Conversation) -> None:
    writer.control(_TOOLS_HEAD)
    for tool in conversation.tools:
        writer.text(_declaration(tool) + "\n")
    writer.control(_TOOLS_TAIL)
    if conversation.call_instruction:
        writer.text(f"\n\n{conversation.call_instruction}")


def _declaration(tool: Mapping[str, Any]) -> str:
    function = tool.get("function", tool)
    shown = {key: value for key, value in function.items() if key not in _HIDDEN_KEYS}
    return json.dumps(shown, ensure_ascii=False)


def _write_message(
    writer: PromptWriter, message: ChatMessage, previous: str, *, is_continued: bool
) -> None:
    if message.role in {"system", "developer"}:
        writer.control("<|system|>")
        writer.text(message.content)
    elif message.role == "user":
        writer.control("<|user|>")
        writer.text(message.content)
    elif message.role == "assistant":
        writer.control("<|assistant|><think>")
        writer.text(message.reasoning)
        writer.control("</think>")
        writer.text(message.content if is_continued else message.content.strip())
        for call in message.tool_calls:
            _write_call(writer, call)
    elif message.role == "tool":
        if previous != "tool":
            writer.control("<|observation|>")
        writer.control("<tool_response>")
        writer.text(message.content)
        writer.control("</tool_response>")
    else:
        raise ChatFormatError(f"{message.role[:40]!r} is no role of a message")


def _write_call(writer: PromptWriter, call: ToolCall) -> None:
    writer.control("<tool_call>")
    writer.text(call.name)
    for key, value in call.arguments.items():
        writer.control("<arg_key>")
        writer.text(key)
        writer.control("</arg_key><arg_value>")
        writer.text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        writer.control("</arg_value>")
    writer.control("</tool_call>")
