"""Input items of the Responses API, translated to the turns of a chat.

Items of one answer (reasoning, text, calls) become one assistant turn. What a text model cannot
see, and the records of tools that only the vendor's servers have, is refused by place and type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.base import new_id, parse_object
from colibri_cli.gateway.dialects.fields import refusal, shown
from colibri_cli.gateway.dialects.responses_tools import CUSTOM_INPUT
from colibri_cli.gateway.http_types import HttpError

if TYPE_CHECKING:
    from colibri_cli.gateway.dialects.responses_tools import Tools

ID_DIGITS: Final = 32
ROLES: Final = ("user", "assistant", "system", "developer")
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
# Reasoning travels to clients that keep no state and back in the field meant for such a parcel.
_PARCEL_PREFIX: Final = "colibri:"

Item = Mapping[str, Any]
FindItem = Callable[[str], Item | None]


def pack_reasoning(text: str) -> str:
    """Return reasoning as an opaque text for `encrypted_content`; it hides nothing."""
    return _PARCEL_PREFIX + base64.b64encode(text.encode(errors="replace")).decode()


def unpack_reasoning(parcel: str) -> str | None:
    """Return what was packed; None for a parcel of another server."""
    if not parcel.startswith(_PARCEL_PREFIX):
        return None
    try:
        return base64.b64decode(parcel.removeprefix(_PARCEL_PREFIX), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def check_input(value: Any, path: str) -> tuple[Item, ...]:  # noqa: ANN401 - any JSON value
    """Return the input as items, each with an id; a text is one message of the user."""
    if isinstance(value, str):
        value = [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be a text or an array of items, not {shown(value)}")
    items: list[Item] = []
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise refusal(f"{path}.{index}", f"{path}.{index} must be an object")
        known = {"type": "message", **item} if "role" in item else item
        items.append(
            known if isinstance(item.get("id"), str) else {**known, "id": _fresh_id(known)}
        )
    return tuple(items)


def read_items(
    items: tuple[Item, ...],
    tools: Tools,
    find_item: FindItem,
    earlier: tuple[ChatMessage, ...] = (),
) -> tuple[ChatMessage, ...]:
    """Return the turns that items become.

    Args:
        items: From `check_input`, or the output of an answer.
        tools: The declared tools.
        find_item: Returns an output item of an earlier answer.
        earlier: Turns these follow.

    Raises:
        HttpError: 400 naming the part that cannot be taken, 404 for an unknown reference.
    """
    names = {call.id: call.name for turn in earlier for call in turn.tool_calls}
    reader = _Reader(tools, find_item, names=names)
    for index, item in enumerate(items):
        reader.read(item, f"input.{index}")
    return reader.finish()


@dataclass(slots=True)
class _Reader:
    """Gathers items into turns; `texts`, `reasoning` and `calls` are of the open assistant turn."""

    tools: Tools
    find_item: FindItem
    turns: list[ChatMessage] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def read(self, item: Item, path: str) -> None:
        """Take the next item."""
        kind = item.get("type")
        if kind == "message":
            self._message(item, path)
        elif kind == "reasoning":
            if self.texts or self.calls:
                self._close()  # an answer begins with its reasoning
            self.reasoning.append(_reasoning(item, path))
        elif kind in ("function_call", "custom_tool_call"):
            self._call(item, path, is_custom=kind == "custom_tool_call")
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._output(item, path)
        elif kind == "item_reference":
            self._reference(item, path)
        else:
            raise refusal(
                f"{path}.type",
                f"{path}.type: items of the type {shown(kind)} are not supported",
                "unsupported_content_type",
            )

    def finish(self) -> tuple[ChatMessage, ...]:
        """Return all turns."""
        self._close()
        return tuple(self.turns)

    def _close(self) -> None:
        if self.texts or self.reasoning or self.calls:
            text, reasoning = "".join(self.texts), "".join(self.reasoning)
            self.turns.append(ChatMessage("assistant", text, reasoning, tuple(self.calls)))
        self.texts, self.reasoning, self.calls = [], [], []

    def _message(self, item: Item, path: str) -> None:
        role = item.get("role")
        if role not in ROLES:
            raise refusal(
                f"{path}.role",
                f"{path}.role must be one of {', '.join(ROLES)}, not {shown(role)}",
                "unsupported_role",
            )
        text = _content(item.get("content"), f"{path}.content", is_answer=role == "assistant")
        if role != "assistant":
            self._close()
            # formats know one role for instructions; developer is its newer name
            self.turns.append(ChatMessage("system" if role == "developer" else role, text))
            return
        if self.texts and not self.calls:
            self._close()
        self.texts.append(text)

    def _call(self, item: Item, path: str, *, is_custom: bool) -> None:
        name, call_id = _text_of(item, "name", path), _text_of(item, "call_id", path)
        namespace = item.get("namespace")
        seen = self.tools.model_name(name, namespace if isinstance(namespace, str) else None)
        arguments: Mapping[str, Any]
        if is_custom:
            arguments = {CUSTOM_INPUT: _text_of(item, "input", path)}
        else:
            arguments = _arguments(item.get("arguments"), f"{path}.arguments")
        self.names[call_id] = seen
        self.calls.append(ToolCall(call_id, seen, arguments))

    def _output(self, item: Item, path: str) -> None:
        self._close()
        call_id = _text_of(item, "call_id", path)
        text = _content(item.get("output"), f"{path}.output", is_answer=False)
        name = self.names.get(call_id)
        self.turns.append(ChatMessage("tool", text, tool_call_id=call_id, name=name))

    def _reference(self, item: Item, path: str) -> None:
        item_id = _text_of(item, "id", path)
        found = self.find_item(item_id)
        if found is None:
            raise HttpError(
                404,
                f"{path}.id: there is no item {shown(item_id)}; answers are kept for a day, and not"
                " over a restart of the server",
                code="not_found",
                param=f"{path}.id",
            )
        self.read(found, path)


def _content(value: Any, path: str, *, is_answer: bool) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be a text or an array of parts, not {shown(value)}")
    return "".join(
        _part(part, f"{path}.{index}", is_answer=is_answer) for index, part in enumerate(value)
    )


def _part(part: Any, path: str, *, is_answer: bool) -> str:  # noqa: ANN401 - any JSON value
    kind = part.get("type") if isinstance(part, dict) else None
    if is_answer and kind == "refusal":
        return _text_of(part, "refusal", path)
    if kind not in _TEXT_PARTS:
        raise refusal(
            path,
            f"{path} must be a text part, not one of the type {shown(kind)}: this server reads text"
            " only, no images, audio or files",
            "unsupported_content_type",
        )
    return _text_of(part, "text", path)


def _reasoning(item: Item, path: str) -> str:
    """Return the reasoning text: as content, as a parcel of ours, or what a summary says."""
    if text := _reasoning_parts(item.get("content"), f"{path}.content"):
        return text
    parcel = item.get("encrypted_content")
    if isinstance(parcel, str) and (text := unpack_reasoning(parcel) or ""):
        return text
    return _reasoning_parts(item.get("summary"), f"{path}.summary")


def _reasoning_parts(value: Any, path: str) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    if not isinstance(value, list):
        raise refusal(path, f"{path} must be an array of parts, not {shown(value)}")
    texts = []
    for index, part in enumerate(value):
        if not isinstance(part, dict):
            raise refusal(f"{path}.{index}", f"{path}.{index} must be an object")
        texts.append(_text_of(part, "text", f"{path}.{index}"))
    return "\n\n".join(texts)


def _arguments(value: Any, path: str) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, str):
        raise refusal(path, f"{path} must be the JSON text of an object, not {shown(value)}")
    if not value:
        return {}
    try:
        return parse_object(value, path, may_repeat=True)
    except HttpError as error:
        raise refusal(path, error.message) from None


def _text_of(item: Mapping[str, Any], name: str, path: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise refusal(f"{path}.{name}", f"{path}.{name} must be a text, not {shown(value)}")
    return value


def _fresh_id(item: Item) -> str:
    prefixes = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
    kind = item.get("type")
    return new_id(prefixes.get(kind, "item_") if isinstance(kind, str) else "item_", ID_DIGITS)
