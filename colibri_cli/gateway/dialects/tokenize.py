"""The request and answer of `/tokenize`: how many tokens a text or a conversation has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects import openai_chat, openai_completions
from colibri_cli.gateway.dialects.fields import object_schema, refusal
from colibri_cli.gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.dialects.base import Served
    from colibri_cli.gateway.turns import TurnRequest

# What shapes a prompt, besides the text itself; how the answer is made does not.
_SHAPING: Final = (
    "model",
    "tools",
    "functions",
    "tool_choice",
    "enable_thinking",
    "reasoning_effort",
)
_TEXTS: Final = ("prompt", "messages")
TOKENIZE_FIELDS: Final = (
    *(
        replace(row, is_required=False)
        for row in (*COMPLETION_FIELDS, *CHAT_FIELDS)
        if row.name in _TEXTS
    ),
    *(row for row in CHAT_FIELDS if row.name in _SHAPING),
)
_NULL: Final = {"type": "null"}
TOKENIZE_SCHEMA: Final[Mapping[str, Any]] = {
    **object_schema(TOKENIZE_FIELDS),
    "oneOf": [  # one of them; the other may be null
        {"required": ["prompt"], "properties": {"prompt": {"not": _NULL}, "messages": _NULL}},
        {"required": ["messages"], "properties": {"messages": {"not": _NULL}, "prompt": _NULL}},
    ],
}
TOKENIZE_ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["count"],
    "properties": {
        "count": {"type": "integer", "minimum": 0},
        "max_model_len": {"type": "integer", "description": "Tokens a context holds."},
    },
}


def parse_request(body: Mapping[str, Any], served: Served) -> TurnRequest:
    """Return the turn whose prompt is to be counted.

    Raises:
        HttpError: 400 naming the field, 404 for a model that is not served.
    """
    given = [name for name in _TEXTS if body.get(name) is not None]
    if len(given) != 1:
        raise refusal("prompt", "exactly one of prompt (a text) and messages is needed")
    shaping = {name: body[name] for name in (*given, *_SHAPING) if name in body}
    if given == ["messages"]:
        return openai_chat.parse_request(shaping, served, {}).turn
    return openai_completions.parse_request(shaping, served, {}).turn


def render_count(count: int, served: Served) -> dict[str, Any]:
    """Return the answer."""
    limit = served.context_length
    return {"count": count} if limit is None else {"count": count, "max_model_len": limit}
