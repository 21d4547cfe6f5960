"""What every chat format takes and gives: messages in, prompt segments out.

Pure data; knows no template language and no process. User-provided text always ends up in TEXT
segments, which the engine never reads as control tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from colibri_cli.chat_formats.segments import neutralised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_protocol.messages import Segment


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the assistant made earlier in the conversation."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn. `content` is text; other kinds of parts are refused before they come here."""

    role: str
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything a prompt is made of.

    Args:
        messages: The turns, oldest first.
        tools: Function declarations as JSON objects.
        thinking: Ask for reasoning (True), forbid it (False) or leave it to the template (None).
        effort: Level of reasoning, one of `effort.LEVELS`, for formats that know levels.
        continues_last: The last message is an assistant's, to be continued instead of answered.
        call_instruction: Sentence about a call that must be made; goes after the tools.
        template_variables: Further values for the template.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    thinking: bool | None = None
    effort: str | None = None
    continues_last: bool = False
    call_instruction: str = ""
    template_variables: Mapping[str, Any] = field(default_factory=dict)


def with_system_text(conversation: Conversation, text: str) -> Conversation:
    """Return the conversation with a text added at the end of its system message."""
    messages = list(conversation.messages)
    if messages and messages[0].role in {"system", "developer"}:
        messages[0] = replace(messages[0], content=f"{messages[0].content}\n\n{text}")
    else:
        messages.insert(0, ChatMessage("system", text))
    return replace(conversation, messages=tuple(messages))


class ThinkingStart(Enum):
    """In which state the model's text begins."""

    UNKNOWN_TO_MODEL = "none"  # the family has no reasoning markers: nothing is ever split
    OPEN = "open"  # the prompt ended inside <think>
    CLOSED = "closed"  # the prompt ended after </think>: the answer begins at once
    BY_MODEL = "by_model"  # the model decides: a leading <think> opens reasoning
    CHANNELS = "channels"  # marked parts (Inkling): each part says whether it is reasoning
    HARMONY = "harmony"  # messages with headers (gpt-oss): the header says what each one is


class SplitText(NamedTuple):
    """What one piece of raw text added to either side."""

    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt ready for the wire.

    Args:
        segments: The parts, ours and others'.
        thinking_start: The state the model's text begins in.
        control_tokens: Texts an engine without segments would read as control tokens.
    """

    segments: tuple[Segment, ...]
    thinking_start: ThinkingStart
    control_tokens: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole prompt as one text."""
        return "".join(segment.text for segment in self.segments)

    @property
    def neutral_text(self) -> str:
        """The whole prompt as one text, for engines that find control tokens anywhere in it.

        Control tokens spelled out in text from outside have an invisible character inside.
        """
        return neutralised(self.segments, self.control_tokens)


class ChatFormat(Protocol):
    """One way of writing conversations down."""

    @property
    def can_think(self) -> bool:
        """Whether reasoning can be asked for."""
        ...

    def render(self, conversation: Conversation) -> RenderedPrompt:
        """Return the prompt that makes the model give the next assistant turn.

        Raises:
            ChatFormatError: the conversation does not fit the format.
        """
        ...
