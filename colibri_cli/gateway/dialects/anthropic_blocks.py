"""Content blocks of the Messages API, translated to the turns of a chat.

Pure: blocks in, `ChatMessage`s out. What a text model cannot see (images, documents, the results of
tools that only the vendor's servers have) is refused by its place and type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.base import new_id
from colibri_cli.gateway.dialects.fields import refusal, shown

ID_DIGITS: Final = 24
ROLES: Final = ("user", "assistant", "system")

# Coding agents put a line with a checksum of the whole request in front of the system prompt. It
# says nothing to a model, and it would make every prompt differ at its first token.
_BILLING_LINE: Final = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?")
_ERROR_START: Final = ("error", "<tool_use_error>")


def check_system(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    """Return the system prompt: a text, or the texts of an array of text blocks joined."""
    if isinstance(value, str):
        return _BILLING_LINE.sub("", value)
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be a text or an array of text blocks")
    texts = [_text_block(block, f"{path}.{index}") for index, block in enumerate(value)]
    return "".join(_BILLING_LINE.sub("", text) for text in texts)


def check_messages(value: Any, path: str) -> tuple[ChatMessage, ...]:  # noqa: ANN401 - any JSON
    """Return the turns of a conversation."""
    if not isinstance(value, list) or not value:
        raise refusal(path, f"{path} must be an array with at least one message")
    turns: list[ChatMessage] = []
    names: dict[str, str] = {}
    for index, message in enumerate(value):
        turns.extend(_message(message, f"{path}.{index}", names))
    return tuple(turns)


@dataclass(slots=True)
class _Turn:
    """One message while its blocks are read; `names` are the functions of all calls so far."""

    role: str
    names: dict[str, str]
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ChatMessage] = field(default_factory=list)

    def messages(self) -> list[ChatMessage]:
        """Return what the message becomes: tool results first, then one turn of its role."""
        text = "".join(self.texts)
        reasoning = "".join(self.reasoning)
        if self.role == "assistant":
            if not (text or reasoning or self.calls):
                return []
            return [ChatMessage("assistant", text, reasoning, tuple(self.calls))]
        if self.results and not text:
            return self.results
        return [*self.results, ChatMessage(self.role, text)]


def _message(message: Any, path: str, names: dict[str, str]) -> list[ChatMessage]:  # noqa: ANN401
    if not isinstance(message, dict):
        raise refusal(path, f"{path} must be an object with a role and a content")
    role = message.get("role")
    if role not in ROLES:
        raise refusal(
            f"{path}.role", f"{path}.role must be one of {', '.join(ROLES)}, not {shown(role)}"
        )
    turn = _Turn(role, names)
    content = message.get("content")
    if isinstance(content, str):
        turn.texts.append(content)
    elif isinstance(content, list):
        for index, block in enumerate(content):
            _read_block(block, f"{path}.content.{index}", turn)
    else:
        raise refusal(f"{path}.content", f"{path}.content must be a text or an array of blocks")
    return turn.messages()


def _read_block(block: Any, path: str, turn: _Turn) -> None:  # noqa: ANN401 - any JSON value
    if not isinstance(block, dict):
        raise refusal(path, f"{path} must be an object with a type")
    kind = block.get("type")
    if kind == "text":
        turn.texts.append(_text_block(block, path))
    elif kind == "thinking" and turn.role == "assistant":
        turn.reasoning.append(_thinking(block, path))
    elif kind == "redacted_thinking" and turn.role == "assistant":
        pass  # encrypted by another server: accepted like there, but nobody here can read it
    elif kind == "tool_use" and turn.role == "assistant":
        turn.calls.append(_tool_use(block, path, turn.names))
    elif kind == "tool_result" and turn.role == "user":
        turn.results.append(_tool_result(block, path, turn.names))
    else:
        raise _unsupported_block(kind, path, turn.role)


def _text_block(block: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    kind = block.get("type") if isinstance(block, dict) else None
    if kind != "text":
        raise refusal(path, f"{path} must be a text block, not {shown(kind or block)}")
    if not isinstance(block.get("text"), str):
        raise refusal(f"{path}.text", f"{path}.text must be a text")
    text: str = block["text"]
    return text


def _thinking(block: dict[str, Any], path: str) -> str:
    for name in ("thinking", "signature"):
        if not isinstance(block.get(name), str):
            raise refusal(f"{path}.{name}", f"{path}.{name} must be a text")
    text: str = block["thinking"]
    return text


def _tool_use(block: dict[str, Any], path: str, names: dict[str, str]) -> ToolCall:
    name, arguments = block.get("name"), block.get("input")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.name", f"{path}.name must be the name of a tool")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise refusal(f"{path}.input", f"{path}.input must be an object, not {shown(arguments)}")
    call_id = block.get("id")
    if call_id is None:
        call_id = new_id("toolu_", ID_DIGITS)
    if not isinstance(call_id, str):
        raise refusal(f"{path}.id", f"{path}.id must be a text")
    names[call_id] = name
    return ToolCall(call_id, name, arguments)


def _tool_result(block: dict[str, Any], path: str, names: dict[str, str]) -> ChatMessage:
    call_id, content = block.get("tool_use_id"), block.get("content")
    if call_id is not None and not isinstance(call_id, str):
        raise refusal(f"{path}.tool_use_id", f"{path}.tool_use_id must be a text")
    if content is None:
        text = ""
    elif isinstance(content, str):
        text = content
    elif isinstance(content, list):
        text = "".join(
            _result_part(part, f"{path}.content.{index}") for index, part in enumerate(content)
        )
    else:
        raise refusal(
            f"{path}.content", f"{path}.content must be a text or an array of text blocks"
        )
    if block.get("is_error") is True and not text.lstrip().lower().startswith(_ERROR_START):
        text = f"Error: {text}"  # templates have no mark for a failed call
    name = names.get(call_id) if call_id is not None else None
    return ChatMessage("tool", text, tool_call_id=call_id, name=name)


def _result_part(part: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise _unsupported_block(kind, path, "tool_result")
    return _text_block(part, path)


def _unsupported_block(kind: object, path: str, place: str) -> Exception:
    if kind in ("thinking", "tool_use", "tool_result", "redacted_thinking"):
        return refusal(path, f"{path}: a block of type {kind} does not belong into {place} content")
    return refusal(
        f"{path}.type",
        f"{path}.type: content of type {shown(kind)} is not supported, this model reads text only",
        "unsupported_content_type",
    )
