"""POST /v1/chat/completions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.gateway.dialects import openai_chat
from colibri_cli.gateway.dialects.fields import object_schema
from colibri_cli.gateway.dialects.openai_answers import CHAT_ANSWER, CHAT_EVENTS
from colibri_cli.gateway.dialects.openai_fields import CHAT_FIELDS
from colibri_cli.gateway.http_types import Route
from colibri_cli.gateway.openapi import GENERATION_ERRORS, operation, stream_answer
from colibri_cli.gateway.routes.base import answer, checked, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def create_chat_completion(services: Services, request: Request) -> AnyResponse:
    """Answer a conversation."""
    body = await read_body(request)
    served = await served_model(services)
    parsed = await checked(
        request, partial(openai_chat.parse_request, body, served, request.headers)
    )
    return await answer(services, request, parsed, openai_chat)


ROUTES = (
    Route(
        "POST",
        "/v1/chat/completions",
        create_chat_completion,
        operation=operation(
            "create_chat_completion",
            "Answer a conversation.",
            body=object_schema(CHAT_FIELDS),
            answer=stream_answer(CHAT_ANSWER, CHAT_EVENTS),
            errors=GENERATION_ERRORS,
        ),
    ),
)
