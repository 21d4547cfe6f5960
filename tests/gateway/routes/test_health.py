"""What the diagnostic routes tell: health, profile, experts, events, metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.auth import ApiKeys
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import Gateway, launch_of, running, until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

KEYS = ApiKeys({"default": "secret"})
WITH_KEY = {"Authorization": "Bearer secret"}


async def get(gateway: Gateway, path: str, *, key: bool = False) -> dict[str, Any]:
    response = await gateway.client.get(path, headers=WITH_KEY if key else {})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def test_health_tells_slots_queue_and_machine(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, num_slots=2)) as gateway:
            health = await get(gateway, "/health")
            assert health["status"] == "ok"
            assert health["kv_slots"] == 2
            assert health["context_length"] == 4096
            scheduler = health["scheduler"]
            assert (scheduler["active"], scheduler["queued"], scheduler["capacity"]) == (0, 0, 2)
            assert scheduler["max_queue"] == 8
            assert scheduler["queue_timeout_seconds"] == 300
            assert health["tiers"] == {
                "vram": 0, "ram": 6, "disk": 2, "vram_gb": 0.0, "ram_gb": 0.5,
            }  # fmt: skip
            assert health["hwinfo"]["cpu"] == "Fake CPU"
            assert health["hwinfo"]["cores"] == 2

    run_async(body)


def test_health_tells_whether_there_is_an_atlas_to_ask_for(tmp_path: Path) -> None:
    atlas = tmp_path / "experts.json"

    async def body() -> None:
        async with running(launch_of(tmp_path), atlas=atlas) as gateway:
            assert (await get(gateway, "/health"))["atlas"] is False
            atlas.write_text("{}")  # measured while the server runs
            assert (await get(gateway, "/health"))["atlas"] is True

    run_async(body)


def test_without_the_key_only_the_state_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keys=KEYS) as gateway:
            assert await get(gateway, "/health") == {"status": "ok"}
            assert await get(gateway, "/profile") == {"seq": 0, "turns": []}
            nothing = {"rows": 0, "cols": 0, "map": "", "hits": "", "seq": 0}
            assert await get(gateway, "/experts") == nothing
            assert (await gateway.client.get("/metrics")).status_code == 401
            wrong = await gateway.client.get("/health", headers={"x-api-key": "wrong"})
            assert (wrong.status_code, wrong.json()) == (200, {"status": "ok"})
            shown = await get(gateway, "/health", key=True)
            assert shown["scheduler"]["max_queue"] == 8
            assert (await get(gateway, "/experts", key=True))["rows"] == 2

    run_async(body)


def test_profile_and_experts_show_what_the_engine_sent(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            before = await get(gateway, "/experts")
            assert before["map"] == "4142430045460048"
            assert (before["hits"], before["seq"]) == ("", 0)
            assert before["layers"] == [1, 2]
            assert "mtp_row" not in before
            await gateway.answer("[[tokens 3]]")
            profile = await get(gateway, "/profile")
            assert profile["seq"] == 1
            turn = profile["turns"][0]
            assert set(turn) == {
                "wall_s", "expert_disk_s", "expert_wait_s", "expert_matmul_s", "attention_s",
                "lm_head_s", "prompt_tokens", "completion_tokens", "forwards",
            }  # fmt: skip
            assert (turn["completion_tokens"], turn["forwards"]) == (3, 4)
            assert (turn["expert_disk_s"], turn["expert_matmul_s"]) == (0.1, 0.2)
            experts = await get(gateway, "/experts")
            assert (experts["hits"], experts["seq"]) == ("0f", 1)

    run_async(body)


def test_experts_show_gpus_entropy_and_what_moved(tmp_path: Path) -> None:
    async def body() -> None:
        lines = [
            "GPUS 2 40.5 80 900 39.8 80 880",
            "ENTROPY 3.5 4.25",
            "REPIN 12 33 0 1",
            "GPUS 2 40.5 80",  # malformed, and so are these: no reason to end an engine
            "ENTROPY high",
            "REPIN 1 2",
            "FOO 1 2",
        ]
        async with running(launch_of(tmp_path, lines=lines)) as gateway:
            await gateway.answer("[[tokens 1]]")
            experts = await get(gateway, "/experts")
            assert experts["gpus"] == [
                {"used_gb": 40.5, "total_gb": 80, "experts": 900},
                {"used_gb": 39.8, "total_gb": 80, "experts": 880},
            ]
            assert experts["entropy"] == [3.5, 4.25]
            assert experts["repin"] == [{"layer": 12, "expert": 33, "old_tier": 0, "gpu": 1}]

    run_async(body)


def test_running_and_waiting_requests_are_seen(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, num_slots=1), kv_slots=1) as gateway:
            tasks = [
                asyncio.create_task(gateway.answer("[[tokens 15]] [[slow 0.05]]")) for _ in range(2)
            ]
            await until(lambda: gateway.services.scheduler.queued == 1)
            await until(lambda: gateway.services.scheduler.running[0].pieces > 1)
            health = await get(gateway, "/health")
            assert (health["scheduler"]["active"], health["scheduler"]["queued"]) == (1, 1)
            (slot,) = health["slots"]
            assert (slot["slot"], slot["state"]) == (0, "decode")
            assert slot["prompt_tokens"] > 0
            await asyncio.gather(*tasks)
            assert (await get(gateway, "/health"))["scheduler"]["completed"] == 2

    run_async(body)


def test_a_killed_engine_shows_until_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, delay_s=0.5)
        async with running(launch) as gateway:
            backend = gateway.services.backend
            supervisor = backend.supervisor  # type: ignore[attr-defined]
            os.kill(supervisor.current.pid, signal.SIGKILL)
            await until(lambda: supervisor.state.value != "ready", limit_s=1)
            response = await gateway.client.get("/health")
            assert response.status_code == 503
            health = response.json()
            assert health["status"] == "error"
            assert health["engine"]["state"] == "restarting"
            assert "SIGKILL" in health["engine"]["last_end"]
            assert "tiers" not in health
            await until(lambda: supervisor.state.value == "ready")
            health = await get(gateway, "/health")
            assert health["engine"]["restarts"] == 1

    run_async(body)


class EventReader:
    """Events of a stream, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        name = ""
        async for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream ended")

    async def until(self, wanted: str) -> object:
        while True:
            name, data = await self.next()
            if name == wanted:
                return data


