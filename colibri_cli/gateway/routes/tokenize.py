"""POST /tokenize: how many tokens a text, or the prompt of a conversation, has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.gateway.dialects import tokenize
from colibri_cli.gateway.http_types import Route, json_response
from colibri_cli.gateway.openapi import BODY_ERRORS, json_answer, operation
from colibri_cli.gateway.routes.base import checked, count_tokens, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def count(services: Services, request: Request) -> AnyResponse:
    """Count without generating; needs no slot."""
    body = await read_body(request)
    served = await served_model(services)
    turn = await checked(request, partial(tokenize.parse_request, body, served))
    num_tokens = await count_tokens(services, turn)
    return json_response(200, tokenize.render_count(num_tokens, served))


ROUTES = (
    Route(
        "POST",
        "/tokenize",
        count,
        operation=operation(
            "tokenize",
            "Count the tokens of a text, or of the prompt a conversation becomes.",
            body=tokenize.TOKENIZE_SCHEMA,
            answer=json_answer(tokenize.TOKENIZE_ANSWER),
            errors=BODY_ERRORS,
        ),
    ),
)
