"""GET /events: what the diagnostic routes show, pushed when it changes.

Events `health`, `tiers`, `experts`, `turn` and `progress`, each with the JSON its GET route has
(`turn`: the new turns, as `/profile` lists them). The first ones are a snapshot; after that at most
four a second, the latest state of each, so a client that reads slowly misses nothing but
intermediate states.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.dialects.base import compact_json
from colibri_cli.gateway.http_types import Access, Route, StreamingResponse
from colibri_cli.gateway.openapi import operation
from colibri_cli.gateway.views import (
    experts_view,
    health_view,
    profile_view,
    progress_view,
    tiers_view,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services

    View = Callable[[], Awaitable[Any]]

_INTERVAL_S: Final = 0.25
_SILENCE_S: Final = 10.0
_RETRY_MS: Final = 2000
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_VOLATILE: Final = frozenset(
    {"uptime_s", "age_s", "tokens_per_second"}
)  # always changing: no news by themselves


async def get_events(services: Services, request: Request) -> AnyResponse:
    """Stream events until the client or the server leaves."""
    feed = _Feed(services, is_authorized=request.is_authorized)
    return StreamingResponse(feed.frames(), headers=dict(_HEADERS))


class _Feed:
    """What one subscriber was told, and what is news to it."""

    def __init__(self, services: Services, *, is_authorized: bool) -> None:
        self._services = services
        self._is_authorized = is_authorized
        self._told: dict[str, object] = {}
        self._turns_told = 0
        self._last: str | None = None

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the snapshot, then what changes."""
        views = self._views()
        first = [f"retry: {_RETRY_MS}\n\n".encode()]
        for name, view in views.items():
            frame = await self._news(name, view, is_first=True)
            if frame is not None:
                first.append(frame)
        yield b"".join(first)
        silent_s = 0.0
        while not self._services.scheduler.is_closed:
            await asyncio.sleep(_INTERVAL_S)
            silent_s += _INTERVAL_S
            frame = await self._next_news(views)
            if frame is None and silent_s >= _SILENCE_S:
                frame = b": still here\n\n"
            if frame is not None:
                silent_s = 0.0
                yield frame

    def _views(self) -> dict[str, View]:
        """Return what is shown, in order of urgency."""

        async def health() -> dict[str, Any]:
            return await health_view(self._services, is_authorized=self._is_authorized)

        if not self._is_authorized:
            return {"health": health}
        telemetry = self._services.backend.telemetry

        async def tiers() -> dict[str, Any]:
            return tiers_view(telemetry())

        async def experts() -> dict[str, Any]:
            return experts_view(telemetry())

        async def turn() -> dict[str, Any]:
            return profile_view(telemetry())

        async def progress() -> dict[str, Any]:
            return progress_view(self._services)

        return {
            "health": health,
            "tiers": tiers,
            "experts": experts,
            "turn": turn,
            "progress": progress,
        }

    async def _next_news(self, views: dict[str, View]) -> bytes | None:
        """Return one event; kinds take turns, so that a busy one hides no other."""
        names = list(views)
        start = names.index(self._last) + 1 if self._last in views else 0
        for name in [*names[start:], *names[:start]]:
            frame = await self._news(name, views[name])
            if frame is not None:
                self._last = name
                return frame
        return None

    async def _news(self, name: str, view: View, *, is_first: bool = False) -> bytes | None:
        shown = await view()
        if name == "turn":
            return self._new_turns(shown, is_first=is_first)
        if not shown:
            return None
        lasting = _lasting(shown)
        if self._told.get(name) == lasting:
            return None
        self._told[name] = lasting
        return _frame(name, shown)

    def _new_turns(self, profile: dict[str, Any], *, is_first: bool) -> bytes | None:
        num_new = profile["seq"] - self._turns_told
        self._turns_told = profile["seq"]
        if num_new <= 0 and not is_first:
            return None
        new = profile["turns"][-num_new:] if num_new > 0 else []
        return _frame("turn", {"seq": profile["seq"], "turns": new})


def _lasting(value: object) -> object:
    """Return a view without what changes by the mere passing of time."""
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in value.items() if k not in _VOLATILE}
    if isinstance(value, list):
        return [_lasting(item) for item in value]
    return value


def _frame(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {compact_json(data)}\n\n".encode()


ROUTES = (
    Route(
        "GET",
        "/events",
        get_events,
        Access.PARTIAL,
        operation=operation(
            "get_events",
            "Stream changes of health, tiers, experts, turns and progress.",
            answer={
                "text/event-stream": {
                    "type": "string",
                    "description": "Events health, tiers, experts, turn, progress.",
                }
            },
        ),
    ),
)
