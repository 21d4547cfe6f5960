"""POST /v1/completions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.gateway.dialects import openai_completions
from colibri_cli.gateway.dialects.fields import object_schema
from colibri_cli.gateway.dialects.openai_answers import COMPLETION_ANSWER, COMPLETION_EVENTS
from colibri_cli.gateway.dialects.openai_fields import COMPLETION_FIELDS
from colibri_cli.gateway.http_types import Route
from colibri_cli.gateway.openapi import GENERATION_ERRORS, operation, stream_answer
from colibri_cli.gateway.routes.base import answer, checked, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def create_completion(services: Services, request: Request) -> AnyResponse:
    """Continue a plain text."""
    body = await read_body(request)
    served = await served_model(services)
    parsed = await checked(
        request, partial(openai_completions.parse_request, body, served, request.headers)
    )
    return await answer(services, request, parsed, openai_completions)


ROUTES = (
    Route(
        "POST",
        "/v1/completions",
        create_completion,
        operation=operation(
            "create_completion",
            "Continue a plain text.",
            body=object_schema(COMPLETION_FIELDS),
            answer=stream_answer(COMPLETION_ANSWER, COMPLETION_EVENTS),
            errors=GENERATION_ERRORS,
        ),
    ),
)