def test_events_begin_with_a_snapshot_and_follow_what_happens(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            running(launch_of(tmp_path)) as gateway,
            gateway.client.stream("GET", "/events") as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            reader = EventReader(response)
            snapshot = dict([await reader.next() for _ in range(5)])
            assert set(snapshot) == {"health", "tiers", "experts", "turn", "progress"}
            assert snapshot["health"]["status"] == "ok"
            assert snapshot["turn"] == {"seq": 0, "turns": []}
            assert snapshot["experts"] == await get(gateway, "/experts")
            await gateway.answer("[[tokens 3]]")
            assert await reader.until("turn") == await get(gateway, "/profile")

    run_async(body)


def test_events_are_few_and_end_with_the_server(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, num_slots=2), kv_slots=2) as gateway:
            busy = asyncio.create_task(gateway.answer("[[tokens 16]] [[slow 0.12]]"))
            times: list[float] = []
            async with gateway.client.stream("GET", "/events") as response:
                async for line in response.aiter_lines():
                    if line.startswith("event:"):
                        times.append(asyncio.get_running_loop().time())
                    if busy.done():
                        gateway.services.scheduler.close()
            later = [moment for moment in times if moment > times[0] + 0.1]
            assert later
            for moment in later:
                assert sum(moment <= other < moment + 0.9 for other in later) <= 4

    run_async(body)


def test_without_the_key_events_tell_the_state_only(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            running(launch_of(tmp_path), keys=KEYS) as gateway,
            gateway.client.stream("GET", "/events") as response,
        ):
            lines: list[str] = []
            async for line in response.aiter_lines():
                lines.append(line)
                if line.startswith("data:"):
                    gateway.services.scheduler.close()
            events = [line for line in lines if line.startswith(("event:", "data:"))]
            assert events == ["event: health", 'data: {"status":"ok"}']

    run_async(body)


_SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (\+Inf|-?[0-9.e+-]+)')


def test_metrics_are_well_formed_and_count(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            await gateway.answer("[[tokens 3]]")
            response = await gateway.client.get("/metrics")
            assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
            lines = response.text.splitlines()
            for line in lines:
                assert line.startswith(("# HELP ", "# TYPE ")) or _SAMPLE.fullmatch(line), line
            values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            assert values['colibri_requests_total{outcome="completed"}'] == "1"
            assert values["colibri_generated_tokens_total"] == "3"
            assert values["colibri_queue_depth"] == "0"
            assert values["colibri_engine_up"] == "1"
            assert values['colibri_experts{tier="ram"}'] == "6"
            assert values["colibri_time_to_first_token_seconds_count"] == "1"
            buckets = [
                int(value)
                for name, value in values.items()
                if name.startswith("colibri_time_to_first_token_seconds_bucket")
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == 1
            names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
            assert len(names) == len(set(names))

    run_async(body)
