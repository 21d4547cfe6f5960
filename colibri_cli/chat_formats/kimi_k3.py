"""Kimi K3 behind another engine: messages framed by their lengths in bytes, not by markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from colibri_cli.chat_formats.base import Conversation

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class KimiK3ChatFormat:
    """The built-in renderer; the format has no tools."""

    @property
    def can_think(self) -> bool:
        """Always."""
        return True

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt for the next assistant turn.

        Raises:
            ChatFormatError: a role is unknown, or an answer is to be continued.
        """
        if conversation.continues_last:
            raise ChatFormatError("this model's chat format does not let an answer be continued")
        is_thinking = bool(conversation.thinking)
        writer = PromptWriter()
        writer.control("K3CHAT1\n")
        for message in conversation.messages:
            role = _ROLES.get(message.role)
            if role is None:
                raise ChatFormatError(f"{message.role[:40]!r} is no role of a message here")
            size = len(message.content.encode())
            if role == "assistant" and is_thinking:
                writer.control(f"A {len(message.reasoning.encode())} {size}\n")
                writer.text(message.reasoning)
            else:
                writer.control(f"M {role} {size}\n")
            writer.text(message.content)
        writer.control(f"G {int(is_thinking)}\n")
        start = ThinkingStart.OPEN if is_thinking else ThinkingStart.CLOSED
        return RenderedPrompt(writer.segments(), start)
