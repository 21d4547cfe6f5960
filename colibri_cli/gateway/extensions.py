"""What plugins add to a running server: routes, and receivers of its figures."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.http_types import HttpError, Route, json_response
from colibri_cli.gateway.views import turn_view
from colibri_cli.plugin_types import RouteRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services
    from colibri_cli.gateway.serving import ServerRun
    from colibri_cli.plugin_loader import PluginRoute, PluginSink

logger = logging.getLogger(__name__)


def route_of(added: PluginRoute) -> Route:
    """Return the route; what its handler raises is an answer of 500 and a line in the log."""

    async def answer(services: Services, request: Request) -> AnyResponse:
        del services
        try:
            value = await added.handler(RouteRequest(request.query, request.body))
            return json_response(200, value)
        except HttpError:
            raise
        except Exception as error:
            logger.exception("the plugin %s failed at %s", added.plugin, added.path)
            message = f"the plugin {added.plugin} could not answer"
            raise HttpError(500, message, code="plugin_failed") from error

    return Route(added.method, added.path, answer)


async def run_with_sinks(run: ServerRun, sinks: Sequence[PluginSink]) -> None:
    """Run a server to its end, and hand its figures to all receivers meanwhile."""
    feeding = [asyncio.create_task(_feed(run, sink)) for sink in sinks]
    try:
        await run.run()
    finally:
        for task in feeding:
            task.cancel()
        await asyncio.gather(*feeding, return_exceptions=True)


async def figures_of(run: ServerRun) -> dict[str, Any]:
    """Return what receivers get: the object of `/health`, and the last turn."""
    profile = run.telemetry().profile
    last_turn = None if profile is None else turn_view(profile)
    return {**await run.health(), "last_turn": last_turn}


async def _feed(run: ServerRun, sink: PluginSink) -> None:
    """Hand figures to one receiver, beside the event loop; one that fails is left out."""
    while True:
        figures = await figures_of(run)
        try:
            await asyncio.to_thread(sink.sink, figures)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises
            logger.warning(
                "the plugin %s failed at %s and gets no more figures: %s: %s",
                sink.plugin, sink.name, type(error).__name__, error,
            )  # fmt: skip
            return
        await asyncio.sleep(sink.interval_s)
