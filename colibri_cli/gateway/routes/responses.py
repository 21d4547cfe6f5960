"""/v1/responses: answers, counting, and the answers that were kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from colibri_cli.gateway.dialects import responses_dialect
from colibri_cli.gateway.dialects.fields import object_schema, refusal
from colibri_cli.gateway.dialects.responses_fields import RESPONSE_FIELDS
from colibri_cli.gateway.dialects.responses_schemas import (
    COUNT_ANSWER,
    DELETED_ANSWER,
    ITEMS_ANSWER,
    RESPONSE_ANSWER,
    RESPONSE_EVENTS,
)
from colibri_cli.gateway.dialects.responses_store import OwnedResponses
from colibri_cli.gateway.http_types import Route, json_response
from colibri_cli.gateway.openapi import (
    BODY_ERRORS,
    GENERATION_ERRORS,
    json_answer,
    operation,
    stream_answer,
)
from colibri_cli.gateway.routes.base import answer, checked, read_body, served_model

if TYPE_CHECKING:
    from colibri_cli.gateway.dialects.base import ParsedRequest
    from colibri_cli.gateway.dialects.responses_shapes import ResponseRender
    from colibri_cli.gateway.dialects.responses_store import StoredResponse
    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services


async def create_response(services: Services, request: Request) -> AnyResponse:
    """Answer a conversation."""
    parsed = await _parsed(services, request)
    return await answer(services, request, parsed, responses_dialect)


async def count_input_tokens(services: Services, request: Request) -> AnyResponse:
    """Count the tokens of the prompt a request becomes."""
    parsed = await _parsed(services, request)
    assert parsed.turn.conversation is not None
    num_tokens = await services.backend.count(parsed.turn.conversation)
    return json_response(200, {"object": "response.input_tokens", "input_tokens": num_tokens})


async def get_response(services: Services, request: Request) -> AnyResponse:
    """Return a kept answer."""
    if request.query.get("stream", "false") != "false":
        raise refusal("stream", "stream: a kept answer cannot be streamed again; leave it out")
    return json_response(200, _stored(services, request).body)


async def list_input_items(services: Services, request: Request) -> AnyResponse:
    """Return what the request of a kept answer added to its conversation."""
    items = _stored(services, request).input_items
    return json_response(200, responses_dialect.item_page(items, request.query))


async def delete_response(services: Services, request: Request) -> AnyResponse:
    """Forget a kept answer."""
    response_id = request.path_values["id"]
    if not _owned(services, request).delete(response_id):
        raise responses_dialect.no_response(response_id)
    return json_response(200, {"id": response_id, "object": "response", "deleted": True})


async def _parsed(services: Services, request: Request) -> ParsedRequest[ResponseRender]:
    body = await read_body(request)
    served = await served_model(services)
    responses, headers = _owned(services, request), request.headers
    return await checked(
        request, partial(responses_dialect.parse_request, body, served, headers, responses)
    )


def _stored(services: Services, request: Request) -> StoredResponse:
    response_id = request.path_values["id"]
    stored = _owned(services, request).get(response_id)
    if stored is None:
        raise responses_dialect.no_response(response_id)
    return stored


def _owned(services: Services, request: Request) -> OwnedResponses:
    return OwnedResponses(services.responses, request.key_name)


ROUTES = (
    Route(
        "POST",
        "/v1/responses",
        create_response,
        render_error=responses_dialect.render_error,
        operation=operation(
            "create_response",
            "Answer a conversation (Responses API).",
            body=object_schema(RESPONSE_FIELDS),
            answer=stream_answer(RESPONSE_ANSWER, RESPONSE_EVENTS),
            errors=GENERATION_ERRORS,
        ),
    ),
    Route(
        "POST",
        "/v1/responses/input_tokens",
        count_input_tokens,
        render_error=responses_dialect.render_error,
        operation=operation(
            "count_input_tokens",
            "Count the tokens of a prompt (Responses API).",
            body=object_schema(RESPONSE_FIELDS),
            answer=json_answer(COUNT_ANSWER),
            errors=BODY_ERRORS,
        ),
    ),
    Route(
        "GET",
        "/v1/responses/{id}",
        get_response,
        operation=operation(
            "get_response",
            "A kept answer.",
            answer=json_answer(RESPONSE_ANSWER),
        ),
    ),
    Route(
        "GET",
        "/v1/responses/{id}/input_items",
        list_input_items,
        operation=operation(
            "list_input_items",
            "What the request of a kept answer added to its conversation.",
            answer=json_answer(ITEMS_ANSWER),
        ),
    ),
    Route(
        "DELETE",
        "/v1/responses/{id}",
        delete_response,
        operation=operation(
            "delete_response",
            "Forget a kept answer.",
            answer=json_answer(DELETED_ANSWER),
        ),
    ),
)
