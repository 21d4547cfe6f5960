"""The Messages API end to end: a real server, the scripted engine behind it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from colibri_cli.gateway.auth import ApiKeys
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import GLM_MODEL, Gateway, launch_of, long_silence, running

PATH: Final = "/v1/messages"
THINKING: Final = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
WEATHER: Final = {
    "name": "weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
BILLING: Final = "x-anthropic-billing-header: cc_version=2.1.1; cc_entrypoint=cli; cch={};"
ROME: Final = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"
OSLO: Final = ROME.replace("Rome", "Oslo")
STRICT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def body_of(*messages: dict[str, Any] | str, **fields: object) -> dict[str, Any]:
    shown = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    return {"max_tokens": 16, "messages": shown, **fields}


async def post(gateway: Gateway, body: dict[str, Any], **headers: str) -> httpx.Response:
    return await gateway.client.post(PATH, json=body, headers=headers)


async def whole(
    gateway: Gateway, *messages: dict[str, Any] | str, **fields: object
) -> dict[str, Any]:
    response = await post(gateway, body_of(*messages, **fields))
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()
    return message


async def stream(
    gateway: Gateway, *messages: dict[str, Any] | str, **fields: object
) -> list[dict[str, Any]]:
    response = await post(gateway, body_of(*messages, stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the data of all events, their names checked."""
    events = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a stream's blocks, put together as clients do."""
    blocks: list[dict[str, Any]] = []
    pieces: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] += delta[name]
            if delta["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


async def both(
    gateway: Gateway, *messages: dict[str, Any] | str, **fields: object
) -> tuple[list[dict[str, Any]], str]:
    """Return content and stop reason, which must be the same in both modes but for ids."""
    message = await whole(gateway, *messages, **fields)
    events = await stream(gateway, *messages, **fields)
    content = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    streamed = [{k: v for k, v in block.items() if k != "id"} for block in blocks_of(events)]
    assert streamed == content
    assert events[-2]["delta"]["stop_reason"] == message["stop_reason"]
    return content, message["stop_reason"]


@pytest.mark.parametrize("is_baseline", [True, False])
def test_a_message(tmp_path: Path, is_baseline: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, is_baseline=is_baseline)) as gateway:
            message = await whole(gateway, "Hi [[pieces Hé|llo]]")
            assert re.fullmatch("msg_[0-9a-f]{24}", message["id"])
            assert message["content"] == [{"type": "text", "text": "Héllo"}]
            assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
            usage = message["usage"]
            assert usage["output_tokens"] == 2
            events = await stream(gateway, "Hi [[pieces Hé|llo]]")
            assert [event["type"] for event in events] == [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]
            begun = events[0]["message"]["usage"]
            assert begun["input_tokens"] > 0
            told = {**usage, "output_tokens": 0}
            if is_baseline:  # tells only at the end what it reused
                told["input_tokens"] += told["cache_read_input_tokens"]
                told["cache_read_input_tokens"] = 0
            assert begun == told

    run_async(body)


