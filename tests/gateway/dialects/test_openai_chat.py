"""Chat completions: answers to the byte, whole and streamed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colibri_cli.gateway.dialects import openai_chat
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.turns import (
    Finish,
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallAborted,
    ToolCallStarted,
    TurnEvent,
    TurnProgress,
)
from tests.gateway.dialects.openai_rig import (
    ABLE,
    SETTINGS,
    TOOL,
    accepted,
    chat,
    completed,
    deltas,
    logprob,
    objects,
    streamed,
    text_turn,
    tool_turn,
    whole,
)

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
ENVELOPE = {"id": "chatcmpl-0", "created": 1, "model": "test-model"}


def chunk(delta: dict[str, Any], finish: str | None = None, **members: object) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return ENVELOPE | {"object": "chat.completion.chunk", "choices": [choice | members]}


def test_a_whole_answer() -> None:
    assert whole(openai_chat, chat(), text_turn()) == {
        **ENVELOPE,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Héllo", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


def test_a_streamed_answer() -> None:
    assert streamed(openai_chat, chat(stream=True), text_turn()) == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hé"}),
        chunk({"content": "llo"}),
        chunk({}, "stop"),
        "[DONE]",
    ]


def test_ids_are_fresh_and_times_are_now() -> None:
    one, two = chat().render, chat().render
    assert one.id != two.id
    assert one.id.startswith("chatcmpl-")
    assert len(one.id) == len("chatcmpl-") + 32
    assert one.created > 1_700_000_000


def test_usage_comes_in_one_chunk_without_choices_when_asked_for() -> None:
    parsed = chat(stream=True, stream_options={"include_usage": True})
    *earlier, last, done = streamed(openai_chat, parsed, text_turn())
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == USAGE
    assert all(one["usage"] is None and one["choices"] for one in earlier)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_no_usage_without_the_option(options: object) -> None:
    chunks = streamed(openai_chat, chat(stream=True, stream_options=options), text_turn())
    assert all("usage" not in one for one in chunks[:-1])


@pytest.mark.parametrize(
    ("finish", "word"),
    [
        (Finish.STOP, "stop"),
        (Finish.STOP_SEQUENCE, "stop"),
        (Finish.LENGTH, "length"),
        (Finish.TOOL_CALLS, "tool_calls"),
    ],
)
def test_every_finish_reason_is_the_same_whole_and_streamed(finish: Finish, word: str) -> None:
    body = whole(openai_chat, chat(), text_turn(finish))
    assert body["choices"][0]["finish_reason"] == word
    chunks = streamed(openai_chat, chat(stream=True), text_turn(finish))
    reasons = [one["choices"][0]["finish_reason"] for one in chunks[:-1]]
    assert reasons == [None, None, None, word]


def test_calls_reasoning_and_text_in_a_whole_answer() -> None:
    choice = whole(openai_chat, chat(tools=[TOOL]), tool_turn())["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": "Checking.",
        "refusal": None,
        "reasoning_content": "need it",
        "tool_calls": [
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
            },
            {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    }


def test_calls_reasoning_and_text_in_a_stream() -> None:
    def more(index: int, text: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def begun(index: int, call_id: str, name: str) -> dict[str, Any]:
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        return {"tool_calls": [call]}

    chunks = streamed(openai_chat, chat(tools=[TOOL], stream=True), tool_turn())
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "need it"},
        {"content": "Checking. "},
        begun(0, "call_a", "weather"),
        more(0, '{"city":'),
        more(0, '"Rome"}'),
        begun(1, "call_b", "now"),
        more(1, "{}"),
        {},
    ]


def test_a_call_that_was_given_up_is_none() -> None:
    events: list[TurnEvent] = [
        accepted(),
        ToolCallStarted(0, "call_a", "weather"),
        ToolArguments(0, '{"city":"R'),
        ToolCallAborted(0, "<tool_call>weather"),
        completed(Finish.LENGTH),
    ]
    choice = whole(openai_chat, chat(tools=[TOOL]), events)["choices"][0]
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "length"
    chunks = streamed(openai_chat, chat(tools=[TOOL], stream=True), events)
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "text", "content"),
    [
        ({}, " hi ", " hi "),
        ({}, "", ""),
        ({"tools": [TOOL]}, " hi ", "hi"),
        ({"tools": [TOOL]}, " ", None),
        ({"tools": [TOOL], "tool_choice": "none"}, " ", " "),
    ],
)
def test_content_is_trimmed_only_where_tools_were_offered(
    fields: dict[str, Any], text: str, content: str | None
) -> None:
    body = whole(openai_chat, chat(**fields), [accepted(), TextPiece(text), completed()])
    assert body["choices"][0]["message"]["content"] == content


def test_several_choices_have_their_own_index_and_share_the_prompt() -> None:
    events: list[TurnEvent] = [
        accepted(),
        TextPiece("b", choice=1),
        TextPiece("a", choice=0),
        completed(Finish.LENGTH, choice=1),
        completed(choice=0),
    ]
    body = whole(openai_chat, chat(n=2), events)
    found = [(c["index"], c["message"]["content"], c["finish_reason"]) for c in body["choices"]]
    assert found == [(0, "a", "stop"), (1, "b", "length")]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (7, 4)
    parsed = chat(n=2, stream=True, stream_options={"include_usage": True})
    chunks = streamed(openai_chat, parsed, events)
    indices = [one["choices"][0]["index"] for one in chunks[:-2]]
    assert indices == [0, 1, 1, 0, 1, 0]
    assert chunks[-2]["usage"]["total_tokens"] == 11


def test_log_probabilities_in_both_modes() -> None:
    events: list[TurnEvent] = [
        accepted(),
        TextPiece("Hé", logprobs=(logprob("Hé", -0.5, ("Hé", -0.5), ("Ho", -1.5), ("x", -9)),)),
        TextPiece("", logprobs=(logprob("l"),)),
        TextPiece("lo", logprobs=(logprob("lo"),)),
        TextPiece("", logprobs=(logprob("!"),)),
        completed(),
    ]
    first = {
        "token": "Hé",
        "logprob": -0.5,
        "bytes": [72, 195, 169],
        "top_logprobs": [
            {"token": "Hé", "logprob": -0.5, "bytes": [72, 195, 169]},
            {"token": "Ho", "logprob": -1.5, "bytes": [72, 111]},
        ],
    }
    body = whole(openai_chat, chat(logprobs=True, top_logprobs=2), events)
    content = body["choices"][0]["logprobs"]["content"]
    assert content[0] == first
    assert [token["token"] for token in content] == ["Hé", "l", "lo", "!"]
    chunks = streamed(openai_chat, chat(stream=True, logprobs=True, top_logprobs=2), events)
    parts = [one["choices"][0]["logprobs"] for one in chunks[1:-1]]
    assert [token for part in parts for token in part["content"]] == content
    assert all(one["choices"][0]["delta"].get("content") != "" for one in chunks[1:-1])


def test_log_probabilities_without_alternatives() -> None:
    events: list[TurnEvent] = [accepted(), TextPiece("a", logprobs=(logprob("a"),)), completed()]
    body = whole(openai_chat, chat(logprobs=True), events)
    assert body["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_a_sign_of_life_adds_nothing() -> None:
    renderer = openai_chat.open_stream(chat(stream=True))
    (one,) = objects(renderer.keepalive())
    assert one["choices"][0]["delta"] == {"reasoning_content": ""}
    assert one["choices"][0]["finish_reason"] is None


def test_a_sign_of_life_is_visible_where_that_is_wanted() -> None:
    served = replace(ABLE, settings=replace(SETTINGS, has_visible_keepalive=True))
    renderer = openai_chat.open_stream(chat(served, stream=True))
    (one,) = objects(renderer.keepalive())
    assert one["choices"][0]["delta"] == {"reasoning_content": "."}


def test_progress_is_a_comment() -> None:
    renderer = openai_chat.open_stream(chat(stream=True))
    assert renderer.feed(TurnProgress(5, 10)) == [b": prefill 5/10\n\n"]


def test_a_failure_in_mid_stream_is_an_error_object_and_nothing_more() -> None:
    renderer = openai_chat.open_stream(chat(stream=True))
    frames = renderer.fail(HttpError(500, "the engine failed", code="engine_error"))
    assert objects(frames) == [
        {
            "error": {
                "message": "the engine failed",
                "type": "server_error",
                "param": None,
                "code": "engine_error",
            }
        }
    ]


def test_figures_of_the_turn_come_only_when_asked_for() -> None:
    stats = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "reused_tokens": 4,
        "tokens_per_second": 8.0,
        "hit_percent": 50.0,
        "rss_gb": 0.25,
        "length_limited": False,
    }
    expected = {"stats": stats, "queue_wait_ms": 3}
    body = whole(openai_chat, chat(x_colibri_telemetry=True), text_turn())
    assert body["colibri"] == expected
    chunks = streamed(openai_chat, chat(stream=True, x_colibri_telemetry=True), text_turn())
    assert chunks[-2]["colibri"] == expected
    assert chunks[-2]["choices"] == []
    assert chunks[-1] == "[DONE]"
    assert "colibri" not in whole(openai_chat, chat(), text_turn())


def test_text_that_no_utf8_can_carry_does_not_break_the_stream() -> None:
    events: list[TurnEvent] = [accepted(), ReasoningPiece("a\ud800b"), completed()]
    chunks = streamed(openai_chat, chat(stream=True), events)
    assert chunks[1]["choices"][0]["delta"] == {"reasoning_content": "a?b"}


def test_line_ends_in_text_stay_inside_their_frame() -> None:
    events: list[TurnEvent] = [accepted(), TextPiece("a\r\nb\u2028c\n"), completed()]
    chunks = streamed(openai_chat, chat(stream=True), events)
    assert chunks[1]["choices"][0]["delta"] == {"content": "a\r\nb\u2028c\n"}
