"""Qwen3 mixtures without a template of their own: ChatML, reasoning switched in the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from colibri_cli.chat_formats.base import Conversation

_CONTROL_TOKENS: Final = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")
_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class Qwen3MoeChatFormat:
    """The built-in renderer."""

    @property
    def can_think(self) -> bool:
        """Always."""
        return True

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt for the next (or the continued last) assistant turn.

        Raises:
            ChatFormatError: a role is unknown, or a system message is not the first.
        """
        writer = PromptWriter()
        messages = conversation.messages
        for position, message in enumerate(messages):
            role = _ROLES.get(message.role)
            if role is None:
                raise ChatFormatError(f"{message.role[:40]!r} is no role of a message here")
            if role == "system" and position > 0:
                raise ChatFormatError("this model takes a system message only as the first one")
            writer.control(f"<|im_start|>{role}\n")
            if conversation.continues_last and message is messages[-1]:
                writer.text(message.content)
                return RenderedPrompt(writer.segments(), ThinkingStart.CLOSED, _CONTROL_TOKENS)
            writer.text(
                _without_reasoning(message.content) if role == "assistant" else message.content
            )
            writer.control("<|im_end|>\n")
        writer.control("<|im_start|>assistant\n")
        if conversation.thinking:
            writer.control("<think>\n")
            return RenderedPrompt(writer.segments(), ThinkingStart.OPEN, _CONTROL_TOKENS)
        writer.control("<think>\n\n</think>\n\n")
        return RenderedPrompt(writer.segments(), ThinkingStart.CLOSED, _CONTROL_TOKENS)


def _without_reasoning(text: str) -> str:
    return text.rpartition("</think>")[2].lstrip("\n") if "</think>" in text else text
