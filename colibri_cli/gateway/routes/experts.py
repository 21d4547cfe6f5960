"""GET /experts: where each expert sits, how hot it is, which ones were just used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli.gateway.http_types import Access, Route, json_response
from colibri_cli.gateway.openapi import json_answer, operation
from colibri_cli.gateway.view_schemas import EXPERTS_SCHEMA
from colibri_cli.gateway.views import NO_EXPERTS, experts_view

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def get_experts(services: Services, request: Request) -> AnyResponse:
    """Return the latest map; an empty one without a key where one is needed."""
    is_shown = request.is_authorized
    view = experts_view(services.backend.telemetry()) if is_shown else NO_EXPERTS
    return json_response(200, view, {"Cache-Control": "no-store"})


ROUTES = (
    Route(
        "GET",
        "/experts",
        get_experts,
        Access.PARTIAL,
        operation=operation(
            "get_experts",
            "Tell where each expert sits and how hot it is.",
            answer=json_answer(EXPERTS_SCHEMA),
        ),
    ),
)
