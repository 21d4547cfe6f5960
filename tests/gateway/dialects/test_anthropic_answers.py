"""Messages and events of the Messages API, written from scripted turns, whole and streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from colibri_cli.gateway.dialects.anthropic_messages import (
    open_stream,
    parse_request,
    render_error,
    render_whole,
)
from colibri_cli.gateway.dialects.anthropic_shapes import MessageRender
from colibri_cli.gateway.dialects.base import AnswerBuilder, ParsedRequest, Served, sse_frame
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.turns import (
    Finish,
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallFinished,
    ToolCallStarted,
    TurnAccepted,
    TurnCompleted,
    TurnEvent,
    TurnProgress,
    Usage,
)

SERVED = Served(ServeSettings("demo", max_tokens=256), can_think=True)
TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}]
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ACCEPTED = TurnAccepted(prompt_tokens=7, reused_tokens=3, queue_wait_ms=0)
USAGE = Usage(prompt_tokens=7, completion_tokens=2, reused_tokens=3)
STOPPED = TurnCompleted(Finish.STOP, USAGE)
CALLED = TurnCompleted(Finish.TOOL_CALLS, USAGE)
CUT = TurnCompleted(Finish.LENGTH, USAGE)
ROME = '{"city":"Rome"}'
OSLO = '{"city":"Oslo"}'


def request(**fields: object) -> ParsedRequest[MessageRender]:
    body: dict[str, Any] = {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
    parsed = parse_request({**body, **fields}, SERVED, {})
    return replace(parsed, render=replace(parsed.render, id="msg_0"))


def call(index: int, *pieces: str) -> list[TurnEvent]:
    return [
        ToolCallStarted(index, f"call_{index:024x}", "weather"),
        *[ToolArguments(index, piece) for piece in pieces],
        ToolCallFinished(index),
    ]


def whole(parsed: ParsedRequest[MessageRender], events: list[TurnEvent]) -> dict[str, Any]:
    builder = AnswerBuilder()
    for event in [ACCEPTED, *events]:
        builder.feed(event)
    return render_whole(parsed, builder.finish())


def frames(parsed: ParsedRequest[MessageRender], events: list[TurnEvent]) -> list[bytes]:
    stream = open_stream(parsed)
    written = stream.begin()
    for event in [ACCEPTED, *events]:
        written += stream.feed(event)
    return written + stream.end()


def streamed(parsed: ParsedRequest[MessageRender], events: list[TurnEvent]) -> list[dict[str, Any]]:
    """Return the data of all events; checks the form of every frame."""
    data = []
    for frame in frames(parsed, events):
        if frame.startswith(b":"):
            continue
        head, body, rest = frame.decode().split("\n", 2)
        assert rest == "\n"
        event = json.loads(body.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        data.append(event)
    return data


def content_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put a stream's blocks together, as the official clients do."""
    blocks: list[dict[str, Any]] = []
    arguments: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] += delta["signature"]
                case "input_json_delta":
                    index = event["index"]
                    arguments[index] = arguments.get(index, "") + delta["partial_json"]
    for index, text in arguments.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


# ---- golden ----


