"""The OpenAPI 3.1 document: what the routes say of themselves, joined.

Request schemas come from the tables that also validate (`dialects.fields`), so the document cannot
promise what the server refuses. Routes without an operation stay out of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.http_types import Access

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from colibri_cli.gateway.http_types import Route

_PATH_VALUE: Final = re.compile(r"{([a-z_]+)}")
_ERROR_TEXTS: Final = {
    400: "The request cannot be honoured as it is; the message names the field and the remedy.",
    401: "The API key is missing or wrong.",
    403: "The Host or Origin header is not allowed.",
    404: "Unknown path, or a model that is not served.",
    405: "The path knows other methods; `Allow` names them.",
    408: "The request did not arrive in time.",
    411: "The length of the body is not declared.",
    413: "The body is larger than the server takes.",
    429: "The queue is full, or the wait was too long; `Retry-After` says when to come back.",
    431: "The head of the request is larger than the server takes.",
    500: "The server or its engine failed.",
    503: "The engine is loading or restarting, or the server is shutting down.",
}
ANY_ERRORS: Final = (400, 403, 404, 405, 408, 431, 500, 503)  # what every path may answer
BODY_ERRORS: Final = (*ANY_ERRORS, 411, 413)
GENERATION_ERRORS: Final = (*BODY_ERRORS, 429)

OPENAI_ERROR: Final = "Error"
ANTHROPIC_ERROR: Final = "AnthropicError"
_ERROR_SCHEMAS: Final[Mapping[str, Any]] = {
    OPENAI_ERROR: {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    ANTHROPIC_ERROR: {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            },
            "request_id": {"type": "string"},
        },
    },
}


def operation(
    operation_id: str,
    summary: str,
    *,
    answer: Mapping[str, Any],
    body: Mapping[str, Any] | None = None,
    errors: Iterable[int] = ANY_ERRORS,
    error_schema: str = OPENAI_ERROR,
) -> dict[str, Any]:
    """Return the operation object of a route.

    Args:
        operation_id: Unique name of the operation.
        summary: One line.
        answer: Content of the 200: media type → schema (see `json_answer`, `stream_answer`).
        body: Schema of the request body, or None.
        errors: Statuses besides 200; 401 is added for routes that need a key.
        error_schema: Envelope of those.
    """
    member: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {media: {"schema": schema} for media, schema in answer.items()},
            },
            **{str(status): _error(status, error_schema) for status in sorted(errors)},
        },
    }
    if body is not None:
        member["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return member


def json_answer(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of an answer that is a JSON value."""
    return {"application/json": schema}


def stream_answer(schema: Mapping[str, Any], events: str) -> dict[str, Any]:
    """Return the content of an answer that is JSON, or with `stream: true` an event stream."""
    return {
        "application/json": schema,
        # Without a type: some tools hold the schema against each event, others against the body.
        "text/event-stream": {"description": events},
    }


def build_document(
    routes: Iterable[Route], version: str, *, has_keys: bool = True
) -> dict[str, Any]:
    """Return the document of these routes; without keys none of them asks for one."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.operation is not None:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation_of(
                route, has_keys=has_keys
            )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "coli",
            "version": version,
            "description": "OpenAI- and Anthropic-compatible API over one model.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(_ERROR_SCHEMAS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation_of(route: Route, *, has_keys: bool) -> dict[str, Any]:
    assert route.operation is not None
    member = dict(route.operation)
    if names := _PATH_VALUE.findall(route.path):
        member["parameters"] = [
            *member.get("parameters", []),
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ),
        ]
    if has_keys and route.access is Access.KEY:
        member["security"] = [{"bearer": []}, {"api_key": []}]
        envelope = _envelope_of(member)
        responses = {**member["responses"], "401": _error(401, envelope)}
        member["responses"] = dict(sorted(responses.items()))
    return member


def _envelope_of(member: Mapping[str, Any]) -> str:
    text = str(member["responses"].get("400", ""))
    return ANTHROPIC_ERROR if ANTHROPIC_ERROR in text else OPENAI_ERROR


def _error(status: int, schema: str) -> dict[str, Any]:
    return {
        "description": _ERROR_TEXTS[status],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
