"""Every dialect module offers the same functions, and every route says what it is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from colibri_cli.gateway import dialects
from colibri_cli.gateway.http_types import Access, Route
from colibri_cli.gateway.openapi import build_document
from colibri_cli.gateway.router import discover_routes
from tests.fakes.command_line import ROOT

FUNCTIONS = {
    "parse_request": ["body", "served", "headers"],
    "render_whole": ["parsed", "answer"],
    "open_stream": ["parsed"],
    "render_error": ["error", "request_id"],
}
ROUTES = discover_routes()
DOCUMENT = build_document(ROUTES, "1.0")
JSON_TYPES = {"string", "integer", "number", "boolean", "object", "array", "null"}


def modules() -> list[str]:
    """Return the modules that write whole answers: those are dialects."""
    names = [info.name for info in pkgutil.iter_modules(dialects.__path__) if info.name != "base"]
    loaded = {name: importlib.import_module(f"{dialects.__name__}.{name}") for name in names}
    return [name for name, module in loaded.items() if hasattr(module, "render_whole")]


def operations() -> list[tuple[str, str, Mapping[str, Any]]]:
    return [
        (method, path, member)
        for path, members in DOCUMENT["paths"].items()
        for method, member in members.items()
    ]


def parts(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object inside a JSON value."""
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from parts(member)
    elif isinstance(value, list):
        for member in value:
            yield from parts(member)


def test_the_page_about_the_api_names_every_route() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    table = page.partition("## Routes")[2].partition("## Access")[0]
    named = set(re.findall(r"(?<=[ `])/[a-z0-9_/{}.]*(?=[`,])", table))
    assert named == {*DOCUMENT["paths"], "/"}


def test_there_are_dialects() -> None:
    assert {"openai_chat", "openai_completions", "anthropic_messages"} <= set(modules())


@pytest.mark.parametrize("name", modules())
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_dialect_offers_what_routes_need(name: str, function: str) -> None:
    module = importlib.import_module(f"{dialects.__name__}.{name}")
    parameters = inspect.signature(getattr(module, function)).parameters.values()
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    assert needed == FUNCTIONS[function]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_documented_unless_it_serves_the_page(route: Route) -> None:
    assert (route.operation is None) is (route.path in {"/", "/{path}"})
    if route.operation is not None and route.access is Access.KEY:
        assert "401" in DOCUMENT["paths"][route.path][route.method.lower()]["responses"]


def test_operations_have_their_own_names() -> None:
    names = [member["operationId"] for _, _, member in operations()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("method", "path", "member"), operations())
def test_an_operation_declares_its_answers(
    method: str, path: str, member: Mapping[str, Any]
) -> None:
    responses = member["responses"]
    assert "200" in responses
    assert {"400", "403", "404", "500"} <= set(responses)
    assert ("requestBody" in member) <= (method == "post")
    if "requestBody" in member:
        assert {"411", "413"} <= set(responses)
    declared = {one["name"] for one in member.get("parameters", []) if one["in"] == "path"}
    assert declared == ({"id"} if "{id}" in path else set())


def test_schemas_are_schemas() -> None:
    schemas = [one["schema"] for one in parts(DOCUMENT) if isinstance(one.get("schema"), dict)]
    assert len(schemas) > 20
    for schema in schemas:
        for part in parts(schema):
            kinds = part.get("type", [])
            if isinstance(kinds, str):
                kinds = [kinds]
            if isinstance(kinds, list):
                assert set(kinds) <= JSON_TYPES, part
            if "required" in part and isinstance(part["required"], list):
                assert set(part["required"]) <= set(part.get("properties", {})), part


def test_references_lead_somewhere() -> None:
    names = set(DOCUMENT["components"]["schemas"])
    references = {one["$ref"] for one in parts(DOCUMENT) if "$ref" in one}
    assert {reference.removeprefix("#/components/schemas/") for reference in references} == names


def test_without_keys_nothing_asks_for_one() -> None:
    free = build_document(ROUTES, "1.0", has_keys=False)
    assert not any("security" in one for one in parts(free["paths"]))
