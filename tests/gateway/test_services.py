"""Waiting for the engine ends with the server, also for who comes to wait afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from colibri_cli.errors import SchedulerClosed
from tests.fakes.supervised import run_async
from tests.gateway.turn_rig import serving

if TYPE_CHECKING:
    from colibri_cli.supervisor.spawn import EngineLaunch


def test_waiting_for_the_engine_ends_with_the_server(launch: EngineLaunch) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def ready() -> str:
        return "a card"

    async def body() -> None:
        async with serving(launch) as services:
            assert await services.unless_ended(ready()) == "a card"
            waiting = asyncio.create_task(services.unless_ended(never()))
            await asyncio.sleep(0.01)
            services.end_waiting(SchedulerClosed("the server is shutting down", retry_after_s=1))
            for asked in (waiting, services.unless_ended(never())):
                with pytest.raises(SchedulerClosed):
                    await asyncio.wait_for(asked, 5)
            assert not services.waiting

    run_async(body)