def test_a_message() -> None:
    assert whole(request(), [TextPiece("Hé"), TextPiece("llo"), STOPPED]) == {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "model": "demo",
        "content": [{"type": "text", "text": "Héllo"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "output_tokens": 2,
        },
    }


def test_the_bytes_of_a_stream() -> None:
    assert b"".join(frames(request(), [TextPiece("Hé"), TextPiece("llo"), STOPPED])).decode() == (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_0",'
        '"type":"message","role":"assistant","model":"demo","content":[],"stop_reason":null,'
        '"stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":0,'
        '"cache_read_input_tokens":3,"output_tokens":0}}}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"Hé"}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"llo"}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
        '"stop_sequence":null},"usage":{"input_tokens":4,"cache_creation_input_tokens":0,'
        '"cache_read_input_tokens":3,"output_tokens":2}}\n\n'
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_reasoning_then_text() -> None:
    pieces: list[TurnEvent] = [ReasoningPiece("a "), ReasoningPiece("b")]
    pieces += [TextPiece("\n\n"), TextPiece("c"), STOPPED]
    data = streamed(request(**THINKING), pieces)
    assert [(e["type"], e.get("index"), e.get("delta")) for e in data[1:-2]] == [
        ("content_block_start", 0, None),
        ("content_block_delta", 0, {"type": "thinking_delta", "thinking": "a "}),
        ("content_block_delta", 0, {"type": "thinking_delta", "thinking": "b"}),
        ("content_block_delta", 0, {"type": "signature_delta", "signature": "colibri-local"}),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, {"type": "text_delta", "text": "\n\nc"}),
        ("content_block_stop", 1, None),
    ]
    assert data[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}


def test_a_call_in_pieces() -> None:
    data = streamed(request(tools=TOOLS), [*call(0, '{"city":', '"Rome"}'), CALLED])
    assert data[1:-2] == [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {
                "type": "tool_use",
                "id": "toolu_000000000000000000000000",
                "name": "weather",
                "input": {},
            },
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"city":'},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '"Rome"}'},
        },
        {"type": "content_block_stop", "index": 0},
    ]


# ---- the same, streamed or not ----


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "colibri-local"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def used(index: int, city: str) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"toolu_{index:024x}",
        "name": "weather",
        "input": {"city": city},
    }


WITH_TOOLS = {"tools": TOOLS}
OMITTED = {"thinking": {"type": "adaptive", "display": "omitted"}}


@pytest.mark.parametrize(
    ("fields", "events", "content", "reason"),
    [
        ({}, [TextPiece("Hi"), STOPPED], [said("Hi")], "end_turn"),
        ({}, [TextPiece(" Hi "), STOPPED], [said(" Hi ")], "end_turn"),
        ({}, [TextPiece("\n"), STOPPED], [said("\n")], "end_turn"),
        ({}, [STOPPED], [], "end_turn"),
        ({}, [TextPiece("Hi"), CUT], [said("Hi")], "max_tokens"),
        (WITH_TOOLS, [*call(0, ROME), CALLED], [used(0, "Rome")], "tool_use"),
        (
            WITH_TOOLS,
            [TextPiece("\n"), *call(0, ROME), TextPiece("\n"), CALLED],
            [used(0, "Rome")],
            "tool_use",
        ),
        (
            WITH_TOOLS,
            [TextPiece("  Let "), TextPiece("me. "), TextPiece("\n"), *call(0, ROME), CALLED],
            [said("Let me."), used(0, "Rome")],
            "tool_use",
        ),
        (
            WITH_TOOLS,
            [*call(0, ROME), *call(1, '{"city":', '"Oslo"}'), CALLED],
            [used(0, "Rome"), used(1, "Oslo")],
            "tool_use",
        ),
        (THINKING, [ReasoningPiece("a b"), TextPiece("c"), STOPPED], [thought("a b"), said("c")],
         "end_turn"),
        (THINKING, [ReasoningPiece("a"), CUT], [thought("a")], "max_tokens"),
        (THINKING, [ReasoningPiece("a"), TextPiece("\n\n"), CUT], [thought("a")], "max_tokens"),
        (THINKING, [TextPiece("c"), STOPPED], [thought(""), said("c")], "end_turn"),
        (
            {**THINKING, **WITH_TOOLS},
            [ReasoningPiece("a"), TextPiece("\n"), *call(0, ROME), CALLED],
            [thought("a"), used(0, "Rome")],
            "tool_use",
        ),
        (OMITTED, [ReasoningPiece("a"), TextPiece("c"), STOPPED], [thought(""), said("c")],
         "end_turn"),
        ({}, [ReasoningPiece("a"), TextPiece("c"), STOPPED], [said("c")], "end_turn"),
    ],
)  # fmt: skip
def test_content_and_reason(
    fields: dict[str, Any],
    events: list[TurnEvent],
    content: list[dict[str, Any]],
    reason: str,
) -> None:
    parsed = request(**fields)
    message = whole(parsed, events)
    data = streamed(parsed, events)
    assert message["content"] == content
    assert content_of(data) == content
    assert message["stop_reason"] == reason
    assert data[-2]["delta"] == {"stop_reason": reason, "stop_sequence": None}
    assert data[-2]["usage"] == message["usage"]
    assert data[-1] == {"type": "message_stop"}


