"""POST /v1/messages/count_tokens: the length of a prompt, by the model's own tokenizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.errors import ChatFormatError
from colibri_cli.gateway.dialects import anthropic_messages
from colibri_cli.gateway.dialects.anthropic_fields import COUNT_FIELDS
from colibri_cli.gateway.dialects.anthropic_schemas import COUNT_ANSWER
from colibri_cli.gateway.dialects.fields import object_schema
from colibri_cli.gateway.http_types import Route, json_response
from colibri_cli.gateway.openapi import ANTHROPIC_ERROR, BODY_ERRORS, json_answer, operation
from colibri_cli.gateway.routes.base import checked, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def count_tokens(services: Services, request: Request) -> AnyResponse:
    """Count the tokens of the prompt that a body for /v1/messages becomes."""
    body = await read_body(request)
    served = await served_model(services)
    conversation = await checked(request, partial(anthropic_messages.parse_count, body, served))
    try:
        num_tokens = await services.backend.count(conversation)
    except ChatFormatError:
        folded = anthropic_messages.fold_instructions(conversation)
        if folded is None:
            raise
        num_tokens = await services.backend.count(folded)
    return json_response(200, {"input_tokens": num_tokens}, {"request-id": request.id})


ROUTES = (
    Route(
        "POST",
        "/v1/messages/count_tokens",
        count_tokens,
        render_error=anthropic_messages.render_error,
        operation=operation(
            "count_tokens",
            "Count the tokens of a prompt (Messages API).",
            body=object_schema(COUNT_FIELDS),
            answer=json_answer(COUNT_ANSWER),
            errors=BODY_ERRORS,
            error_schema=ANTHROPIC_ERROR,
        ),
    ),
)
