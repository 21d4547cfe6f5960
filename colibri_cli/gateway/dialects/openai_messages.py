"""OpenAI chat messages → the turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.base import has_nul, parse_object
from colibri_cli.gateway.dialects.fields import UNSUPPORTED_PARAMETER, refusal, shown
from colibri_cli.gateway.http_types import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
TEXT_PARTS: Final = ("text", "input_text")

_TEXT_SCHEMA: Final = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"enum": list(TEXT_PARTS)}, "text": {"type": "string"}},
            },
        },
    ]
}
_CALL_SCHEMA: Final = {
    "type": "object",
    "required": ["function"],
    "properties": {
        "id": {"type": ["string", "null"]},
        "type": {"enum": ["function", None]},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "arguments": {
                    "type": ["string", "object", "null"],
                    "description": "JSON text of an object, or the object.",
                },
            },
        },
    },
}
MESSAGES_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "oneOf": [
            {
                "type": "object",
                "required": ["role"],
                "properties": {
                    "role": {"const": "assistant"},
                    "content": {"anyOf": [_TEXT_SCHEMA, {"type": "null"}]},
                    "reasoning_content": {"type": ["string", "null"]},
                    "tool_calls": {"type": ["array", "null"], "items": _CALL_SCHEMA},
                },
            },
            {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {"enum": [role for role in ROLES if role != "assistant"]},
                    "content": _TEXT_SCHEMA,
                    "tool_call_id": {"description": "The call a tool message answers."},
                },
            },
        ]
    },
}


def parse_messages(value: Any) -> tuple[ChatMessage, ...]:  # noqa: ANN401 - any JSON value
    """Return the turns of a `messages` field.

    Raises:
        HttpError: 400 naming the part that cannot be taken.
    """
    if not isinstance(value, list) or not value:
        what = "an empty array" if value == [] else shown(value)
        raise refusal("messages", f"messages must be an array of at least one message, not {what}")
    return tuple(_message(message, f"messages.{index}") for index, message in enumerate(value))


def is_prefill(messages: tuple[ChatMessage, ...]) -> bool:
    """Return whether the last message is the beginning of the answer that is wanted."""
    last = messages[-1]
    return last.role == "assistant" and bool(last.content.strip()) and not last.tool_calls


def parse_text(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    """Return the text of a content field: a string, or text parts joined without separator."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list):
        text = "".join(_part(part, f"{path}.{index}") for index, part in enumerate(value))
    else:
        raise refusal(path, f"{path} must be a text or an array of parts, not {shown(value)}")
    return _without_nul(text, path)


def _message(value: Any, path: str) -> ChatMessage:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise refusal(path, f"{path} must be an object, not {shown(value)}")
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise refusal(
            f"{path}.role",
            f"{path}.role must be one of {', '.join(ROLES)}, not {shown(role)}",
            "unsupported_role",
        )
    is_assistant = role == "assistant"
    _check_assistant_fields(value, path, is_assistant=is_assistant)
    content = value.get("content")
    name, call_id = value.get("name"), value.get("tool_call_id")
    return ChatMessage(
        # formats know one role for instructions; developer is its newer name
        role="system" if role == "developer" else role,
        content="" if content is None and is_assistant else parse_text(content, f"{path}.content"),
        reasoning=_reasoning(value.get("reasoning_content"), f"{path}.reasoning_content"),
        tool_calls=_tool_calls(value.get("tool_calls"), f"{path}.tool_calls"),
        tool_call_id=call_id if isinstance(call_id, str) else None,
        name=name if isinstance(name, str) else None,
    )


def _check_assistant_fields(value: dict[str, Any], path: str, *, is_assistant: bool) -> None:
    for name in ("reasoning_content", "tool_calls"):
        if value.get(name) and not is_assistant:
            raise refusal(f"{path}.{name}", f"{path}.{name} belongs in assistant messages alone")
    if value.get("function_call") is not None:
        raise refusal(
            f"{path}.function_call",
            f"{path}.function_call is not supported; use tool_calls",
            UNSUPPORTED_PARAMETER,
        )
    for name in ("name", "tool_call_id"):
        if isinstance(value.get(name), str):
            _without_nul(value[name], f"{path}.{name}")


def _part(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        what = f"the type {shown(kind)}" if isinstance(value, dict) else shown(value)
        raise refusal(
            path,
            f"{path} must be a text part, not {what}: this server reads text only,"
            " no images, audio or files",
            "unsupported_content_type",
        )
    text = value.get("text")
    if not isinstance(text, str):
        raise refusal(f"{path}.text", f"{path}.text must be a text, not {shown(text)}")
    return text


def _reasoning(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    if not isinstance(value, str):
        raise refusal(path, f"{path} must be a text or null, not {shown(value)}")
    return _without_nul(value, path)


def _tool_calls(value: Any, path: str) -> tuple[ToolCall, ...]:  # noqa: ANN401 - any JSON value
    if value is None:
        return ()
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be an array, not {shown(value)}")
    return tuple(_tool_call(call, f"{path}.{index}") for index, call in enumerate(value))


def _tool_call(value: Any, path: str) -> ToolCall:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict) or value.get("type", "function") not in ("function", None):
        raise refusal(path, f"{path} must be an object of the type function")
    function = value.get("function")
    if not isinstance(function, dict):
        raise refusal(
            f"{path}.function", f"{path}.function must be an object, not {shown(function)}"
        )
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.function.name", f"{path}.function.name must be the function's name")
    call_id = value.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise refusal(f"{path}.id", f"{path}.id must be a text, not {shown(call_id)}")
    arguments = _arguments(function.get("arguments"), f"{path}.function.arguments")
    return ToolCall(
        _without_nul(call_id or "", f"{path}.id"),
        _without_nul(name, f"{path}.function.name"),
        arguments,
    )


def _arguments(value: Any, path: str) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON value
    if value is None or value == "":
        return {}
    parsed = value
    if isinstance(value, str):
        parsed = _parsed_arguments(value, path)
    if not isinstance(parsed, dict):
        raise refusal(path, f"{path} must be the JSON text of an object, not {shown(value)}")
    if has_nul(parsed):
        raise _nul(path)
    return parsed


def _parsed_arguments(text: str, path: str) -> dict[str, Any]:
    try:
        return parse_object(text, path, may_repeat=True)
    except HttpError as error:
        raise refusal(path, error.message) from None


def _without_nul(text: str, path: str) -> str:
    if "\0" in text:
        raise _nul(path)
    return text


def _nul(path: str) -> HttpError:
    return refusal("messages", f"{path} holds a NUL character; remove it")