def test_headers(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            for is_stream in (False, True):
                request = body_of("Hi", stream=is_stream)
                response = await gateway.client.post(
                    f"{PATH}?beta=true",
                    json=request,
                    headers={"anthropic-version": "2023-06-01", "anthropic-beta": "a-2025,b-2026"},
                )
                assert response.status_code == 200
                assert response.headers["request-id"] == response.headers["x-request-id"]
                assert int(response.headers["x-colibri-queue-wait-ms"]) >= 0

    run_async(body)


# ---- reasoning ----


def test_reasoning_however_it_is_cut(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            text = "a b</think>c"
            cuts = [f"{text[:index]}|{text[index:]}" for index in range(1, len(text))]
            for pieces in [*cuts, "|".join(text)]:
                events = await stream(gateway, f"[[pieces {pieces}]]", **THINKING)
                assert blocks_of(events) == [
                    {"type": "thinking", "thinking": "a b", "signature": "colibri-local"},
                    {"type": "text", "text": "c"},
                ]
                kinds = [e.get("delta", {}).get("type") for e in events]
                assert kinds.count("signature_delta") == 1
                stop = kinds.index("signature_delta") + 1
                assert [events[stop + n]["type"] for n in (0, 1)] == [
                    "content_block_stop",
                    "content_block_start",
                ]

    run_async(body, 60)


def test_reasoning_is_asked_for_and_taken_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            content, reason = await both(gateway, "[[pieces why|</think>|c]]", **THINKING)
            assert reason == "end_turn"
            assert "<|system|>Reasoning Effort: High" in gateway.prompt
            assert gateway.prompt.endswith("<|assistant|><think>")
            turns: list[dict[str, Any]] = [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": "f"},
            ]
            await whole(gateway, *turns)
            assert "<|assistant|><think>why</think>c<|user|>f" in gateway.prompt

    run_async(body)


def test_reasoning_without_end_is_no_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            content, reason = await both(gateway, "[[endless]]", max_tokens=8, **THINKING)
            assert [block["type"] for block in content] == ["thinking"]
            assert content[0]["thinking"].startswith("word0 word1 ")
            assert reason == "max_tokens"

    run_async(body)


def test_a_budget_ends_reasoning(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            thinking = {"type": "enabled", "budget_tokens": 3}
            wanted = {"max_tokens": 8, "thinking": thinking, "cache_slot": 1}
            message = await whole(gateway, "[[endless]]", **wanted)
            assert [block["type"] for block in message["content"]] == ["thinking", "text"]
            assert message["content"][0]["thinking"] == "word0 word1 word2 "
            assert [request.slot for request in gateway.submitted] == [1, 1]

    run_async(body)


def test_markers_of_inkling(tmp_path: Path) -> None:
    async def body() -> None:
        model = {"family": "inkling", "chat_template": ""}
        async with running(launch_of(tmp_path, model=model)) as gateway:
            reply = "[[reply <|content_thinking|>why<|end_message|><|content_text|>answer]]"
            content, _ = await both(gateway, reply, **THINKING)
            assert content == [
                {"type": "thinking", "thinking": "why", "signature": "colibri-local"},
                {"type": "text", "text": "answer"},
            ]
            content, _ = await both(gateway, reply)
            assert content == [{"type": "text", "text": "answer"}]

    run_async(body)


# ---- stops ----


def test_a_role_mark_ends_the_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            content, reason = await both(gateway, "[[reply ready<|user|>more and more]]")
            assert content == [{"type": "text", "text": "ready"}]
            assert reason == "end_turn"

    run_async(body)


def test_stop_sequences(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            fields = {"stop_sequences": ["STOP", "END"], "top_k": 40}
            content, reason = await both(gateway, "[[pieces ab|c EN|D more]]", **fields)
            assert content == [{"type": "text", "text": "abc "}]
            assert reason == "stop_sequence"
            message = await whole(gateway, "[[pieces ab|c EN|D more]]", **fields)
            assert message["stop_sequence"] == "END"
            assert gateway.submitted[-1].options.top_k == 40

    run_async(body)


# ---- tools ----


def test_calls(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            fields = {"tools": [WEATHER], "max_tokens": 64}
            content, reason = await both(gateway, f"[[reply {ROME}]]", **fields)
            rome = {"type": "tool_use", "name": "weather", "input": {"city": "Rome"}}
            oslo = {"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}}
            assert (content, reason) == ([rome], "tool_use")
            content, _ = await both(gateway, f"[[reply {ROME}\n{OSLO}]]", **fields)
            assert content == [rome, oslo]
            content, _ = await both(gateway, f"[[reply Let me see.\n{ROME}]]", **fields)
            assert content == [{"type": "text", "text": "Let me see."}, rome]
            content, _ = await both(
                gateway,
                f"[[reply {ROME}{OSLO}]]",
                **fields,
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
            )
            assert content == [rome]

    run_async(body)


def test_calls_have_ids_of_their_own(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            events = await stream(
                gateway, f"[[reply {ROME}{OSLO}]]", tools=[WEATHER], max_tokens=64
            )
            blocks = blocks_of(events)
            ids = [block["id"] for block in blocks]
            assert len(set(ids)) == 2
            assert all(re.fullmatch("toolu_[0-9a-f]{24}", one) for one in ids)
            starts = [e["index"] for e in events if e["type"] == "content_block_start"]
            assert starts == [0, 1]

    run_async(body)


def test_results_of_calls(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "R"}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "25 degrees"}
            called = {"role": "assistant", "content": [use]}
            answered = {"role": "user", "content": [{"type": "text", "text": "and?"}, result]}
            await whole(gateway, "W?", called, answered, tools=[WEATHER])
            shown = "<|observation|><tool_response>25 degrees</tool_response>"
            assert f"{shown}<|user|>and?<|assistant|>" in gateway.prompt
            answered = {"role": "user", "content": [{**result, "is_error": True}]}
            await whole(gateway, "W?", called, answered, tools=[WEATHER])
            failed = shown.replace("25", "Error: 25")
            assert f"{failed}<|assistant|>" in gateway.prompt

    run_async(body)


# ---- instructions ----


def test_instructions_within_the_conversation(tmp_path: Path) -> None:
    async def body() -> None:
        instruction = {"role": "system", "content": "in French"}
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            await whole(gateway, "a", instruction, "b")
            assert "<|user|>a<|system|>in French<|user|>b" in gateway.prompt

    run_async(body)


def test_instructions_where_the_template_has_no_place_for_them(tmp_path: Path) -> None:
    async def body() -> None:
        instruction = {"role": "system", "content": "in French"}
        model = {"chat_template": STRICT_TEMPLATE}
        async with running(launch_of(tmp_path, model=model)) as gateway:
            await whole(gateway, "a", instruction)
            reminder = "<system-reminder>\nin French\n</system-reminder>"
            assert f"user\na\n\n{reminder}<|im_end|>" in gateway.prompt
            response = await gateway.client.post(
                f"{PATH}/count_tokens", json={"messages": body_of("a", instruction)["messages"]}
            )
            assert response.status_code == 200

    run_async(body)


def test_a_changing_billing_line_costs_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, model=GLM_MODEL, num_slots=4)
        async with running(launch, kv_slots=4) as gateway:
            usages, prompts = [], []
            for checksum in ("aaaa", "bbbb"):
                system = [
                    {"type": "text", "text": BILLING.format(checksum)},
                    {"type": "text", "text": "You are helpful."},
                ]
                message = await whole(gateway, "Hi", system=system)
                usages.append(message["usage"])
                prompts.append(gateway.prompt)
            assert prompts[0] == prompts[1]
            assert "billing" not in prompts[0]
            assert usages[0] == usages[1]
            first, second = (request.slot for request in gateway.submitted)
            assert first in (-1, second)  # the engine's choice, then that slot again

    run_async(body)


# ---- counting ----


def test_counting(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            request = body_of("How long is this?", system="s", tools=[WEATHER])
            response = await gateway.client.post(f"{PATH}/count_tokens", json=request)
            assert response.status_code == 200
            message = (await post(gateway, request)).json()
            usage = message["usage"]
            whole_prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
            assert response.json() == {"input_tokens": whole_prompt}
            assert response.headers["request-id"]
            refused = await gateway.client.post(f"{PATH}/count_tokens", json={"messages": []})
            assert refused.status_code == 400
            assert refused.json()["error"]["type"] == "invalid_request_error"

    run_async(body)


# ---- refusals and failures ----


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"stop_sequences": ["STOP"]}, "stop_sequences"),
        ({"top_k": 40}, "top_k"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
    ],
)
def test_refusals(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, is_baseline=True)) as gateway:
            response = await post(gateway, {**body_of("Hi"), **fields})
            assert response.status_code == 400
            error = response.json()
            assert error["type"] == "error"
            assert error["error"]["type"] == "invalid_request_error"
            assert set(error["error"]) == {"type", "message"}
            assert named in error["error"]["message"]
            assert error["request_id"] == response.headers["request-id"]
            assert gateway.submitted == []

    run_async(body)


def test_envelopes(tmp_path: Path) -> None:
    async def body() -> None:
        keys = ApiKeys({"mine": "k-1"})
        async with running(launch_of(tmp_path), keys=keys) as gateway:
            for headers in ({"x-api-key": "k-1"}, {"authorization": "Bearer k-1"}):
                assert (await post(gateway, body_of("Hi"), **headers)).status_code == 200
            key = {"x-api-key": "k-1"}
            refused = await post(gateway, body_of("Hi"), **{"x-api-key": "k-2"})
            unknown = await post(gateway, body_of("Hi", model="other"), **key)
            broken = await gateway.client.post(PATH, content=b"{", headers=key)
            nowhere = await gateway.client.post(f"{PATH}/x", json={}, headers=key)
            method = await gateway.client.get(PATH, headers=key)
            found = [
                (response.status_code, response.json()["error"]["type"], response.json()["type"])
                for response in (refused, unknown, broken, nowhere, method)
            ]
            assert found == [
                (401, "authentication_error", "error"),
                (404, "not_found_error", "error"),
                (400, "invalid_request_error", "error"),
                (404, "not_found_error", "error"),
                (405, "invalid_request_error", "error"),
            ]

    run_async(body)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_prompt_that_is_too_long(tmp_path: Path, is_stream: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            request = body_of("[[error CONTEXT_EXCEEDED 5000 4094]]", stream=is_stream)
            response = await post(gateway, request)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            # the words that make agents shorten their conversation
            assert error["message"].startswith("prompt is too long: 5000 tokens > 4094 maximum")

    run_async(body)


def test_a_full_queue(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), kv_slots=1, max_queue=0) as gateway:
            responses = await asyncio.gather(
                *(post(gateway, body_of("[[slow 0.2]]")) for _ in range(2))
            )
            answered, refused = sorted(responses, key=lambda response: response.status_code)
            assert (answered.status_code, refused.status_code) == (200, 429)
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert int(refused.headers["retry-after"]) >= 1

    run_async(body)


def test_a_dying_engine_is_an_error_event(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            events = await stream(gateway, "[[pieces a|b|c]] [[die 2]]")
            assert [event["type"] for event in events] == [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "error",
            ]
            assert events[-1]["error"]["type"] in {"api_error", "overloaded_error"}
            assert events[-1]["error"]["message"]
            response = await post(gateway, body_of("[[die]] [[no-accept]]"))
            assert response.status_code in (500, 503)
            assert response.json()["error"]["type"] in {"api_error", "overloaded_error"}
            assert (await whole(gateway, "Hi"))["stop_reason"] == "end_turn"

    run_async(body)


def test_silence_is_filled_with_pings(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keepalive_s=0.1) as gateway:
            text = await long_silence(gateway, PATH, body_of, "event: ping", 2)
            assert blocks_of(events_of(text)) == [{"type": "text", "text": "ok"}]

    run_async(body)
