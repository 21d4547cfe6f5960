"""JSON schemas of what the OpenAI text endpoints answer, for the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_FINISH: Final = {"enum": ["stop", "length", "tool_calls"]}

USAGE: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": _COUNT}},
        "completion_tokens_details": {"type": "object", "properties": {"reasoning_tokens": _COUNT}},
    },
}
_TOKEN: Final = {
    "token": _TEXT,
    "logprob": {"type": "number", "maximum": 0},
    "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
}
_CHAT_LOGPROBS: Final = {
    "type": ["object", "null"],
    "properties": {
        "content": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **_TOKEN,
                    "top_logprobs": {
                        "type": "array",
                        "items": {"type": "object", "properties": _TOKEN},
                    },
                },
            },
        },
        "refusal": {"type": "null"},
    },
}
_TOOL_CALL: Final = {
    "type": "object",
    "required": ["id", "type", "function"],
    "properties": {
        "id": _TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {
                "name": _TEXT,
                "arguments": {"type": "string", "description": "JSON text of an object."},
            },
        },
    },
}
_MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content", "refusal"],
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": ["string", "null"]},
        "refusal": {"type": "null"},
        "reasoning_content": _TEXT,
        "tool_calls": {"type": "array", "items": _TOOL_CALL},
    },
}
_LEGACY_LOGPROBS: Final = {
    "type": ["object", "null"],
    "properties": {
        "tokens": {"type": "array", "items": _TEXT},
        "token_logprobs": {"type": "array", "items": {"type": "number"}},
        "top_logprobs": {"type": ["array", "null"], "items": {"type": "object"}},
        "text_offset": {"type": "array", "items": _COUNT},
    },
}


def _answer(object_word: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    members = {"index": _COUNT, "finish_reason": _FINISH, **choice}
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": _TEXT,
            "object": {"const": object_word},
            "created": _COUNT,
            "model": _TEXT,
            "choices": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "required": list(members), "properties": members},
            },
            "usage": USAGE,
            "colibri": {"type": "object", "description": "With x_colibri_telemetry."},
        },
    }


CHAT_ANSWER: Final = _answer("chat.completion", {"message": _MESSAGE, "logprobs": _CHAT_LOGPROBS})
COMPLETION_ANSWER: Final = _answer("text_completion", {"text": _TEXT, "logprobs": _LEGACY_LOGPROBS})

_CHUNK_ORDER: Final = (
    " and last one with the finish reason; with stream_options.include_usage one with `choices: []`"
    ' and `usage`; `data: [DONE]`. A failure is `data: {"error": …}` without `[DONE]`.'
)
CHAT_EVENTS: Final = (
    "`data:` chunks (`chat.completion.chunk`): per choice first the role, then pieces in"
    " `reasoning_content`, `content` and `tool_calls`" + _CHUNK_ORDER
)
COMPLETION_EVENTS: Final = (
    "`data:` chunks (`text_completion`): per choice pieces in `text`" + _CHUNK_ORDER
)
