"""The whole gateway on a real port, with the scripted engine behind it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from colibri_cli.backends.native import NativeBackend
from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.listeners import TcpAddress
from colibri_cli.gateway.server import Server, ServerOptions
from colibri_cli.gateway.services import ServeSettings, Services
from colibri_cli.gateway.slots import SlotChooser
from colibri_cli.supervisor.admission import GenerationScheduler
from colibri_cli.supervisor.client import EngineClient
from colibri_cli.supervisor.lifecycle import EngineSupervisor, RestartPolicy
from colibri_cli.supervisor.spawn import EngineLaunch
from tests.fakes.fake_engine import write_executable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from colibri_cli.supervisor.requests import EngineRequest, RequestStream

SETTINGS: Final = ServeSettings(model_id="test-model", max_tokens=16, kv_slots=2, created=1_700_000)
POLICY: Final = RestartPolicy(first_delay_s=0.05, max_failures=5)


@dataclass
class Gateway:
    """A running gateway and a client of it."""

    client: httpx.AsyncClient
    services: Services
    directory: Path
    submitted: list[EngineRequest] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)  # STOP and CANCEL lines to the engine

    @property
    def prompt(self) -> str:
        """The whole text of the last prompt the engine got."""
        return "".join(segment.text for segment in self.submitted[-1].segments)

    async def chat(self, text: str, **fields: object) -> httpx.Response:
        """Ask for a chat completion with one user message."""
        body = {"messages": [{"role": "user", "content": text}], **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def answer(self, text: str, **fields: object) -> dict[str, Any]:
        """Return the choice of a whole answer."""
        response = await self.chat(text, **fields)
        assert response.status_code == 200, response.text
        choice: dict[str, Any] = response.json()["choices"][0]
        return choice

    async def stream(self, text: str, **fields: object) -> list[Any]:
        """Return the chunks of a streamed answer, "[DONE]" included."""
        response = await self.chat(text, stream=True, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return chunks_of(response.text)


def chunks_of(text: str) -> list[Any]:
    """Return what the `data:` lines of a stream say."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def joined(chunks: list[Any], name: str = "content") -> str:
    """Return the text of one kind in a stream."""
    choices = [c["choices"][0] for c in chunks if c != "[DONE]" and c.get("choices")]
    return "".join(choice["delta"].get(name) or "" for choice in choices)


def finish_of(chunks: list[Any]) -> list[str]:
    """Return every finish reason of a stream."""
    choices = [c["choices"][0] for c in chunks if c != "[DONE]" and c.get("choices")]
    return [c["finish_reason"] for c in choices if c["finish_reason"] is not None]


async def long_silence(
    gateway: Gateway, path: str, body_of: Callable[[str], dict[str, Any]], sign: str, count: int
) -> str:
    """Stream an answer that begins once so many signs of life have come; return the stream.

    Args:
        gateway: Who is asked.
        path: Of the API.
        body_of: Makes the body from what the user says.
        sign: How the line of a sign of life is known.
        count: How many to wait for.
    """
    gate = gateway.directory / "gate"
    lines: list[str] = []
    body = {**body_of(f"[[gate {gate}]] [[reply ok]]"), "stream": True}
    async with gateway.client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            lines.append(line)
            if sum(sign in one for one in lines) >= count:
                gate.touch()
    return "".join(f"{line}\n" for line in lines)


async def until(condition: Callable[[], bool], limit_s: float = 5) -> None:
    """Wait until something is so."""
    for _ in range(int(limit_s / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in time")


def launch_of(directory: Path, *, is_baseline: bool = False, **config: object) -> EngineLaunch:
    """Return how to start the scripted engine in a directory.

    Args:
        directory: Holds the script and stands for the model.
        is_baseline: It speaks the old lines alone; its family is that of `config.json`.
        config: How it starts.
    """
    environment = {"FAKE_ENGINE": json.dumps(config)}
    if is_baseline:
        environment["COLI_CAPS"] = "0"
        (directory / "config.json").write_text('{"model_type": "glm_moe_dsa"}')
    return EngineLaunch(directory, write_executable(directory), environment=environment)


GLM_MODEL: Final = {"family": "glm_moe_dsa", "chat_template": ""}


@asynccontextmanager
async def running(
    launch: EngineLaunch,
    *,
    keys: ApiKeys | None = None,
    policy: RestartPolicy = POLICY,
    **settings: object,
) -> AsyncIterator[Gateway]:
    """Run a gateway; leaving ends it and its engine.

    Args:
        launch: The engine.
        keys: API keys of the server.
        policy: How an engine that dies comes back.
        settings: Changes of the settings.
    """
    effective = replace(SETTINGS, has_keys=bool(keys), **settings)  # type: ignore[arg-type]
    supervisor = EngineSupervisor(launch, policy)
    backend = NativeBackend(supervisor, effective.model_id)
    services = Services(
        backend=backend,
        scheduler=GenerationScheduler(
            effective.kv_slots, effective.max_queue, effective.queue_timeout_s
        ),
        slots=SlotChooser(effective.kv_slots),
        settings=effective,
    )
    options = ServerOptions(addresses=(TcpAddress("127.0.0.1", 0),), keys=keys or ApiKeys())
    server = Server(services, options)
    with pytest.MonkeyPatch.context() as patch:
        submitted, ended = _record_requests(patch)
        await backend.open()
        await server.bind()
        serving = asyncio.create_task(server.serve())
        address = server.addresses[0]
        assert isinstance(address, TcpAddress)
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{address.port}", timeout=60, trust_env=False
            ) as client:
                yield Gateway(client, services, launch.model_path, submitted, ended)
        finally:
            await server.drain(1)
            await serving
            await backend.close()


def _record_requests(patch: pytest.MonkeyPatch) -> tuple[list[EngineRequest], list[str]]:
    submitted: list[EngineRequest] = []
    ended: list[str] = []
    submit, write = EngineClient.submit, EngineClient._write

    def recording(self: EngineClient, request: EngineRequest) -> RequestStream:
        submitted.append(request)
        return submit(self, request)

    def recording_ends(self: EngineClient, data: bytes) -> None:
        ended.extend(re.findall(r"^(?:STOP|CANCEL) \d+$", data.decode(), re.MULTILINE))
        write(self, data)

    patch.setattr(EngineClient, "submit", recording)
    patch.setattr(EngineClient, "_write", recording_ends)
    return submitted, ended
