"""Objects and events of the Responses API, written from scripted turns, whole and streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from colibri_cli.chat_formats.base import ChatMessage, ToolCall
from colibri_cli.gateway.dialects.base import AnswerBuilder, ParsedRequest, Served
from colibri_cli.gateway.dialects.responses_dialect import (
    open_stream,
    parse_request,
    render_whole,
)
from colibri_cli.gateway.dialects.responses_input import pack_reasoning
from colibri_cli.gateway.dialects.responses_shapes import ResponseRender
from colibri_cli.gateway.dialects.responses_store import OwnedResponses, ResponseStore
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.turns import (
    Finish,
    ReasoningPiece,
    TextPiece,
    TokenLogprob,
    ToolArguments,
    ToolCallAborted,
    ToolCallFinished,
    ToolCallStarted,
    TurnAccepted,
    TurnCompleted,
    TurnEvent,
    TurnProgress,
    Usage,
)
from colibri_protocol.messages import Word

SERVED = Served(
    ServeSettings("demo", max_tokens=256), words=frozenset({Word.LOGPROBS}), can_think=True
)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
    {
        "type": "namespace",
        "name": "agents",
        "description": "Other agents.",
        "tools": [{"type": "function", "name": "spawn"}],
    },
]
ACCEPTED = TurnAccepted(prompt_tokens=7, reused_tokens=3, queue_wait_ms=0)
USAGE = Usage(prompt_tokens=7, completion_tokens=2, reused_tokens=3, reasoning_tokens=1)
STOPPED = TurnCompleted(Finish.STOP, USAGE)
CALLED = TurnCompleted(Finish.TOOL_CALLS, USAGE)
CUT = TurnCompleted(Finish.LENGTH, USAGE)
ROME = '{"city":"Rome"}'
ID = "resp_0"


def request(
    kept_in: ResponseStore | None = None, **fields: object
) -> ParsedRequest[ResponseRender]:
    responses = OwnedResponses(kept_in if kept_in is not None else ResponseStore())
    parsed = parse_request({"input": "Hi", **fields}, SERVED, {}, responses)
    return replace(parsed, render=replace(parsed.render, id=ID, created=1))


def call(index: int, name: str, *pieces: str) -> list[TurnEvent]:
    return [
        ToolCallStarted(index, f"call_{index}", name),
        *[ToolArguments(index, piece) for piece in pieces],
        ToolCallFinished(index),
    ]


def whole(parsed: ParsedRequest[ResponseRender], events: list[TurnEvent]) -> dict[str, Any]:
    builder = AnswerBuilder()
    for event in [ACCEPTED, *events]:
        builder.feed(event)
    return render_whole(parsed, builder.finish())


def streamed(
    parsed: ParsedRequest[ResponseRender], events: list[TurnEvent]
) -> list[dict[str, Any]]:
    """Return the data of all events; checks the form and the numbers of the frames."""
    stream = open_stream(parsed)
    frames = stream.begin()
    for event in [ACCEPTED, *events]:
        frames += stream.feed(event)
    return data_of(frames + stream.end())


def data_of(frames: list[bytes]) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = []
    for frame in frames:
        head, body, rest = frame.decode().split("\n", 2)
        assert rest == "\n"
        event = json.loads(body.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        assert event["sequence_number"] == len(data)
        data.append(event)
    return data


def names(data: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in data]


# ---- golden ----


def test_a_response() -> None:
    parsed = request(instructions="be brief", metadata={"a": "b"}, temperature=0.5)
    assert whole(parsed, [TextPiece("Hé"), TextPiece("llo"), STOPPED]) == {
        "id": "resp_0",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": "demo",
        "instructions": "be brief",
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 0.9,
        "truncation": "disabled",
        "user": None,
        "output": [
            {
                "id": "msg_000",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "annotations": [], "logprobs": [], "text": "Héllo"}
                ],
            }
        ],
        "usage": {
            "input_tokens": 7,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 9,
        },
    }


def test_the_events_of_a_text() -> None:
    data = streamed(request(), [TextPiece("Hé"), TextPiece("llo"), STOPPED])
    assert names(data) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert data[0]["response"]["status"] == "in_progress"
    assert data[0]["response"]["usage"] is None
    assert data[2:9] == [
        {
            "type": "response.output_item.added",
            "sequence_number": 2,
            "output_index": 0,
            "item": {
                "id": "msg_000",
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            },
        },
        {
            "type": "response.content_part.added",
            "sequence_number": 3,
            "item_id": "msg_000",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "annotations": [], "logprobs": [], "text": ""},
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 4,
            "item_id": "msg_000",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hé",
            "logprobs": [],
        },
        {
            "type": "response.output_text.delta",
            "sequence_number": 5,
            "item_id": "msg_000",
            "output_index": 0,
            "content_index": 0,
            "delta": "llo",
            "logprobs": [],
        },
        {
            "type": "response.output_text.done",
            "sequence_number": 6,
            "item_id": "msg_000",
            "output_index": 0,
            "content_index": 0,
            "text": "Héllo",
            "logprobs": [],
        },
        {
            "type": "response.content_part.done",
            "sequence_number": 7,
            "item_id": "msg_000",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "annotations": [], "logprobs": [], "text": "Héllo"},
        },
        {
            "type": "response.output_item.done",
            "sequence_number": 8,
            "output_index": 0,
            "item": {
                "id": "msg_000",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "annotations": [], "logprobs": [], "text": "Héllo"}
                ],
            },
        },
    ]


def test_the_events_of_a_call() -> None:
    data = streamed(request(tools=TOOLS), [*call(0, "weather", '{"city":', '"Rome"}'), CALLED])
    item = {
        "id": "fc_000",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_0",
        "name": "weather",
        "arguments": ROME,
    }
    place = {"item_id": "fc_000", "output_index": 0}
    event = "response.function_call_arguments"
    assert [{k: v for k, v in one.items() if k != "sequence_number"} for one in data[2:-1]] == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "arguments": ""},
        },
        {"type": f"{event}.delta", **place, "delta": '{"city":'},
        {"type": f"{event}.delta", **place, "delta": '"Rome"}'},
        {"type": f"{event}.done", **place, "arguments": ROME},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


@pytest.mark.parametrize("summary", [None, "auto"])
def test_the_events_of_reasoning(summary: str | None) -> None:
    parsed = request(reasoning={"effort": "low", "summary": summary})
    events: list[TurnEvent] = [ReasoningPiece("a "), ReasoningPiece("b"), TextPiece("c"), STOPPED]
    data = streamed(parsed, events)
    if summary is None:
        part, text, place = "content_part", "reasoning_text", "content_index"
    else:
        part, text, place = "reasoning_summary_part", "reasoning_summary_text", "summary_index"
    assert names(data)[2:9] == [
        "output_item.added",
        f"{part}.added",
        f"{text}.delta",
        f"{text}.delta",
        f"{text}.done",
        f"{part}.done",
        "output_item.done",
    ]
    assert [data[4]["delta"], data[5]["delta"], data[6]["text"]] == ["a ", "b", "a b"]
    assert data[4][place] == 0
    item = data[8]["item"]
    shown = item["content"] if summary is None else item["summary"]
    kind = "reasoning_text" if summary is None else "summary_text"
    assert shown == [{"type": kind, "text": "a b"}]
    assert data[9]["output_index"] == 1


def test_the_events_of_a_custom_tool() -> None:
    data = streamed(request(tools=TOOLS), [*call(0, "patch", '{"input":', '"x\\ny"}'), CALLED])
    assert names(data)[2:-1] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert data[3]["delta"] == data[4]["input"] == "x\ny"
    assert data[5]["item"] == {
        "id": "ctc_000",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_0",
        "name": "patch",
        "input": "x\ny",
    }


# ---- the same, streamed or not ----


def text_of(item: dict[str, Any]) -> str:
    match item["type"]:
        case "message":
            return "text " + "".join(part["text"] for part in item["content"])
        case "reasoning":
            return "reasoning " + "".join(part["text"] for part in item["content"])
        case "custom_tool_call":
            return f"{item['name']} {item['input']}"
        case _:
            return f"{item.get('namespace', '')}{item['name']} {item['arguments']}"


WITH_TOOLS = {"tools": TOOLS}


@pytest.mark.parametrize(
    ("fields", "events", "output", "status"),
    [
        ({}, [TextPiece("Hi"), STOPPED], ["text Hi"], "completed"),
        ({}, [TextPiece(" Hi "), STOPPED], ["text  Hi "], "completed"),
        ({}, [TextPiece("\n"), STOPPED], ["text \n"], "completed"),
        ({}, [STOPPED], [], "completed"),
        ({}, [TextPiece("Hi"), CUT], ["text Hi"], "incomplete"),
        ({}, [ReasoningPiece("a"), CUT], ["reasoning a"], "incomplete"),
        (
            {},
            [ReasoningPiece("a"), TextPiece("\n\n"), TextPiece("b"), STOPPED],
            ["reasoning a", "text \n\nb"],
            "completed",
        ),
        (WITH_TOOLS, [*call(0, "weather", ROME), CALLED], [f"weather {ROME}"], "completed"),
        (WITH_TOOLS, [*call(0, "weather"), CALLED], ["weather {}"], "completed"),
        (WITH_TOOLS, [*call(0, "spawn", "{}"), CALLED], ["agentsspawn {}"], "completed"),
        (WITH_TOOLS, [*call(0, "patch", '{"input":"x"}'), CALLED], ["patch x"], "completed"),
        (
            WITH_TOOLS,
            [
                ReasoningPiece("a"),
                TextPiece("\nLet me.\n"),
                *call(0, "weather", ROME),
                TextPiece("\n"),
                *call(1, "weather", '{"city":"Oslo"}'),
                CALLED,
            ],
            ["reasoning a", "text Let me.", f"weather {ROME}", 'weather {"city":"Oslo"}'],
            "completed",
        ),
        (
            WITH_TOOLS,
            [
                TextPiece("a"),
                ToolCallStarted(0, "call_0", "weather"),
                ToolArguments(0, '{"city":"Ro'),
                ToolCallAborted(0),
                CUT,
            ],
            ["text a"],
            "incomplete",
        ),
    ],
)
def test_output_and_status(
    fields: dict[str, Any], events: list[TurnEvent], output: list[str], status: str
) -> None:
    body = whole(request(**fields), events)
    data = streamed(request(**fields), events)
    last = data[-1]["response"]
    assert [text_of(item) for item in body["output"]] == output
    assert [text_of(item) for item in last["output"]] == output
    assert data[-1]["type"] == f"response.{status}"
    assert body["status"] == last["status"] == status
    assert body["usage"] == last["usage"]
    assert [item["id"] for item in body["output"]] == [item["id"] for item in last["output"]]
    reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
    assert body["incomplete_details"] == last["incomplete_details"] == reason
    added = [event["item"]["id"] for event in data if event["type"].endswith("item.added")]
    done = [event["item"]["id"] for event in data if event["type"].endswith("item.done")]
    assert added == done


def test_logprobs() -> None:
    piece = TextPiece("Hi", logprobs=(TokenLogprob("Hi", b"Hi", -0.5, (("Ho", b"Ho", -1.0),)),))
    expected = [
        {
            "token": "Hi",
            "logprob": -0.5,
            "bytes": [72, 105],
            "top_logprobs": [{"token": "Ho", "logprob": -1.0, "bytes": [72, 111]}],
        }
    ]
    parsed = request(top_logprobs=1)
    assert whole(parsed, [piece, STOPPED])["output"][0]["content"][0]["logprobs"] == expected
    data = streamed(parsed, [piece, STOPPED])
    assert data[4]["logprobs"] == data[5]["logprobs"] == expected


def test_reasoning_is_packed_for_clients_without_state() -> None:
    parsed = request(include=["reasoning.encrypted_content"], store=False)
    body = whole(parsed, [ReasoningPiece("a"), TextPiece("b"), STOPPED])
    assert body["output"][0]["encrypted_content"] == pack_reasoning("a")


# ---- keeping ----


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_is_kept(is_streamed: bool) -> None:
    store = ResponseStore()
    parsed = request(store, tools=TOOLS, instructions="be brief")
    events = [ReasoningPiece("a"), TextPiece("b"), *call(0, "weather", ROME), CALLED]
    body = streamed(parsed, events)[-1]["response"] if is_streamed else whole(parsed, events)
    stored = store.get(None, ID)
    assert stored is not None
    assert stored.body == body
    assert stored.messages == (
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "b", "a", (ToolCall("call_0", "weather", {"city": "Rome"}),)),
    )
    assert [item["content"] for item in stored.input_items] == ["Hi"]


def test_half_a_call_is_none() -> None:
    started: list[TurnEvent] = [ToolCallStarted(0, "call_0", "weather")]
    started.append(ToolArguments(0, '{"city":"Ro'))
    store = ResponseStore()
    assert whole(request(store, tools=TOOLS), [*started, CUT])["output"] == []
    assert streamed(request(store, tools=TOOLS), [*started, CUT])[-1]["response"]["output"] == []
    assert len(store) == 1


def test_an_answer_is_not_kept_if_forbidden() -> None:
    store = ResponseStore()
    whole(request(store, store=False), [TextPiece("b"), STOPPED])
    assert len(store) == 0


# ---- signs of life, failures ----


def test_silence_is_filled_with_what_was_said_before() -> None:
    stream = open_stream(request())
    frames = [*stream.begin(), *stream.feed(ACCEPTED), *stream.keepalive()]
    assert names(data_of(frames)) == ["created", "in_progress", "in_progress"]


def test_progress_is_a_comment() -> None:
    stream = open_stream(request())
    stream.begin()
    assert stream.feed(TurnProgress(512, 2048)) == [b": prefill 512/2048\n\n"]
    assert stream.feed(TurnProgress(2048, 2048)) == []


def test_a_failure_after_the_start() -> None:
    stream = open_stream(request())
    frames = [*stream.begin(), *stream.feed(ACCEPTED), *stream.feed(TextPiece("a"))]
    frames += stream.fail(HttpError(503, "the engine is not ready", code="engine_error"))
    event = data_of(frames)[-1]
    assert event["type"] == "response.failed"
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {
        "code": "server_error",
        "message": "the engine is not ready",
    }