def test_a_stop_sequence_is_named() -> None:
    ended = TurnCompleted(Finish.STOP_SEQUENCE, USAGE, stop_text="END")
    expected = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    message = whole(request(), [TextPiece("a"), ended])
    assert {name: message[name] for name in expected} == expected
    assert streamed(request(), [TextPiece("a"), ended])[-2]["delta"] == expected


def test_a_call_without_arguments() -> None:
    events = [*call(0), CALLED]
    assert whole(request(tools=TOOLS), events)["content"][0]["input"] == {}
    data = streamed(request(tools=TOOLS), events)
    assert data[2]["delta"] == {"type": "input_json_delta", "partial_json": "{}"}


def test_half_a_call_is_none() -> None:
    started: list[TurnEvent] = [
        ToolCallStarted(0, "call_0", "weather"),
        ToolArguments(0, '{"city":"Ro'),
    ]
    assert whole(request(tools=TOOLS), [TextPiece("a"), *started, CUT])["content"] == [said("a")]
    data = streamed(request(tools=TOOLS), [*started, CUT])
    assert [event["type"] for event in data[-3:]] == [
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert data[-2]["delta"]["stop_reason"] == "max_tokens"


def test_reasoning_tokens_are_counted() -> None:
    usage = Usage(7, 5, reasoning_tokens=3)
    message = whole(request(**THINKING), [TurnCompleted(Finish.STOP, usage)])
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 3}


def test_a_model_that_cannot_reason_has_no_thinking_block() -> None:
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **THINKING}
    parsed = parse_request(body, Served(ServeSettings("demo")), {})
    assert whole(parsed, [TextPiece("OK"), STOPPED])["content"] == [said("OK")]
    assert content_of(streamed(parsed, [TextPiece("OK"), STOPPED])) == [said("OK")]


def test_edits_of_the_context_are_answered_with_none() -> None:
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    parsed = request(context_management=edits)
    assert whole(parsed, [STOPPED])["context_management"] == {"applied_edits": []}
    assert streamed(parsed, [STOPPED])[-2]["context_management"] == {"applied_edits": []}


# ---- signs of life, failures ----


def test_silence_is_filled_with_pings() -> None:
    assert open_stream(request()).keepalive() == [b'event: ping\ndata: {"type":"ping"}\n\n']


def test_progress_is_a_comment() -> None:
    stream = open_stream(request())
    stream.feed(ACCEPTED)
    assert stream.feed(TurnProgress(512, 2048)) == [b": prefill 512/2048\n\n"]
    assert stream.feed(TurnProgress(2048, 2048)) == []


def test_a_failure_after_the_start() -> None:
    stream = open_stream(request())
    stream.feed(ACCEPTED)
    assert stream.fail(HttpError(503, "the engine is not ready")) == [
        sse_frame(
            {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "the engine is not ready"},
            },
            "error",
        )
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (529, "overloaded_error"),
    ],
)
def test_the_envelope(status: int, kind: str) -> None:
    error = HttpError(status, "no", code="c", param="p", headers={"Retry-After": "1"})
    response = render_error(error, "req_1")
    assert response.status == status
    assert json.loads(response.body) == {
        "type": "error",
        "error": {"type": kind, "message": "no"},
        "request_id": "req_1",
    }
    assert response.headers == {"Retry-After": "1", "request-id": "req_1"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "the prompt has 5000 tokens, more than the limit of 4094",
            "prompt is too long: 5000 tokens > 4094 maximum",
        ),
        ("the prompt has an unknown number of tokens", "prompt is too long: the prompt has an"),
    ],
)
def test_words_that_make_agents_shorten_a_conversation(message: str, expected: str) -> None:
    error = HttpError(400, message, code="context_length_exceeded", param="messages")
    body = json.loads(render_error(error, "req_1").body)
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(expected)
