"""The figures behind a chat's views: the objects of `/health`, `/experts` and `/profile`.

A server is asked for them; of an engine of our own they are made from the same telemetry, by the
functions that make them for a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.backends.upstreams.backend import UpstreamBackend
from colibri_cli.errors import UsageError
from colibri_cli.gateway.views import experts_view, profile_view, tiers_view

if TYPE_CHECKING:
    from colibri_cli.backends.base import Backend

Figures = dict[str, Any]


async def tiers_of(backend: Backend) -> Figures:
    """Return how many experts sit where.

    Raises:
        UsageError: nobody has told, or there are none.
    """
    found = tiers_view(backend.telemetry())
    if isinstance(backend, UpstreamBackend):
        found = (await backend.view("/health")).get("tiers") or {}
    found = _told(found, "where experts sit")
    if not any(found[tier] for tier in ("vram", "ram", "disk")):
        raise UsageError("this model has no experts")
    return found


async def experts_of(backend: Backend) -> Figures:
    """Return the map of experts.

    Raises:
        UsageError: nobody has told.
    """
    found = experts_view(backend.telemetry())
    if isinstance(backend, UpstreamBackend):
        found = await backend.view("/experts")
    return _told(found if found.get("rows") else {}, "where experts sit")


async def turns_of(backend: Backend) -> list[Figures]:
    """Return where the time of the last turns went, oldest first.

    Raises:
        UsageError: nobody has told, or there was none yet.
    """
    found = profile_view(backend.telemetry())
    if isinstance(backend, UpstreamBackend):
        found = await backend.view("/profile")
    turns = found.get("turns") or []
    if not turns:
        raise UsageError("there are no figures of an answer yet")
    return list(turns)


async def queue_of(backend: Backend) -> Figures:
    """Return the state of a server's scheduler.

    Raises:
        UsageError: the engine is our own, or the server does not tell.
    """
    if not isinstance(backend, UpstreamBackend):
        raise UsageError(
            "an engine of this chat's own has no queue", hint="a server has one: coli serve"
        )
    found = await backend.view("/health")
    return _told(found if "scheduler" in found else {}, "its queue")


def _told(found: Figures, what: str) -> Figures:
    if not found:
        raise UsageError(f"who answers does not tell {what}")
    return found
