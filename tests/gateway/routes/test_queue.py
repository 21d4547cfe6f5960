"""Waiting for a slot, as clients see it: order, refusals, and the end of the server."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import Gateway, launch_of, running, until

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")


def ask(gateway: Gateway, path: str, text: str, **extra: object) -> asyncio.Task[httpx.Response]:
    """Send a request of any API."""
    body: dict[str, object] = {"max_tokens": 16, **extra}
    if path == "/v1/responses":
        body = {"input": text, **extra}
    elif path == "/v1/completions":
        body["prompt"] = text
    else:
        body["messages"] = [{"role": "user", "content": text}]
    return asyncio.create_task(gateway.client.post(path, json=body))


def check_refusal(response: httpx.Response, path: str, status: int, code: str) -> None:
    """Check a refusal in the envelope of its API; never a stream."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert int(response.headers["retry-after"]) >= 1
    assert "x-colibri-queue-wait-ms" not in response.headers
    error = response.json()["error"]
    assert error["message"]
    if path == "/v1/messages":
        kind = "rate_limit_error" if status == 429 else "overloaded_error"
        assert (set(error), error["type"]) == ({"type", "message"}, kind)
    else:
        kind = "rate_limit_error" if status == 429 else "server_error"
        assert (error["code"], error["type"], error["param"]) == (code, kind, None)


def test_waiting_ones_are_answered_in_order_and_one_too_many_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, num_slots=1)
        async with running(launch, kv_slots=1, max_queue=2) as gateway:
            scheduler = gateway.services.scheduler
            ended: list[int] = []

            def note(number: int, _: asyncio.Task[httpx.Response]) -> None:
                ended.append(number)

            asking = [ask(gateway, PATHS[0], "[[silent 60]]")]
            for number in (1, 2):
                await until(lambda: scheduler.active + scheduler.queued == len(asking))
                asking.append(ask(gateway, PATHS[0], "[[silent 0.1]]", stream=number == 1))
                asking[-1].add_done_callback(partial(note, number))
            await until(lambda: scheduler.queued == 2)
            refused = await ask(gateway, PATHS[0], "one too many", stream=True)
            check_refusal(refused, PATHS[0], 429, "queue_full")
            health = (await gateway.client.get("/health")).json()["scheduler"]
            assert (health["active"], health["queued"], health["rejected"]) == (1, 2, 1)
            asking.pop(0).cancel()
            waits = [
                int(answer.headers["x-colibri-queue-wait-ms"])
                for answer in await asyncio.gather(*asking)
            ]
            assert ended == [1, 2]
            assert 0 < waits[0] < waits[1]

    run_async(body)


@pytest.mark.parametrize("stream", [True, False])
def test_a_wait_that_is_too_long_is_refused_and_costs_the_engine_nothing(
    tmp_path: Path, stream: bool
) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, num_slots=1)
        async with running(launch, kv_slots=1, queue_timeout_s=0.2) as gateway:
            running_one = ask(gateway, PATHS[0], "[[silent 60]]")
            await until(lambda: len(gateway.submitted) == 1)
            for path in PATHS:
                response = await ask(gateway, path, "hi", stream=stream)
                check_refusal(response, path, 429, "queue_timeout")
            assert len(gateway.submitted) == 1
            assert gateway.services.scheduler.counters.timed_out == len(PATHS)
            running_one.cancel()

    run_async(body)


def test_who_waits_when_the_server_ends_is_told_so(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, num_slots=1)
        async with running(launch, kv_slots=1) as gateway:
            running_one = ask(gateway, PATHS[0], "[[silent 60]]")
            await until(lambda: len(gateway.submitted) == 1)
            waiting = [ask(gateway, path, "hi", stream=True) for path in PATHS]
            await until(lambda: gateway.services.scheduler.queued == len(PATHS))
            gateway.services.scheduler.close()
            for path, response in zip(PATHS, await asyncio.gather(*waiting), strict=True):
                check_refusal(response, path, 503, "scheduler_closed")
            check_refusal(await ask(gateway, PATHS[0], "hi"), PATHS[0], 503, "scheduler_closed")
            running_one.cancel()

    run_async(body)
