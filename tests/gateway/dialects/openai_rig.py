"""Requests and scripted answers for the tests of the OpenAI dialects."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from colibri_cli.gateway.dialects import openai_chat
from colibri_cli.gateway.dialects.base import AnswerBuilder, ParsedRequest, Served
from colibri_cli.gateway.dialects.openai_sampling import OpenAIRender
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.turns import (
    Finish,
    ReasoningPiece,
    TextPiece,
    TokenLogprob,
    ToolArguments,
    ToolCallFinished,
    ToolCallStarted,
    TurnAccepted,
    TurnCompleted,
    TurnEvent,
    Usage,
)
from colibri_protocol.messages import Word

SETTINGS = ServeSettings(model_id="test-model", aliases=("small",), max_tokens=64, kv_slots=2)
ABLE = Served(SETTINGS, words=frozenset(Word), family="llama", context_length=4096)
BASELINE = Served(SETTINGS, words=frozenset(), family="glm")
USER = [{"role": "user", "content": "Hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def chat(served: Served = ABLE, /, **fields: object) -> ParsedRequest[OpenAIRender]:
    """Parse a chat body; the message is `Hi` unless the fields say otherwise."""
    return openai_chat.parse_request({"messages": USER, **fields}, served, {})


def refused(served: Served = ABLE, /, **fields: object) -> HttpError:
    """Return the refusal of a chat body."""
    with pytest.raises(HttpError) as caught:
        chat(served, **fields)
    assert caught.value.status == 400
    return caught.value


def accepted() -> TurnAccepted:
    return TurnAccepted(prompt_tokens=7, reused_tokens=4, queue_wait_ms=3, slot=1)


def completed(finish: Finish = Finish.STOP, choice: int = 0) -> TurnCompleted:
    usage = Usage(7, 2, 4, 1)
    return TurnCompleted(finish, usage, None, choice, 8.0, hit_percent=50.0, rss_gb=0.25)


def text_turn(finish: Finish = Finish.STOP) -> list[TurnEvent]:
    return [accepted(), TextPiece("Hé"), TextPiece("llo"), completed(finish)]


def tool_turn() -> list[TurnEvent]:
    """Two calls after some text; the second has no arguments at all."""
    return [
        accepted(),
        ReasoningPiece("need it"),
        TextPiece("Checking. "),
        ToolCallStarted(0, "call_a", "weather"),
        ToolArguments(0, '{"city":'),
        ToolArguments(0, '"Rome"}'),
        ToolCallFinished(0),
        ToolCallStarted(1, "call_b", "now"),
        ToolCallFinished(1),
        completed(Finish.TOOL_CALLS),
    ]


def logprob(text: str, value: float = -0.25, *top: tuple[str, float]) -> TokenLogprob:
    return TokenLogprob(
        text, text.encode(), value, tuple((other, other.encode(), p) for other, p in top)
    )


def whole(
    dialect: ModuleType, parsed: ParsedRequest[OpenAIRender], events: list[TurnEvent]
) -> dict[str, Any]:
    """Return the body of an unstreamed answer, with a fixed id and time."""
    builder = AnswerBuilder(parsed.turn.num_choices)
    for event in events:
        builder.feed(event)
    body: dict[str, Any] = dialect.render_whole(_fixed(parsed), builder.finish())
    return body


def streamed(
    dialect: ModuleType, parsed: ParsedRequest[OpenAIRender], events: list[TurnEvent]
) -> list[Any]:
    """Return what a client gets from a stream: its objects, then "[DONE]"."""
    renderer = dialect.open_stream(_fixed(parsed))
    frames = [*renderer.begin()]
    for event in events:
        frames += renderer.feed(event)
    frames += renderer.end()
    return objects(frames)


def objects(frames: list[bytes]) -> list[Any]:
    """Return the data of frames as a client reads them: comments are skipped."""
    found = []
    for frame in frames:
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n") == 2
        if frame.startswith(b":"):
            continue
        data = frame.removeprefix(b"data: ").decode().strip()
        found.append(data if data == "[DONE]" else json.loads(data))
    return found


def deltas(chunks: list[Any]) -> list[Any]:
    """Return the delta of every chunk that has a choice."""
    return [c["choices"][0]["delta"] for c in chunks if c != "[DONE]" and c.get("choices")]


def _fixed(parsed: ParsedRequest[OpenAIRender]) -> ParsedRequest[OpenAIRender]:
    return replace(parsed, render=replace(parsed.render, id="chatcmpl-0", created=1))
