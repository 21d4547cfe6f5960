"""The backend on a running server: what it sends, what it makes of the stream and of refusals."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from colibri_cli.backends.base import (
    Completed,
    Generation,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
)
from colibri_cli.backends.upstreams.backend import UpstreamBackend
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.errors import CapabilityMissing, ServerRefused, ServerUnreachable
from colibri_protocol.messages import RequestOptions
from tests.fakes.supervised import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from colibri_cli.backends.base import AnswerEvent

HEALTH = {
    "status": "ok",
    "family": "glm4_moe",
    "tiers": {"vram": 0, "ram": 3, "disk": 1, "vram_gb": 0.0, "ram_gb": 0.5},
    "engine": {"rss_gb": 1.5},
}
MODELS = {
    "object": "list",
    "data": [
        {"id": "demo", "owned_by": "colibri", "context_window": 100},
        {"id": "other", "owned_by": "colibri"},
    ],
}
HELLO = Conversation((ChatMessage("system", "be kind"), ChatMessage("user", "hi")))


class Stream(httpx.AsyncByteStream):
    """A body that comes line by line, and stays open if told to."""

    def __init__(self, lines: list[str], *, hangs: bool = False) -> None:
        self._lines = lines
        self._hangs = hangs
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield f"{line}\n\n".encode()
        if self._hangs:
            await asyncio.sleep(60)

    async def aclose(self) -> None:
        self.is_closed = True


class Server:
    """Answers as told and keeps what it was asked."""

    def __init__(self, **answers: httpx.Response) -> None:
        self.answers = {
            "/health": httpx.Response(200, json=HEALTH),
            "/v1/models": httpx.Response(200, json=MODELS),
            **{f"/{name.replace('__', '/')}": answer for name, answer in answers.items()},
        }
        self.bodies: list[Any] = []
        self.headers: list[httpx.Headers] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers)
        if request.content:
            self.bodies.append(json.loads(request.content))
        return self.answers[request.url.path]

    def backend(self, url: str = "http://server", key: str | None = None) -> UpstreamBackend:
        return UpstreamBackend(url, key, httpx.MockTransport(self))


def chunk(**delta: str) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def last(finish: str) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})


USAGE = "data: " + json.dumps(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }
)


def streaming(*lines: str, hangs: bool = False) -> httpx.Response:
    return httpx.Response(200, stream=Stream(list(lines), hangs=hangs))


async def events_of(backend: UpstreamBackend, generation: Generation | None = None) -> list[Any]:
    answer = await backend.chat(HELLO, generation or Generation())
    async with answer:
        found: list[AnswerEvent] = [event async for event in answer]
    assert answer.ended.done()
    return found


def test_the_server_tells_what_it_serves() -> None:
    async def body() -> None:
        for url in ("http://server", "http://server/v1", "http://server/v1/"):
            backend = Server().backend(url)
            await backend.open()
            (card,) = await backend.models()
            assert (card.id, card.family, card.context_length) == ("demo", "glm4_moe", 100)
            assert backend.names == ("demo", "other")
            assert backend.is_ours
            assert backend.telemetry().rss_gb == 1.5
            assert backend.telemetry().tiers is not None
            await backend.close()

    run_async(body)


def test_reasoning_text_progress_and_figures_come_out_of_the_stream() -> None:
    async def body() -> None:
        server = Server(
            v1__chat__completions=streaming(
                chunk(role="assistant", content=""),
                ": prefill 3/9",
                chunk(reasoning_content="hm"),
                chunk(content="Hé"),
                chunk(content="llo"),
                last("length"),
                USAGE,
                "data: [DONE]",
            )
        )
        backend = server.backend(key="secret")
        await backend.open()
        events = await events_of(backend)
        assert PrefillProgress(3, 9) in events
        assert ReasoningDelta("hm") in events
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Héllo"
        done = events[-1]
        assert isinstance(done, Completed)
        assert (done.finish, done.prompt_tokens, done.completion_tokens) == ("length", 9, 3)
        assert done.reused_tokens == 4
        assert server.headers[-1]["authorization"] == "Bearer secret"
        await backend.close()

    run_async(body)


def test_only_what_was_set_is_sent() -> None:
    async def body() -> None:
        answer = streaming(last("stop"), "data: [DONE]")
        server = Server(v1__chat__completions=answer)
        backend = server.backend()
        await backend.open()
        options = RequestOptions(max_tokens=5, temperature=0, seed=7)
        await events_of(backend, Generation(options, ("END",), slot=1))
        assert server.bodies == [
            {
                "model": "demo",
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": 5,
                "temperature": 0.0,
                "seed": 7,
                "stop": ["END"],
                "cache_slot": 1,
                "messages": [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "hi"},
                ],
            }
        ]
        with pytest.raises(CapabilityMissing, match="ignore_eos"):
            await backend.chat(HELLO, Generation(RequestOptions(ignore_eos=True)))
        await backend.close()

    run_async(body)


def test_stopping_leaves_the_server_and_keeps_what_came() -> None:
    async def body() -> None:
        stream = Stream([chunk(content="a"), chunk(content="b")], hangs=True)
        response = httpx.Response(200, stream=stream)
        backend = Server(v1__chat__completions=response).backend()
        await backend.open()
        found: list[AnswerEvent] = []
        answer = await backend.chat(HELLO, Generation())
        async with answer:
            async for event in answer:
                found.append(event)
                if event == TextDelta("b"):
                    asyncio.get_running_loop().call_later(0.05, answer.stop)
        assert isinstance(found[-1], Completed)
        assert (found[-1].finish, found[-1].completion_tokens) == ("stopped", 2)
        assert stream.is_closed
        await backend.close()

    run_async(body)


def test_aborting_raises_where_events_are_awaited() -> None:
    async def body() -> None:
        backend = Server(v1__chat__completions=streaming(hangs=True)).backend()
        await backend.open()
        answer = await backend.chat(HELLO, Generation())
        asyncio.get_running_loop().call_later(0.05, answer.abort, ValueError("gone"))
        async with answer:
            with pytest.raises(ValueError, match="gone"):
                [event async for event in answer]
        await backend.close()

    run_async(body)


def test_refusals_are_told_in_the_servers_words() -> None:
    async def body() -> None:
        for status, hint in ((400, None), (401, "COLI_API_KEY"), (429, "7 s")):
            refusal = httpx.Response(
                status,
                json={"error": {"message": "no \x1b[31mway", "code": "x"}},
                headers={"retry-after": "7"},
            )
            backend = Server(v1__chat__completions=refusal).backend()
            await backend.open()
            with pytest.raises(ServerRefused) as caught:
                await events_of(backend)
            assert caught.value.message == "no  [31mway"
            assert caught.value.status == status
            assert hint is None or hint in (caught.value.hint or "")
            await backend.close()

    run_async(body)


@pytest.mark.parametrize(
    "lines",
    [
        [chunk(content="a"), 'data: {"error": {"message": "the engine failed"}}'],
        [chunk(content="a")],
    ],
)
def test_a_broken_answer_is_no_answer(lines: list[str]) -> None:
    async def body() -> None:
        backend = Server(v1__chat__completions=streaming(*lines)).backend()
        await backend.open()
        with pytest.raises((ServerRefused, ServerUnreachable)):
            await events_of(backend)
        await backend.close()

    run_async(body)


def test_a_silent_or_unready_server_is_named() -> None:
    async def body() -> None:
        async def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused", request=request)

        backend = UpstreamBackend("http://server", None, httpx.MockTransport(refuse))
        with pytest.raises(ServerUnreachable, match="http://server"):
            await backend.open()
        await backend.close()
        loading = Server(health=httpx.Response(503, json={"status": "loading"})).backend()
        with pytest.raises(ServerUnreachable, match="loading"):
            await loading.open()
        await loading.close()

    run_async(body)


def test_another_server_of_the_api_will_do() -> None:
    async def body() -> None:
        server = Server(
            health=httpx.Response(404, text="<html>"),
            v1__models=httpx.Response(200, json={"data": [{"id": "llama"}]}),
        )
        backend = server.backend()
        await backend.open()
        assert backend.names == ("llama",)
        assert not backend.is_ours
        await backend.close()

    run_async(body)


def test_tokens_are_counted_by_the_server() -> None:
    async def body() -> None:
        server = Server(tokenize=httpx.Response(200, json={"count": 12}))
        backend = server.backend()
        await backend.open()
        assert await backend.count(HELLO) == 12
        assert await backend.count_text("hi") == 12
        await backend.close()

    run_async(body)
