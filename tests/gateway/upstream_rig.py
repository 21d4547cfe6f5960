"""A whole gateway, as `coli serve --upstream` runs it, before a scripted upstream server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx

from colibri_cli.backends.upstreams.served import ServedUpstream, UpstreamTarget
from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.listeners import TcpAddress
from colibri_cli.gateway.server import ServerOptions
from colibri_cli.gateway.services import ServeSettings
from colibri_cli.gateway.serving import ServePlan, ServerRun
from tests.gateway.routes.gateway_rig import chunks_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from colibri_cli.backends.base import ServableBackend
    from colibri_cli.supervisor.lifecycle import EngineState

SETTINGS = ServeSettings(
    model_id="", max_tokens=None, temperature=None, top_p=None, thinking=None, kv_slots=64
)


@dataclass
class Front:
    """The gateway and a client of it."""

    run: ServerRun
    client: httpx.AsyncClient
    is_ready: asyncio.Event
    serving: asyncio.Task[None]

    async def chat(self, text: str, **fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": text}], **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def stream(self, text: str, **fields: object) -> list[Any]:
        response = await self.chat(text, stream=True, **fields)
        assert response.status_code == 200, response.text
        return chunks_of(response.text)

    async def until_status(self, wanted: int) -> None:
        """Wait until `/health` answers so; the test's own limit ends it."""
        while (await self.health())[0] != wanted:  # noqa: ASYNC110 - it is another server's state
            await asyncio.sleep(0.02)

    async def health(self) -> tuple[int, dict[str, Any]]:
        response = await self.client.get("/health")
        return response.status_code, response.json()


@asynccontextmanager
async def front_of(
    target: UpstreamTarget | str,
    *,
    make: Callable[[Callable[[EngineState], None]], ServableBackend] | None = None,
    waits: bool = True,
    keys: ApiKeys | None = None,
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[Front]:
    """Run a gateway; leaving drains and ends it.

    Args:
        target: The server behind.
        make: Makes another backend than that of the target.
        waits: Until it is ready.
        keys: API keys.
        settings: Changes of the settings.
    """
    aim = UpstreamTarget(target) if isinstance(target, str) else target
    is_bound, is_ready = asyncio.Event(), asyncio.Event()
    plan = ServePlan(
        options=ServerOptions(addresses=(TcpAddress("127.0.0.1", 0),), keys=keys or ApiKeys()),
        settings=replace(SETTINGS, has_keys=bool(keys), **settings),
        drain_s=5.0,
        on_bound=lambda _run: is_bound.set(),
        on_ready=lambda _run, _card: is_ready.set(),
    )
    run = ServerRun(make or (lambda on_state: ServedUpstream(aim, on_state)), plan)
    serving = asyncio.create_task(run.run())
    try:
        for event in (is_bound, is_ready) if waits else (is_bound,):
            waiting = asyncio.create_task(event.wait())
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if serving.done():
                serving.result()
        async with httpx.AsyncClient(base_url=run.url, timeout=20, trust_env=False) as client:
            yield Front(run, client, is_ready, serving)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so; the test's own limit ends it."""
    while not condition():  # noqa: ASYNC110 - conditions of other tasks and processes
        await asyncio.sleep(0.01)
