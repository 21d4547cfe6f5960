"""How tools work with a model: the syntax, who writes them into the prompt, what forces calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from colibri_cli.chat_formats.call_grammar import chosen_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.chat_formats.tool_formats.base import (
        AnswerFrame,
        CallChoice,
        DeclaredTool,
        ToolSyntax,
    )


@dataclass(frozen=True, slots=True)
class ToolSupport:
    """How tools work with one model.

    Args:
        syntax: How the model writes calls.
        writer: Writes into the messages what the chat format does not write itself: the tools, and
            for a format that knows none the calls and results too. None: it writes everything.
        needs_grammar: The model was never taught the syntax: without a grammar that holds it to
            the form, tools must be refused.
    """

    syntax: ToolSyntax
    writer: Callable[[Conversation], Conversation] | None
    needs_grammar: bool

    def offer(
        self, conversation: Conversation, tools: Sequence[DeclaredTool], choice: CallChoice
    ) -> Conversation:
        """Return the conversation with the tools a choice leaves, ready to be rendered.

        Also without tools: earlier calls and results may have to be written as text.

        Args:
            conversation: The messages.
            tools: What the client declared.
            choice: `none` offers no tools.
        """
        offered = () if choice.mode == "none" else chosen_tools(tools, choice)
        declarations = tuple(
            {"type": "function", "function": dict(tool.declaration)} for tool in offered
        )
        instruction = _instruction(choice) if offered else ""
        prepared = replace(conversation, tools=declarations, call_instruction=instruction)
        return self.written(prepared)

    def written(self, conversation: Conversation) -> Conversation:
        """Return the conversation as the chat format can take it, tools included."""
        return conversation if self.writer is None else self.writer(conversation)

    def grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str | None:
        """Return the grammar (kind "lark") a request with tools wants, or None if it wants none.

        One is wanted for calls that must be made, for strict tools, for answers of a given form,
        and for models that were never taught the syntax.
        """
        if choice.mode == "none" or not tools:
            return None
        is_strict = any(tool.is_strict for tool in tools)
        is_wanted = is_strict or self.needs_grammar or frame.final is not None
        if choice.mode == "auto" and not is_wanted:
            return None
        return self.syntax.forced_grammar(tools, choice, frame)


def _instruction(choice: CallChoice) -> str:
    """Return the sentence for a call that must be made; the wording is training data of GLM."""
    if choice.mode == "required":
        return "You must call one of the functions above. Do not answer directly."
    if choice.mode == "named":
        return f"You must call the function `{choice.name}`. Do not answer directly."
    return ""
