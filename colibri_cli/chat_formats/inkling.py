"""Inkling without a template of its own: every message is `role, kind, text, end`.

Effort is a number in a system message before the first message that is not system; 0 also forces
the answer to begin at once. Reasoning of earlier turns is not written down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat_formats.base import RenderedPrompt, ThinkingStart
from colibri_cli.chat_formats.segments import PromptWriter
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from colibri_cli.chat_formats.base import Conversation

_CONTROL_TOKENS: Final = (
    "<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>",
    "<|content_text|>", "<|content_thinking|>", "<|content_image|>", "<|content_audio_input|>",
    "<|content_xml|>", "<|content_invoke_tool_json|>", "<|content_model_end_sampling|>",
    "<|end_message|>", "<|audio_end|>", "<|endoftext|>",
)  # fmt: skip
_EFFORTS: Final = {
    "none": "0", "minimal": "0.1", "low": "0.2", "medium": "0.7", "high": "0.9",
    "xhigh": "0.99", "max": "0.99",
}  # fmt: skip
_ROLES: Final = {
    "system": "<|message_system|>",
    "developer": "<|message_system|>",
    "user": "<|message_user|>",
    "assistant": "<|message_model|>",
    "tool": "<|message_tool|>",
}
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})


class InklingChatFormat:
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
        effort = _EFFORTS[(conversation.effort or "high") if conversation.thinking else "none"]
        has_effort = False
        messages = conversation.messages
        for message in messages:
            role = _ROLES.get(message.role)
            if role is None:
                raise ChatFormatError(f"{message.role[:40]!r} is no role of a message")
            if not has_effort and message.role not in _SYSTEM_ROLES:
                _write_effort(writer, effort)
                has_effort = True
            writer.control(f"{role}<|content_text|>")
            writer.text(message.content)
            if conversation.continues_last and message is messages[-1]:
                return RenderedPrompt(writer.segments(), ThinkingStart.CHANNELS, _CONTROL_TOKENS)
            writer.control("<|end_message|>")
            if message.role == "assistant":
                writer.control("<|content_model_end_sampling|>")
        if not has_effort:
            _write_effort(writer, effort)
        answers_at_once = effort == "0"
        writer.control("<|message_model|>" + ("<|content_text|>" if answers_at_once else ""))
        return RenderedPrompt(writer.segments(), ThinkingStart.CHANNELS, _CONTROL_TOKENS)


def _write_effort(writer: PromptWriter, effort: str) -> None:
    text = f"Thinking effort level: {effort}"
    writer.control(f"<|message_system|><|content_text|>{text}<|end_message|>")
