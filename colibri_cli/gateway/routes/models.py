"""GET /v1/models and /v1/models/{id}: the served model and the names it answers to.

A client of the Anthropic API (it sends `anthropic-version`) gets that API's listing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.http_types import HttpError, Route, json_response
from colibri_cli.gateway.openapi import ANY_ERRORS, json_answer, operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services

_OWNER: Final = "colibri"
_ANTHROPIC_HEADER: Final = "anthropic-version"
_MODEL_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "context_window": {"type": "integer", "description": "Tokens of prompt and answer."},
        "max_model_len": {"type": "integer", "description": "The same, by its other name."},
        "max_output_tokens": {"type": "integer", "description": "Most tokens of one answer."},
        "aliases": {"type": "array", "items": {"type": "string"}},
        "type": {"const": "model"},
        "display_name": {"type": "string"},
        "created_at": {"type": "string"},
    },
}


async def list_models(services: Services, request: Request) -> AnyResponse:
    """List the served model, first by its id, then by its aliases."""
    settings = services.settings
    names = (settings.model_id, *settings.aliases)
    context = await _context_window(services)
    if _ANTHROPIC_HEADER in request.headers:
        page = [_anthropic_model(name, services, context) for name in names]
        ends = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
        return json_response(200, {"data": page, **ends})
    models = [_openai_model(name, services, context) for name in names]
    return json_response(200, {"object": "list", "data": models})


async def get_model(services: Services, request: Request) -> AnyResponse:
    """Describe one model by its id or an alias."""
    settings = services.settings
    name = request.path_values["id"]
    if name not in (settings.model_id, *settings.aliases):
        raise HttpError(
            404,
            f"the model {name[:200]!r} is not served here; served:"
            f" {', '.join((settings.model_id, *settings.aliases))}",
            code="model_not_found",
            param="model",
        )
    describe = _anthropic_model if _ANTHROPIC_HEADER in request.headers else _openai_model
    return json_response(200, describe(name, services, await _context_window(services)))


async def _context_window(services: Services) -> int | None:
    """Return the context size if an engine is ready to tell it; a list never waits for one."""
    if (await services.backend.health()).state != "ready":
        return None
    return (await services.backend.models())[0].context_length


def _openai_model(name: str, services: Services, context: int | None) -> dict[str, Any]:
    settings = services.settings
    model: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": settings.created,
        "owned_by": _OWNER,
    }
    if context is not None:
        model |= {"context_window": context, "max_model_len": context}
    if settings.max_tokens is not None:
        model["max_output_tokens"] = settings.max_tokens
    return model | {
        "aliases": [other for other in (settings.model_id, *settings.aliases) if other != name],
    }


def _anthropic_model(name: str, services: Services, context: int | None) -> dict[str, Any]:
    settings = services.settings
    model: dict[str, Any] = {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(settings.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if context is not None:
        model["max_input_tokens"] = context
    return model if settings.max_tokens is None else model | {"max_tokens": settings.max_tokens}


ROUTES = (
    Route(
        "GET",
        "/v1/models",
        list_models,
        operation=operation(
            "list_models",
            "List the served model.",
            answer=json_answer(
                {
                    "type": "object",
                    "required": ["data"],
                    "properties": {"data": {"type": "array", "items": _MODEL_SCHEMA}},
                }
            ),
        ),
    ),
    Route(
        "GET",
        "/v1/models/{id}",
        get_model,
        operation=operation(
            "get_model",
            "Describe a model by its id or an alias.",
            answer=json_answer(_MODEL_SCHEMA),
            errors=ANY_ERRORS,
        ),
    ),
)
