"""The Responses API end to end: a real server, the scripted engine behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from colibri_cli.gateway.auth import ApiKeys
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import GLM_MODEL, Gateway, launch_of, long_silence, running

PATH: Final = "/v1/responses"
WEATHER: Final = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ROME: Final = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"


async def whole(gateway: Gateway, said: object, **fields: object) -> dict[str, Any]:
    response = await gateway.client.post(PATH, json={"input": said, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def stream(gateway: Gateway, said: object, **fields: object) -> list[dict[str, Any]]:
    response = await gateway.client.post(PATH, json={"input": said, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the data of all events, their names and numbers checked."""
    events: list[dict[str, Any]] = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def text_of(body: dict[str, Any]) -> str:
    messages = [item for item in body["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def test_a_response(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            answer = await whole(gateway, "Hi [[pieces Hé|llo]]", instructions="be brief")
            assert answer["status"] == "completed"
            assert text_of(answer) == "Héllo"
            assert answer["usage"]["output_tokens"] == 2
            assert "system\nbe brief<|im_end|>" in gateway.prompt
            events = await stream(gateway, "Hi [[pieces Hé|llo]]")
            assert [event["type"].removeprefix("response.") for event in events] == [
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
            assert text_of(events[-1]["response"]) == "Héllo"

    run_async(body)


def test_reasoning(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            said = "[[pieces a |b</th|ink>c]]"
            answer = await whole(gateway, said, reasoning={"effort": "high"})
            assert answer["output"][0]["content"] == [{"type": "reasoning_text", "text": "a b"}]
            assert text_of(answer) == "c"
            events = await stream(gateway, said, reasoning={"effort": "high", "summary": "auto"})
            shown = [
                event["delta"]
                for event in events
                if event["type"] == "response.reasoning_summary_text.delta"
            ]
            assert "".join(shown) == "a b"

    run_async(body)


def test_an_answer_that_is_cut(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            answer = await whole(gateway, "[[endless]]", max_output_tokens=3)
            assert answer["status"] == "incomplete"
            assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
            events = await stream(gateway, "[[endless]]", max_output_tokens=3)
            assert events[-1]["type"] == "response.incomplete"
            assert text_of(events[-1]["response"]) == text_of(answer)

    run_async(body)


# ---- going on ----


@pytest.mark.parametrize("is_stream", [True, False])
def test_going_on_from_an_answer(tmp_path: Path, is_stream: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            if is_stream:
                events = await stream(gateway, "q [[reply a]]", instructions="first")
                first = events[-1]["response"]
            else:
                first = await whole(gateway, "q [[reply a]]", instructions="first")
            await whole(gateway, "f", previous_response_id=first["id"], instructions="second")
            assert gateway.prompt == (
                "[gMASK]<sop><|system|>second<|user|>q [[reply a]]"
                "<|assistant|><think></think>a<|user|>f<|assistant|><think></think>"
            )

    run_async(body)


def test_a_call_and_its_output(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            answer = await whole(
                gateway, f"W? [[reply {ROME}]]", tools=[WEATHER], max_output_tokens=64
            )
            (call,) = answer["output"]
            assert (call["type"], call["name"]) == ("function_call", "weather")
            assert json.loads(call["arguments"]) == {"city": "Rome"}
            output = {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": "25 degrees",
            }
            await whole(gateway, [output], previous_response_id=answer["id"], tools=[WEATHER])
            assert f"{ROME}<|observation|><tool_response>25 degrees" in gateway.prompt
            question = {"role": "user", "content": f"W? [[reply {ROME}]]"}
            await whole(gateway, [question, call, output], tools=[WEATHER])
            assert f"{ROME}<|observation|><tool_response>25 degrees" in gateway.prompt

    run_async(body)


def test_kept_answers(tmp_path: Path) -> None:
    async def body() -> None:
        keys = ApiKeys({"mine": "k-1", "other": "k-2"})
        async with running(launch_of(tmp_path), keys=keys) as gateway:
            mine, other = {"x-api-key": "k-1"}, {"x-api-key": "k-2"}
            client = gateway.client
            posted = await client.post(PATH, json={"input": "Hi"}, headers=mine)
            answer = posted.json()
            path = f"{PATH}/{answer['id']}"
            assert (await client.get(path, headers=mine)).json() == answer
            assert (await client.get(path, headers=other)).status_code == 404
            went_on = {"input": "And?", "previous_response_id": answer["id"]}
            theirs = await client.post(PATH, json=went_on, headers=other)
            unknown = await client.post(
                PATH, json={**went_on, "previous_response_id": "resp_no"}, headers=other
            )
            assert (theirs.status_code, unknown.status_code) == (404, 404)
            assert theirs.text.replace(answer["id"], "resp_no") == unknown.text
            assert (await client.post(PATH, json=went_on, headers=mine)).status_code == 200
            assert (await client.get(path)).status_code == 401
            items = (await client.get(f"{path}/input_items", headers=mine)).json()
            assert [item["content"] for item in items["data"]] == ["Hi"]
            assert (await client.delete(path, headers=other)).status_code == 404
            deleted = await client.delete(path, headers=mine)
            assert deleted.json() == {"id": answer["id"], "object": "response", "deleted": True}
            gone = await client.get(path, headers=mine)
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
            forbidden = await client.post(PATH, json={"input": "Hi", "store": False}, headers=mine)
            unkept = await client.get(f"{PATH}/{forbidden.json()['id']}", headers=mine)
            assert unkept.status_code == 404

    run_async(body)


# ---- counting, refusals, failures ----


def test_counting(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.client.post(f"{PATH}/input_tokens", json={"input": "Hi"})
            answer = await whole(gateway, "Hi")
            assert response.json() == {
                "object": "response.input_tokens",
                "input_tokens": answer["usage"]["input_tokens"],
            }

    run_async(body)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": []}, 400, "input"),
        ({"tools": [{"type": "file_search"}]}, 400, "tools.0.type"),
        ({"previous_response_id": "resp_no"}, 404, "previous_response_id"),
        ({"model": "other"}, 404, "model"),
        ({"input": "[[error CONTEXT_EXCEEDED 5000 4094]]", "stream": True}, 400, "input"),
    ],
)
def test_refusals(tmp_path: Path, fields: dict[str, Any], status: int, param: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.client.post(PATH, json={"input": "Hi", **fields})
            assert response.status_code == status
            assert response.json()["error"]["param"] == param

    run_async(body)


def test_a_dying_engine_is_a_failed_response(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            events = await stream(gateway, "[[pieces a|b|c]] [[die 2]]")
            assert events[-1]["type"] == "response.failed"
            error = events[-1]["response"]["error"]
            assert error["code"] == "server_error"
            assert error["message"]
            response: httpx.Response = await gateway.client.post(
                PATH, json={"input": "[[die]] [[no-accept]]"}
            )
            assert response.status_code in (500, 503)

    run_async(body)


def test_silence_is_filled(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keepalive_s=0.1) as gateway:
            sign = "event: response.in_progress"
            text = await long_silence(gateway, PATH, lambda text: {"input": text}, sign, 3)
            assert text_of(events_of(text)[-1]["response"]) == "ok"

    run_async(body)
