"""JSON shapes of the Messages API that whole and streamed answers share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.turns import Finish

if TYPE_CHECKING:
    from colibri_cli.gateway.dialects.anthropic_fields import Thinking
    from colibri_cli.gateway.http_types import HttpError
    from colibri_cli.gateway.turns import TurnCompleted, Usage

SIGNATURE: Final = "colibri-local"
_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOP_REASONS: Final = {
    Finish.STOP: "end_turn",
    Finish.STOP_SEQUENCE: "stop_sequence",
    Finish.LENGTH: "max_tokens",
    Finish.TOOL_CALLS: "tool_use",
}


@dataclass(frozen=True, slots=True)
class MessageRender:
    """What is needed to write the answer.

    Args:
        model: The served name.
        id: Of the message.
        thinking: What the client wants of reasoning.
        always_thinks: The answer has a thinking block, even if the model wrote no reasoning.
        has_tools: Tools are offered: white space around calls is not part of the answer.
        edits_context: The client asked for edits of its context; none are ever made.
    """

    model: str
    id: str
    thinking: Thinking
    always_thinks: bool
    has_tools: bool
    edits_context: bool


def message_object(render: MessageRender, usage: dict[str, Any]) -> dict[str, Any]:
    """Return a message without content, as a stream begins with it."""
    message: dict[str, Any] = {
        "id": render.id,
        "type": "message",
        "role": "assistant",
        "model": render.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    if render.edits_context:
        message["context_management"] = {"applied_edits": []}
    return message


def usage_object(usage: Usage, render: MessageRender) -> dict[str, Any]:
    """Return token counts; as there, the three kinds of input tokens add up to the prompt."""
    counts: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens - usage.reused_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.reused_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if render.thinking.is_on:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts


def stop_object(completed: TurnCompleted) -> dict[str, Any]:
    """Return why the answer ended."""
    is_sequence = completed.finish is Finish.STOP_SEQUENCE
    return {
        "stop_reason": _STOP_REASONS[completed.finish],
        "stop_sequence": completed.stop_text if is_sequence else None,
    }


def tool_use_id(call_id: str) -> str:
    """Return a call's id with the prefix of this API."""
    return "toolu_" + call_id.removeprefix("call_")


def error_object(error: HttpError) -> dict[str, Any]:
    """Return the error as a body and as the data of an error event."""
    kind = _ERROR_TYPES.get(error.status)
    if kind is None:
        kind = "api_error" if error.status >= 500 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": _message(error)}}


def _message(error: HttpError) -> str:
    """Return the text; clients shorten a conversation by themselves when they read these words."""
    if error.code == "context_length_exceeded":
        numbers = re.findall(r"\d+", error.message)
        if len(numbers) >= 2:
            return (
                f"prompt is too long: {numbers[0]} tokens > {numbers[1]} maximum"
                " (shorten the conversation, or serve with a larger --ctx)"
            )
        return f"prompt is too long: {error.message}"
    if error.param == "response_format":
        return error.message.replace("response_format", "output_config.format")
    return error.message
