"""What the engine is told when an answer ends before it does: one line, and only if it must be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import (
    GLM_MODEL,
    Gateway,
    finish_of,
    joined,
    launch_of,
    running,
    until,
)

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


def body_of(path: str, text: str, *, stream: bool) -> dict[str, object]:
    if path == "/v1/responses":
        return {"input": text, "stream": stream}
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": 100_000, "stream": stream}


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_text_stops_the_engine_once(tmp_path: Path, stream: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), max_tokens=100_000) as gateway:
            response = await gateway.chat("[[endless]] [[slow 0.001]]", stop="d3 w", stream=stream)
            assert "word2" in response.text
            assert "word4" not in response.text
            assert gateway.ended == ["STOP 1"]

    run_async(body)


def test_a_stop_text_that_was_skipped_stops_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            extra = {"x_colibri_ignore_leading_stop": True}
            choice = await gateway.answer("[[pieces Hé|llo]]", stop="H", **extra)
            assert choice["message"]["content"] == "éllo"
            assert gateway.ended == []

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_role_mark_stops_the_engine_once(tmp_path: Path, path: str, stream: bool) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, model=GLM_MODEL)) as gateway:
            text = "[[reply ready<|user|>more and more]] [[slow 0.05]]"
            response = await gateway.client.post(path, json=body_of(path, text, stream=stream))
            assert "ready" in response.text
            assert "more" not in response.text
            assert "user|" not in response.text
            assert gateway.ended == ["STOP 1"]

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_leaves_cancels_once(tmp_path: Path, path: str) -> None:
    async def leave(gateway: Gateway, script: str, *, stream: bool) -> None:
        asked = len(gateway.submitted) + 1
        body = body_of(path, script, stream=stream)
        asking = asyncio.create_task(gateway.client.post(path, json=body))
        await until(lambda: len(gateway.submitted) == asked)
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: gateway.services.scheduler.active == 0)
        assert gateway.ended[asked - 1 :] == [f"CANCEL {asked}"]

    async def body() -> None:
        launch = launch_of(tmp_path, num_slots=1)
        async with running(launch, kv_slots=1, max_tokens=100_000) as gateway:
            for script in ("[[late 30]]", "[[silent 30]]", "[[endless]] [[slow 0.01]]"):
                for stream in (True, False):
                    await leave(gateway, script, stream=stream)
            assert (await gateway.answer("[[reply mine]]"))["message"]["content"] == "mine"

    run_async(body)


@pytest.mark.parametrize("path", PATHS)
def test_a_late_accept_is_no_client_that_left(tmp_path: Path, path: str) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            body = body_of(path, "[[late 0.3]] [[reply here]]", stream=True)
            response = await gateway.client.post(path, json=body)
            assert response.status_code == 200
            assert "here" in response.text
            assert gateway.ended == []

    run_async(body)


def test_stop_texts_and_parts_of_inkling(tmp_path: Path) -> None:
    async def body() -> None:
        model = {"family": "inkling", "chat_template": ""}
        async with running(launch_of(tmp_path, model=model)) as gateway:
            choice = await gateway.answer(
                "[[reply <|content_thinking|>why<|content_text|>answer ENDignored]]", stop="END"
            )
            assert choice["message"]["reasoning_content"] == "why"
            assert choice["message"]["content"] == "answer "
            chunks = await gateway.stream("[[reply a<|user|>b]]")
            assert joined(chunks) == "a<|user|>b"
            assert finish_of(chunks) == ["stop"]

    run_async(body)
