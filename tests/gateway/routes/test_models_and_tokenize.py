"""The model list, counting tokens, and the document of it all."""

from __future__ import annotations

from pathlib import Path

import pytest

from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.dialects.tokenize import TOKENIZE_SCHEMA
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import launch_of, running

KEY = "secret"


def test_the_list_tells_names_and_limits(tmp_path: Path) -> None:
    async def body() -> None:
        launch = launch_of(tmp_path, context_length=4096)
        async with running(launch, aliases=("small", "vendor/name")) as gateway:
            answer = (await gateway.client.get("/v1/models")).json()
            assert answer["object"] == "list"
            first, *others = answer["data"]
            assert first == {
                "id": "test-model",
                "object": "model",
                "created": 1_700_000,
                "owned_by": "colibri",
                "context_window": 4096,
                "max_model_len": 4096,
                "max_output_tokens": 16,
                "aliases": ["small", "vendor/name"],
            }
            assert [model["id"] for model in others] == ["small", "vendor/name"]

    run_async(body)


def test_one_model_by_its_id_or_alias(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), aliases=("vendor/name",)) as gateway:
            for name in ("test-model", "vendor/name", "vendor%2Fname"):
                response = await gateway.client.get(f"/v1/models/{name}")
                assert response.status_code == 200
                assert response.json()["object"] == "model"
            response = await gateway.client.get("/v1/models/gpt-4")
            error = response.json()["error"]
            assert response.status_code == 404
            assert (error["code"], error["param"]) == ("model_not_found", "model")
            assert "test-model" in error["message"]

    run_async(body)


def test_the_other_vendors_listing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), aliases=("small",)) as gateway:
            headers = {"anthropic-version": "2023-06-01"}
            answer = (await gateway.client.get("/v1/models", headers=headers)).json()
            assert [model["id"] for model in answer["data"]] == ["test-model", "small"]
            assert answer["has_more"] is False
            assert (answer["first_id"], answer["last_id"]) == ("test-model", "small")
            assert answer["data"][0]["type"] == "model"
            assert answer["data"][0]["created_at"] == "1970-01-20T16:13:20Z"
            one = (await gateway.client.get("/v1/models/small", headers=headers)).json()
            assert one == answer["data"][1]

    run_async(body)


def test_models_need_the_key(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keys=ApiKeys({"mine": KEY})) as gateway:
            right = {"Authorization": f"Bearer {KEY}"}
            assert (await gateway.client.get("/v1/models", headers=right)).status_code == 200
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": "x"}):
                response = await gateway.client.get("/v1/models", headers=headers)
                error = response.json()["error"]
                assert response.status_code == 401
                assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")

    run_async(body)


def test_counting(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            post = gateway.client.post
            answer = (await post("/tokenize", json={"prompt": "x" * 40})).json()
            assert answer == {"count": 10, "max_model_len": 4096}
            body = {"messages": [{"role": "user", "content": "x" * 40}], "max_tokens": -1}
            count = (await post("/tokenize", json=body)).json()["count"]
            body.pop("max_tokens")
            usage = (await post("/v1/chat/completions", json=body)).json()["usage"]
            assert count == usage["prompt_tokens"]

    run_async(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"messages": []}, "messages"),
        ({"prompt": "a", "model": "gpt-4"}, "model"),
    ],
)
def test_what_cannot_be_counted(tmp_path: Path, body: dict[str, object], param: str) -> None:
    async def ask() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            response = await gateway.client.post("/tokenize", json=body)
            assert response.status_code in {400, 404}
            assert response.json()["error"]["param"] == param

    run_async(ask)


def test_the_document_says_that_one_text_is_counted() -> None:
    schema = TOKENIZE_SCHEMA
    assert [one["required"] for one in schema["oneOf"]] == [["prompt"], ["messages"]]
    for one, other in zip(schema["oneOf"], ("messages", "prompt"), strict=True):
        assert one["properties"][other] == {"type": "null"}


def test_an_engine_that_cannot_count_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path, is_baseline=True)) as gateway:
            response = await gateway.client.post("/tokenize", json={"prompt": "a"})
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "unsupported_parameter"

    run_async(body)


def test_the_document_is_served_to_everybody(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keys=ApiKeys({"mine": KEY})) as gateway:
            response = await gateway.client.get("/openapi.json")
            assert response.status_code == 200
            document = response.json()
            assert document["openapi"] == "3.1.0"
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize"):
                assert path in document["paths"]

    run_async(body)
