"""OLMoE without a template of its own: no reasoning, no tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from colibri_cli.chat_formats.base import Conversation

_MARK: Final = "|||IP_ADDRESS|||"  # begins a text and ends an answer
_ROLES: Final = {
    "system": "<|system|>",
    "developer": "<|system|>",
    "user": "<|user|>",
    "assistant": "<|assistant|>",
}
_CONTROL_TOKENS: Final = (_MARK, "<|system|>", "<|user|>", "<|assistant|>")


class OlmoeChatFormat:
    """The built-in renderer."""

    @property
    def can_think(self) -> bool:
        """Never."""
        return False

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt for the next (or the continued last) assistant turn.

        Raises:
            ChatFormatError: a role is unknown.
        """
        writer = PromptWriter()
        writer.control(_MARK)
        for message in conversation.messages:
            role = _ROLES.get(message.role)
            if role is None:
                raise ChatFormatError(f"{message.role[:40]!r} is no role of a message here")
            writer.control(f"{role}\n")
            writer.text(message.content)
            if conversation.continues_last and message is conversation.messages[-1]:
                return RenderedPrompt(
                    writer.segments(), ThinkingStart.UNKNOWN_TO_MODEL, _CONTROL_TOKENS
                )
            writer.control(f"{_MARK}\n" if message.role == "assistant" else "\n")
        writer.control("<|assistant|>\n")
        return RenderedPrompt(writer.segments(), ThinkingStart.UNKNOWN_TO_MODEL, _CONTROL_TOKENS)
