"""An engine that is killed: what each API tells its client, and that the server goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import Gateway, chunks_of, joined, launch_of, running, until
from tests.gateway.routes.test_early_ends import PATHS, body_of

IN_DECODE = "[[die 2]] [[tokens 9]]"
BEFORE_ACCEPT = "[[die]] [[no-accept]]"


async def ask(
    gateway: Gateway, path: str, text: str, *, stream: bool, **fields: object
) -> httpx.Response:
    return await gateway.client.post(path, json={**body_of(path, text, stream=stream), **fields})


def check_refusal(response: httpx.Response, path: str) -> None:
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["content-type"].startswith("application/json")
    error = response.json()["error"]
    is_anthropic = path == "/v1/messages"
    assert error["type"] == ("overloaded_error" if is_anthropic else "server_error")
    assert error["message"]
    if not is_anthropic:
        assert error["code"] == "engine_error"


async def check_alive(gateway: Gateway, num_failed: int) -> None:
    await until(lambda: gateway.services.scheduler.active == 0)
    assert gateway.services.scheduler.counters.failed == num_failed
    assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_death_before_the_request_is_accepted_is_a_plain_refusal(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            check_refusal(await ask(gateway, path, BEFORE_ACCEPT, stream=stream), path)
            await check_alive(gateway, 1)

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
def test_a_death_in_the_middle_of_a_whole_answer_is_a_refusal(tmp_path: Path, path: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await ask(gateway, path, IN_DECODE, stream=False)
            check_refusal(response, path)
            assert "word0" not in response.text
            await check_alive(gateway, 1)

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
def test_a_death_in_the_middle_of_a_stream_is_its_last_event(tmp_path: Path, path: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await ask(gateway, path, IN_DECODE, stream=True)
            assert response.status_code == 200
            frames = [frame for frame in response.text.split("\n\n") if frame]
            assert "word1" in response.text
            assert failure_of(frames[-1])["message"]
            for end in ("[DONE]", '"stop"', "message_stop", "message_delta", "response.completed"):
                assert end not in response.text
            await check_alive(gateway, 1)

    run_async(body)


def failure_of(frame: str) -> dict[str, Any]:
    """Return the error object of a stream's last frame, wherever the API has it."""
    data = json.loads(frame.rpartition("data: ")[2])
    if data.get("type") == "response.failed":
        assert data["response"]["status"] == "failed"
        data = data["response"]
    error: dict[str, Any] = data["error"]
    return error


@pytest.mark.parametrize("stream", [True, False])
def test_a_death_ends_all_choices_of_a_request(tmp_path: Path, stream: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await ask(gateway, PATHS[0], IN_DECODE, stream=stream, n=2)
            if stream:
                assert response.status_code == 200
                *pieces, failure = chunks_of(response.text)
                assert failure["error"]["message"]
                assert "word0 " in joined(pieces)
                assert all(piece["choices"][0]["finish_reason"] is None for piece in pieces)
            else:
                check_refusal(response, PATHS[0])
            await until(lambda: gateway.services.scheduler.active == 0)
            assert (await gateway.answer("[[reply alive]]"))["message"]["content"] == "alive"

    run_async(body)
