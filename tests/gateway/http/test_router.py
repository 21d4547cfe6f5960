"""Routes by folder, by pattern, by method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from colibri_cli.gateway.http_types import HttpError, Request, Response, Route
from colibri_cli.gateway.router import Router, discover_routes

if TYPE_CHECKING:
    from colibri_cli.gateway.services import Services


async def handler(services: Services, request: Request) -> Response:
    return Response(200)


def envelope(error: HttpError, request_id: str) -> Response:
    return Response(error.status)


ROUTER = Router(
    (
        Route("GET", "/", handler),
        Route("GET", "/{path}", handler),
        Route("GET", "/v1/models", handler),
        Route("GET", "/v1/models/{id}", handler),
        Route("POST", "/v1/messages", handler, render_error=envelope),
        Route("GET", "/v1/slots/{slot}/files/{name}", handler),
        Route("DELETE", "/v1/slots/{slot}", handler),
        Route("GET", "/v1/slots/{slot}", handler),
    )
)


@pytest.mark.parametrize(
    ("path", "pattern", "values"),
    [
        ("/", "/", {}),
        ("/app.js", "/{path}", {"path": "app.js"}),
        ("/a/b/c", "/{path}", {"path": "a/b/c"}),
        ("/v1/models", "/v1/models", {}),
        ("/v1/models/org/name", "/v1/models/{id}", {"id": "org/name"}),
        ("/v1/models/", "/{path}", {"path": "v1/models/"}),
        ("/v1/slots/3", "/v1/slots/{slot}", {"slot": "3"}),
        ("/v1/slots/3/files/a/b", "/v1/slots/{slot}/files/{name}", {"slot": "3", "name": "a/b"}),
    ],
)
def test_the_most_specific_pattern_wins(path: str, pattern: str, values: dict[str, str]) -> None:
    found = ROUTER.match("GET", path)
    assert (found.route.path, found.values) == (pattern, values)


def test_head_takes_the_route_of_get() -> None:
    assert ROUTER.match("HEAD", "/v1/models").route.method == "GET"


def test_a_catch_all_hides_no_405_and_makes_none() -> None:
    for method, path, status in (
        ("GET", "/v1/messages", 405),
        ("HEAD", "/v1/messages", 405),
        ("POST", "/v1/models/x", 405),
        ("POST", "/nothing", 404),
        ("POST", "/", 405),
        ("TRACE", "/nothing", 405),
    ):
        with pytest.raises(HttpError) as caught:
            ROUTER.match(method, path)
        assert caught.value.status == status, (method, path)
        assert ("Allow" in caught.value.headers) == (status == 405)


def test_allow_lists_what_the_path_takes() -> None:
    with pytest.raises(HttpError) as caught:
        ROUTER.match("POST", "/v1/slots/1")
    assert caught.value.headers["Allow"] == "DELETE, GET, HEAD, OPTIONS"


def test_a_dialects_envelope_reaches_below_its_path() -> None:
    for path in ("/v1/messages", "/v1/messages/", "/v1/messages/a/b"):
        assert ROUTER.error_renderer(path) is envelope, path
    for path in ("/v1/messagesx", "/v1", "/", "-", "*"):
        assert ROUTER.error_renderer(path) is None, path


def test_two_routes_for_one_method_and_path_are_a_bug() -> None:
    with pytest.raises(ValueError, match="two routes"):
        Router((Route("GET", "/a", handler), Route("GET", "/a", handler)))


def test_the_routes_folder_is_found() -> None:
    routes = discover_routes()
    assert len({(route.method, route.path) for route in routes}) == len(routes)
    Router(routes)


def test_a_module_without_routes_is_named() -> None:
    with pytest.raises(TypeError, match="has no tuple ROUTES"):
        discover_routes("colibri_cli.chat")
