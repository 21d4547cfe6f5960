"""`coli serve --upstream` before the real llama-server and the real vLLM, which must be named.

PEER_LLAMA_SERVER and PEER_LLAMA_MODEL: the program and a GGUF file. PEER_VLLM and
PEER_VLLM_MODEL: `vllm` and a model folder; it is started by `--engine vllm`. What is seen is
printed, for docs/measurements.md.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, STDOUT
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from colibri_cli.backends.upstreams.served import UpstreamTarget
from colibri_cli.backends.upstreams.vllm import ServedVllm, VllmLaunch
from tests.fakes.supervised import run_async
from tests.gateway.routes.gateway_rig import finish_of, joined
from tests.gateway.upstream_rig import Front, front_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

QUESTION = "What is the capital of France? Answer in one word."
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
        },
    },
}


def named(program: str, model: str) -> tuple[str, str]:
    """Return program and model, which the environment names."""
    if not os.environ.get(program) or not os.environ.get(model):
        pytest.skip(f"{program} and {model} are not set")
    return os.environ[program], os.environ[model]


class LlamaServer:
    """A llama-server on a port of its own that can be killed and started again."""

    def __init__(self, program: str, model: str, log: Path) -> None:
        self._program = program
        self._model = model
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    async def start(self) -> None:
        arguments = [
            *("-m", self._model, "--host", "127.0.0.1", "--port", str(self.port)),
            *("-c", "8192", "-np", "4", "-t", "2", "--metrics", "--jinja", "--no-webui"),
        ]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self._program, *arguments, stdin=DEVNULL, stdout=log, stderr=STDOUT
            )

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def llama_front(tmp_path: Path) -> AsyncIterator[tuple[Front, LlamaServer]]:
    server = LlamaServer(*named("PEER_LLAMA_SERVER", "PEER_LLAMA_MODEL"), tmp_path / "log")
    await server.start()
    try:
        async with front_of(UpstreamTarget(f"http://127.0.0.1:{server.port}")) as front:
            front.client.timeout = httpx.Timeout(120)
            yield front, server
    finally:
        await server.kill()


async def check_answers(front: Front) -> None:
    """Chat, stream, other APIs, counting, options: what every such server must do through us."""
    whole = (await front.chat(QUESTION, temperature=0, max_tokens=16)).json()
    print("chat    ", whole["choices"][0]["message"]["content"], whole["usage"])
    assert whole["choices"][0]["message"]["content"].strip()
    assert whole["usage"]["prompt_tokens"] > 10
    chunks = await front.stream(QUESTION, temperature=0, max_tokens=16)
    assert joined(chunks) == whole["choices"][0]["message"]["content"]
    print("stream  ", len(chunks), "events, the same text, finish", finish_of(chunks))
    cut = (await front.chat(QUESTION, temperature=0, max_tokens=2)).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2
    message = {"role": "user", "content": QUESTION}
    asked = {"messages": [message], "max_tokens": 16, "temperature": 0}
    found = (await front.client.post("/v1/messages", json=asked)).json()
    print("messages", found["content"], found["stop_reason"], found["usage"])
    assert found["content"][0]["text"] == whole["choices"][0]["message"]["content"]
    body = {"input": QUESTION, "max_output_tokens": 16, "temperature": 0}
    found = (await front.client.post("/v1/responses", json=body)).json()
    assert found["output"][-1]["content"][0]["text"].strip()
    counted = await front.client.post("/v1/messages/count_tokens", json={"messages": [message]})
    assert counted.json()["input_tokens"] == whole["usage"]["prompt_tokens"]
    token = (await front.chat(QUESTION, max_tokens=1, logprobs=True, top_logprobs=2)).json()
    (first,) = token["choices"][0]["logprobs"]["content"]
    print("logprobs", first["token"], round(first["logprob"], 4), len(first["top_logprobs"]))
    assert first["logprob"] <= 0
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    held = (await front.chat("Give n.", response_format=form, max_tokens=40, temperature=0)).json()
    print("schema  ", held["choices"][0]["message"]["content"])
    assert held["choices"][0]["message"]["content"].lstrip().startswith("{")
    long = await front.chat("word " * 20_000)
    print("too long", long.status_code, long.json()["error"])
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")


async def check_cancel(front: Front, page_url: str, running: str) -> None:
    """A client that leaves in the middle frees the server."""

    async def num_running() -> float:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            page = (await client.get(page_url)).text
        match = re.search(rf"^{re.escape(running)}(?:{{[^}}]*}})? ([0-9.e+]+)$", page, re.MULTILINE)
        assert match is not None, running
        return float(match[1])

    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Count upwards for ever."}],
        "stream": True,
        "max_tokens": 700,
    }
    async with front.client.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.aiter_raw()
        await anext(pieces)  # to be kept: an iterator that is dropped closes the response
        while await num_running() < 1:  # noqa: ASYNC110 - it is another program's state
            await asyncio.sleep(0.05)
    left = time.monotonic()
    while await num_running() > 0:  # noqa: ASYNC110 - it is another program's state
        await asyncio.sleep(0.05)
    print(f"cancel   the server was idle {time.monotonic() - left:.2f} s after the client left")


def test_llama_server_answers_through_us(tmp_path: Path) -> None:
    async def body() -> None:
        async with llama_front(tmp_path) as (front, server):
            await check_answers(front)
            question = {
                "messages": [{"role": "user", "content": "The weather in Rome? Use the function."}],
                "tools": [TOOL],
                "tool_choice": "required",
                "max_tokens": 60,
                "temperature": 0,
            }
            direct = f"http://127.0.0.1:{server.port}/v1/chat/completions"
            called, expected = [
                (await front.client.post(url, json=question)).json()["choices"][0]
                for url in ("/v1/chat/completions", direct)
            ]
            # What a template without tools makes of them is the server's own business.
            print("tool    ", called["message"].get("tool_calls"), called["finish_reason"])
            for name in ("content", "tool_calls"):
                assert called["message"].get(name) == expected["message"].get(name)
            assert called["finish_reason"] == expected["finish_reason"]
            url = f"http://127.0.0.1:{server.port}/metrics"
            await check_cancel(front, url, "llamacpp:requests_processing")
            health = (await front.health())[1]
            print("health  ", health["upstream"])
            assert health["upstream"]["server"] == "llama-server"
            assert health["upstream"]["running"] is not None
            assert (await front.chat("hi", cache_slot=1)).status_code == 400

    run_async(body, 280)


def test_llama_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with llama_front(tmp_path) as (front, server):
            body = {"messages": [{"role": "user", "content": "Count upwards."}], "stream": True}
            lines: list[str] = []
            async with front.client.stream(
                "POST", "/v1/chat/completions", json={**body, "max_tokens": 2000}
            ) as response:
                async for line in response.aiter_lines():
                    lines.append(line)
                    if len(lines) == 6:
                        await server.kill()
            told = [line for line in lines if line.startswith("data:")]
            print("killed  ", told[-1])
            assert '"error"' in told[-1]
            assert not any('"finish_reason":"stop"' in line for line in told)
            await front.until_status(503)
            began = time.monotonic()
            await server.start()
            await front.until_status(200)
            print(f"back     health was 200 again {time.monotonic() - began:.1f} s after the start")
            assert (await front.chat(QUESTION, max_tokens=4)).status_code == 200

    run_async(body, 280)


def test_vllm_is_started_answers_and_comes_back(tmp_path: Path) -> None:
    # It takes minutes to load, twice: the limit of one test is that of `run_async` below.
    faulthandler.cancel_dump_traceback_later()
    program, model = named("PEER_VLLM", "PEER_VLLM_MODEL")
    arguments = (
        *("--max-model-len", "1024", "--dtype", "float32", "--enforce-eager"),
        *("--max-num-seqs", "4"),
    )
    launch = VllmLaunch(program, model, "smollm2", arguments)

    async def body() -> None:
        began = time.monotonic()
        make = lambda on_state: ServedVllm(launch, on_state)  # noqa: E731 - the rig wants one
        async with front_of("", make=make) as front:
            front.client.timeout = httpx.Timeout(300)
            print(f"ready    after {time.monotonic() - began:.0f} s")
            await check_answers(front)
            refused = await front.chat("Weather in Rome?", tools=[TOOL])
            print("tool    ", refused.status_code, refused.json()["error"]["message"])
            assert refused.status_code == 400
            backend = front.run.services.backend
            assert isinstance(backend, ServedVllm)
            await check_cancel(front, f"{backend.url}/metrics", "vllm:num_requests_running")
            print("health  ", (await front.health())[1]["upstream"])
            os.kill(backend.pid, signal.SIGKILL)
            await front.until_status(503)
            began = time.monotonic()
            await front.until_status(200)
            print(f"back     {time.monotonic() - began:.0f} s after it was killed")
            assert (await front.chat(QUESTION, max_tokens=4)).status_code == 200

    run_async(body, 1500)
