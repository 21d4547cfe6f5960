"""The scripted engine behind the real supervisor, for tests of both."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from colibri_cli.supervisor.client import EngineClient
from colibri_cli.supervisor.spawn import EngineLaunch, spawn_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


def run_async(body: Callable[[], Coroutine[Any, Any, None]], limit_s: float = 20) -> None:
    """Run one test body on a fresh loop, with a limit."""
    asyncio.run(asyncio.wait_for(body(), limit_s))


def configured(launch: EngineLaunch, **config: object) -> EngineLaunch:
    """Return a launch whose fake engine starts as `config` says."""
    environment = {**launch.environment, "FAKE_ENGINE": json.dumps(config)}
    return replace(launch, environment=environment)


@asynccontextmanager
async def connected(launch: EngineLaunch) -> AsyncIterator[EngineClient]:
    """Yield a client of a ready engine, closed afterwards."""
    client = EngineClient(await spawn_engine(launch))
    try:
        await client.handshake()
        yield client
    finally:
        await client.close()
