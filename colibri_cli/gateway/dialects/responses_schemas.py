"""JSON schemas of the Responses API, for the OpenAPI document: requests, answers."""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_STATUSES: Final = ["completed", "in_progress", "incomplete", "failed"]


def _item(kind: str, *required: str, **members: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **members},
        "required": ["type", *required],
    }


def _parts(*kinds: str) -> dict[str, Any]:
    parts = [_item(kind, "text", text=_TEXT) for kind in kinds]
    return {"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": parts}}]}


_OUTPUT: Final = _parts("input_text")
INPUT_SCHEMA: Final = {
    "anyOf": [
        _TEXT,
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {
                            "type": {"const": "message"},
                            "role": {"enum": ["user", "assistant", "system", "developer"]},
                            "content": _parts("input_text", "output_text"),
                        },
                        "required": ["role", "content"],
                    },
                    _item(
                        "function_call",
                        "call_id",
                        "name",
                        "arguments",
                        call_id=_TEXT,
                        name=_TEXT,
                        arguments={"type": "string", "description": "JSON text of an object."},
                    ),
                    _item(
                        "function_call_output", "call_id", "output", call_id=_TEXT, output=_OUTPUT
                    ),
                    _item(
                        "custom_tool_call",
                        "call_id",
                        "name",
                        "input",
                        call_id=_TEXT,
                        name=_TEXT,
                        input=_TEXT,
                    ),
                    _item(
                        "custom_tool_call_output",
                        "call_id",
                        "output",
                        call_id=_TEXT,
                        output=_OUTPUT,
                    ),
                    _item("reasoning"),
                    _item("item_reference", "id", id=_TEXT),
                ]
            },
        },
    ]
}
_FUNCTION: Final = _item(
    "function",
    "name",
    name={"type": "string", "minLength": 1},
    description={"type": ["string", "null"]},
    parameters={"type": ["object", "null"]},
    strict={"type": ["boolean", "null"]},
)
_CUSTOM: Final = _item(
    "custom",
    "name",
    name={"type": "string", "minLength": 1},
    description={"type": ["string", "null"]},
)
TOOLS_SCHEMA: Final = {
    "type": "array",
    "items": {
        "anyOf": [
            _FUNCTION,
            _CUSTOM,
            _item(
                "namespace",
                "name",
                "tools",
                name={"type": "string", "minLength": 1},
                tools={"type": "array", "items": {"anyOf": [_FUNCTION, _CUSTOM]}},
            ),
            _item("web_search"),
        ]
    },
}
TOOL_CHOICE_SCHEMA: Final = {
    "anyOf": [
        {"enum": ["auto", "none", "required"]},
        _item("function", "name", name=_TEXT),
        _item("custom", "name", name=_TEXT),
        _item(
            "allowed_tools",
            "mode",
            "tools",
            mode={"enum": ["auto", "required"]},
            tools={"type": "array", "minItems": 1, "items": {"type": "object"}},
        ),
    ]
}
TEXT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "format": {
            "anyOf": [
                {"type": "null"},
                _item("text"),
                _item("json_object"),
                _item(
                    "json_schema",
                    "schema",
                    name=_TEXT,
                    schema={"type": "object"},
                    strict={"type": ["boolean", "null"]},
                ),
            ]
        },
        "verbosity": {"enum": ["low", "medium", "high", None]},
    },
}
REASONING_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", None]},
        "summary": {"enum": ["auto", "concise", "detailed", None]},
    },
}

# ---- answers ----

RESPONSE_ANSWER: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": _STATUSES},
        "model": _TEXT,
        "output": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "type": {"enum": ["reasoning", "message", "function_call", "custom_tool_call"]},
                    "status": {"enum": _STATUSES},
                },
                "required": ["id", "type"],
            },
        },
        "usage": {
            "type": ["object", "null"],
            "properties": {
                "input_tokens": _COUNT,
                "output_tokens": _COUNT,
                "total_tokens": _COUNT,
            },
        },
    },
    "required": ["id", "object", "created_at", "status", "model", "output"],
}
RESPONSE_EVENTS: Final = (
    "With `stream: true`: response.created, response.in_progress, then per output item"
    " response.output_item.added, its parts and deltas, response.output_item.done; at the end"
    " response.completed, response.incomplete or response.failed. Every event has a"
    " sequence_number."
)
DELETED_ANSWER: Final = {
    "type": "object",
    "properties": {"id": _TEXT, "object": {"const": "response"}, "deleted": {"const": True}},
    "required": ["id", "object", "deleted"],
}
ITEMS_ANSWER: Final = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object"}},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
    "required": ["object", "data", "first_id", "last_id", "has_more"],
}
COUNT_ANSWER: Final = {
    "type": "object",
    "properties": {"object": {"const": "response.input_tokens"}, "input_tokens": _COUNT},
    "required": ["object", "input_tokens"],
}
