"""GET /health: whether the engine answers, who runs, who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.gateway.http_types import Access, Route, json_response
from colibri_cli.gateway.openapi import ANY_ERRORS, json_answer, operation
from colibri_cli.gateway.view_schemas import HEALTH_SCHEMA
from colibri_cli.gateway.views import STATUS_OK, health_view

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def get_health(services: Services, request: Request) -> AnyResponse:
    """Answer 200 while the engine is ready, 503 otherwise; never 401."""
    view = await health_view(services, is_authorized=request.is_authorized)
    is_ok = view["status"] == STATUS_OK
    return json_response(200 if is_ok else 503, view, {"Cache-Control": "no-store"})


def _operation() -> dict[str, Any]:
    member = operation(
        "get_health",
        "Tell whether the engine answers, who runs and who waits.",
        answer=json_answer(HEALTH_SCHEMA),
        errors=[status for status in ANY_ERRORS if status != 503],
    )
    member["responses"]["503"] = {
        "description": "The engine is loading, restarting or gone.",
        "content": {"application/json": {"schema": HEALTH_SCHEMA}},
    }
    return member


ROUTES = (Route("GET", "/health", get_health, Access.PARTIAL, operation=_operation()),)
