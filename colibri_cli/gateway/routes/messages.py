"""POST /v1/messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.errors import ChatFormatError
from colibri_cli.gateway.dialects import anthropic_messages
from colibri_cli.gateway.dialects.anthropic_fields import MESSAGE_FIELDS
from colibri_cli.gateway.dialects.anthropic_schemas import MESSAGE_ANSWER, MESSAGE_EVENTS
from colibri_cli.gateway.dialects.fields import object_schema
from colibri_cli.gateway.http_types import Route
from colibri_cli.gateway.openapi import (
    ANTHROPIC_ERROR,
    GENERATION_ERRORS,
    operation,
    stream_answer,
)
from colibri_cli.gateway.routes.base import answer, checked, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def create_message(services: Services, request: Request) -> AnyResponse:
    """Answer a conversation."""
    body = await read_body(request)
    served = await served_model(services)
    parsed = await checked(
        request, partial(anthropic_messages.parse_request, body, served, request.headers)
    )
    try:
        response = await answer(services, request, parsed, anthropic_messages)
    except ChatFormatError:
        assert parsed.turn.conversation is not None
        folded = anthropic_messages.fold_instructions(parsed.turn.conversation)
        if folded is None:
            raise
        parsed = replace(parsed, turn=replace(parsed.turn, conversation=folded))
        response = await answer(services, request, parsed, anthropic_messages)
    response.headers["request-id"] = request.id
    return response


ROUTES = (
    Route(
        "POST",
        "/v1/messages",
        create_message,
        render_error=anthropic_messages.render_error,
        operation=operation(
            "create_message",
            "Answer a conversation (Messages API).",
            body=object_schema(MESSAGE_FIELDS),
            answer=stream_answer(MESSAGE_ANSWER, MESSAGE_EVENTS),
            errors=GENERATION_ERRORS,
            error_schema=ANTHROPIC_ERROR,
        ),
    ),
)
