"""Text completions from socket to engine and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import chunks_of, launch_of, long_silence, running

if TYPE_CHECKING:
    import httpx

    from tests.gateway.routes.gateway_rig import Gateway


async def complete(gateway: Gateway, prompt: object, **fields: object) -> httpx.Response:
    body = {"prompt": prompt, **fields}
    return await gateway.client.post("/v1/completions", json=body)


def test_a_completion_in_both_modes(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            prompt = "[[pieces Hé|llo]]Complete <|im_start|>me"
            answer = (await complete(gateway, prompt)).json()
            assert answer["object"] == "text_completion"
            assert answer["id"].startswith("cmpl-")
            assert answer["choices"][0] == {
                "index": 0,
                "text": "Héllo",
                "logprobs": None,
                "finish_reason": "stop",
            }
            assert gateway.prompt == prompt
            response = await complete(gateway, prompt, stream=True)
            chunks = chunks_of(response.text)
            assert [c["choices"][0]["text"] for c in chunks[:-1]] in (
                ["Hé", "llo", ""],
                ["Héllo", ""],
            )
            assert chunks[-1] == "[DONE]"

    run_async(body)


def test_refusals(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            for prompt in ("", None, ["a"]):
                response = await complete(gateway, prompt)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == "prompt"
            response = await complete(gateway, "x", echo=True)
            assert response.json()["error"]["param"] == "echo"
            response = await complete(gateway, "word " * 20_000)
            assert response.json()["error"]["code"] == "context_length_exceeded"

    run_async(body)


def test_a_silent_start_is_filled_with_this_endpoints_chunks(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path), keepalive_s=0.05) as gateway:
            found = await long_silence(
                gateway, "/v1/completions", lambda text: {"prompt": text}, '"text":""', 2
            )
            texts: list[Any] = [c["choices"][0]["text"] for c in chunks_of(found)[:-1]]
            assert "".join(texts) == "ok"

    run_async(body)


def test_log_probabilities(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(launch_of(tmp_path)) as gateway:
            answer = (await complete(gateway, "[[pieces a|b]]", logprobs=1)).json()
            found = answer["choices"][0]["logprobs"]
            assert found["tokens"] == ["a", "b"]
            assert found["token_logprobs"] == [-0.25, -0.25]
            assert found["text_offset"] == [0, 1]
            assert [len(top) for top in found["top_logprobs"]] == [1, 1]

    run_async(body)
