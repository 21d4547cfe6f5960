"""JSON schemas of the Messages API, for the OpenAPI document: requests, answers, counts."""

from __future__ import annotations

from typing import Any, Final

EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
DISPLAYS: Final = ("summarized", "omitted")
MAX_STOP_SEQUENCES: Final = 4

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NULL_OR_TEXT: Final = {"type": ["string", "null"]}


def _block(kind: str, required: tuple[str, ...] = (), **members: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **members},
        "required": ["type", *required],
    }


def _text_or(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": list(blocks)}}]}


_TEXT_BLOCK: Final = _block("text", ("text",), text=_TEXT)
_RESULT_BLOCK: Final = _block(
    "tool_result",
    ("tool_use_id",),
    tool_use_id=_TEXT,
    content=_text_or(_TEXT_BLOCK),
    is_error={"type": "boolean"},
)
_USE_BLOCK: Final = _block(
    "tool_use",
    ("name",),
    id=_TEXT,
    name={"type": "string", "minLength": 1},
    input={"type": ["object", "null"]},
)
_THINKING_BLOCK: Final = _block(
    "thinking", ("thinking", "signature"), thinking=_TEXT, signature=_TEXT
)
SYSTEM_SCHEMA: Final = _text_or(_TEXT_BLOCK)


def _message(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"role": {"const": role}, "content": _text_or(*blocks)},
        "required": ["role", "content"],
    }


MESSAGES_SCHEMA: Final = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            _message("user", _TEXT_BLOCK, _RESULT_BLOCK),
            _message(
                "assistant",
                _TEXT_BLOCK,
                _USE_BLOCK,
                _THINKING_BLOCK,
                _block("redacted_thinking"),
            ),
            _message("system", _TEXT_BLOCK),
        ]
    },
}
TOOLS_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "type": {"enum": ["custom", None]},
            "description": _NULL_OR_TEXT,
            "input_schema": {"type": ["object", "null"]},
            "strict": {"type": ["boolean", "null"]},
        },
        "required": ["name"],
    },
}
TOOL_CHOICE_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "type": {"enum": ["auto", "any", "none", "tool"]},
        "name": {"description": "With the type tool: which one."},
        "disable_parallel_tool_use": {"type": ["boolean", "null"]},
    },
    "required": ["type"],
}
THINKING_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "description": "enabled, adaptive (here the same), or anything else for off.",
        },
        "budget_tokens": {"type": ["integer", "null"], "minimum": 1},
        "display": {"enum": [*DISPLAYS, None]},
    },
    "required": ["type"],
}
OUTPUT_FORMAT_SCHEMA: Final = {
    "type": "object",
    "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}},
    "required": ["type", "schema"],
}
OUTPUT_CONFIG_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "effort": {"enum": [*EFFORTS, None]},
        "format": {"anyOf": [OUTPUT_FORMAT_SCHEMA, {"type": "null"}]},
    },
}
STOPS_SCHEMA: Final = {
    "type": "array",
    "maxItems": MAX_STOP_SEQUENCES,
    "items": {"type": "string", "minLength": 1},
}

# ---- answers ----

MESSAGE_ANSWER: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": _TEXT,
        "content": {
            "type": "array",
            "items": {"anyOf": [_TEXT_BLOCK, _THINKING_BLOCK, _USE_BLOCK]},
        },
        "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        "stop_sequence": _NULL_OR_TEXT,
        "usage": {
            "type": "object",
            "properties": {
                "input_tokens": _COUNT,
                "cache_creation_input_tokens": _COUNT,
                "cache_read_input_tokens": _COUNT,
                "output_tokens": _COUNT,
                "output_tokens_details": {
                    "type": "object",
                    "properties": {"thinking_tokens": _COUNT},
                },
            },
            "required": ["input_tokens", "output_tokens"],
        },
    },
    "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
}
MESSAGE_EVENTS: Final = (
    "With `stream: true`: the events message_start, content_block_start, content_block_delta,"
    " content_block_stop, message_delta, message_stop, and ping in silences; error if the turn"
    " broke."
)
COUNT_ANSWER: Final = {
    "type": "object",
    "properties": {"input_tokens": _COUNT},
    "required": ["input_tokens"],
}
