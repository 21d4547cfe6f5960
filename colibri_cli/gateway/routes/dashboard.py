"""GET / and every path without a route of its own: the files of the built page, and its atlas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.gateway.http_types import Access, HttpError, Response, Route
from colibri_cli.gateway.openapi import json_answer, operation
from colibri_cli.gateway.static_files import SAFE_HEADERS, StaticFile, find_file, send_file
from colibri_cli.gateway.views import ATLAS

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.gateway.http_types import AnyResponse, Request
    from colibri_cli.gateway.services import Services

_EXCLUDED: Final = ("/v1/", "/plugins/")  # a misspelled path there is an error, never a page
_HOW_TO_BUILD: Final = (
    "the dashboard is not built; build it with `make web` and start again."
    " The API works without it, under /v1"
)
_NOT_BUILT_PAGE: Final = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>coli</title>
<body><h1>coli is running</h1><p>{_HOW_TO_BUILD.replace("`make web`", "<code>make web</code>")}.</p>
"""


async def get_page(services: Services, request: Request) -> AnyResponse:
    """Return a file of the page; `/` says how to build it when there is none."""
    root = services.settings.dashboard
    if root is None:
        if request.path == "/":
            return _not_built(request)
        raise _nothing_here(request)
    response = None
    if not request.path.startswith(_EXCLUDED):
        response = await asyncio.to_thread(_file, root, request)
    if response is None:
        raise _nothing_here(request)
    return response


async def get_atlas(services: Services, request: Request) -> AnyResponse:
    """Return what was measured of the model's experts, else the file of the page, if any."""
    atlas, root = services.settings.atlas, services.settings.dashboard
    response = None
    if atlas is not None:
        response = await asyncio.to_thread(_send, StaticFile(atlas, ATLAS), request)
    if response is None and root is not None:
        response = await asyncio.to_thread(_file, root, request)
    if response is None:
        message = "nobody measured this model's experts: `coli atlas sweep`, then `analyze`"
        raise HttpError(404, message, code="not_found")
    return response


def _file(root: Path, request: Request) -> Response | None:
    file = find_file(root, request.path.removeprefix("/"))
    return None if file is None else _send(file, request)


def _send(file: StaticFile, request: Request) -> Response | None:
    try:
        return send_file(file, request.headers)
    except OSError:
        return None  # not there, or gone or unreadable since it was found


def _not_built(request: Request) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        html = "text/html; charset=utf-8"
        return Response(404, _NOT_BUILT_PAGE.encode(), html, dict(SAFE_HEADERS))
    error = _nothing_here(request)
    if error.status == 404:
        error.message = _HOW_TO_BUILD
    raise error


def _nothing_here(request: Request) -> HttpError:
    if not request.is_authorized:
        return HttpError(401, "an API key is needed", code="invalid_api_key")
    shown = "".join(c if c.isprintable() else "?" for c in request.path[:100])
    return HttpError(404, f"there is nothing at {shown}", code="not_found")


def _atlas_operation() -> dict[str, Any]:
    member = operation(
        "get_atlas",
        "Return what `coli atlas` measured of the model's experts.",
        answer=json_answer({"type": ["object", "array"]}),
    )
    member["responses"]["304"] = {"description": "The file is still the one that was named."}
    return member


ROUTES = (
    Route("GET", "/", get_page, Access.OPEN),
    Route("GET", f"/{ATLAS}", get_atlas, Access.OPEN, operation=_atlas_operation()),
    Route("GET", "/{path}", get_page, Access.OPEN),
)
