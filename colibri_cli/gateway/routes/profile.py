"""GET /profile: where the time of the last turns went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli.gateway.http_types import Access, Route, json_response
from colibri_cli.gateway.openapi import json_answer, operation
from colibri_cli.gateway.view_schemas import PROFILE_SCHEMA
from colibri_cli.gateway.views import NO_PROFILE, profile_view

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def get_profile(services: Services, request: Request) -> AnyResponse:
    """Return the last turns, oldest first; none without a key where one is needed."""
    is_shown = request.is_authorized
    view = profile_view(services.backend.telemetry()) if is_shown else NO_PROFILE
    return json_response(200, view, {"Cache-Control": "no-store"})


ROUTES = (
    Route(
        "GET",
        "/profile",
        get_profile,
        Access.PARTIAL,
        operation=operation(
            "get_profile",
            "Tell where the time of the last turns went.",
            answer=json_answer(PROFILE_SCHEMA),
        ),
    ),
)
