"""GET /openapi.json: what this server offers, for tools and people."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from colibri_cli import __version__
from colibri_cli.gateway.http_types import Access, Response, Route, json_response
from colibri_cli.gateway.openapi import build_document, json_answer, operation
from colibri_cli.gateway.router import discover_routes

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def get_document(services: Services, request: Request) -> AnyResponse:
    """Return the document."""
    del request
    return Response(200, _document(has_keys=services.settings.has_keys))


@cache
def _document(*, has_keys: bool) -> bytes:
    document = build_document(discover_routes(), __version__, has_keys=has_keys)
    return json_response(200, document).body


ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        get_document,
        Access.OPEN,
        operation=operation(
            "get_document",
            "Return this document.",
            answer=json_answer({"type": "object"}),
        ),
    ),
)
