"""An upstream server on a real socket: the routes of vLLM, SGLang or llama.cpp's server.

What it answers stands in the last user message (see `_answer`); any other text is said back, a word
a piece. Also a program: `scripted_upstream.py serve MODEL --port N --served-model-name NAME …`, as
`vllm` is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

MOST_TOKENS = 4096  # of the context
METRICS = {
    "vllm": (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
        'vllm:num_requests_waiting{{engine="0",model_name="m"}} 2.0\n'
        'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25\n'
        'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
        'vllm:prompt_tokens_total{{engine="0",model_name="m"}} 100.0\n'
        'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} 100.0\n'
        'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} 40.0\n'
    ),
    "llamacpp": (
        "llamacpp:requests_processing {running}\nllamacpp:requests_deferred 2\n"
        "llamacpp:tokens_predicted_total {tokens}\nllamacpp:prompt_tokens_total 100\n"
    ),
    "sglang": (
        'sglang:num_running_reqs{{model_name="m"}} {running}\n'
        'sglang:num_queue_reqs{{model_name="m"}} 2.0\nsglang:token_usage{{model_name="m"}} 0.25\n'
        'sglang:gen_throughput{{model_name="m"}} 12.5\n'
        'sglang:cache_hit_rate{{model_name="m"}} 0.4\n'
    ),
}
USAGE: dict[str, Any] = {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}


@dataclass
class ScriptedUpstream:
    """The server.

    Args:
        owner: Owner of its models: `vllm`, `llamacpp`, `sglang`, or anything else.
        models: Their names.
        key: What clients must show, or None.
        pace_s: Pause between two pieces.
        piece: Repeated by `tokens N`.
    """

    owner: str = "vllm"
    models: tuple[str, ...] = ("scripted",)
    key: str | None = None
    pace_s: float = 0.0
    piece: str = " word"
    port: int = 0
    health: int = 200
    has_metrics: bool = True
    ends_calls_with: str = "tool_calls"
    drops_requests: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_connections: int = 0
    running: int = 0
    num_left: int = 0
    num_tokens: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End as a killed process does: every connection breaks."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.num_connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._exchange(_Link(reader, writer)):
                    pass
        except asyncio.CancelledError:
            pass  # of `stop`: the server's callback would log it
        finally:
            writer.transport.abort()

    async def _exchange(self, link: _Link) -> bool:
        """Answer one request; False: the connection is over."""
        method, path, headers, body = await link.read_request()
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            await link.send_json(401, _error("wrong key", "authentication_error", "invalid_key"))
            return True
        if method == "GET":
            await self._get(link, path)
            return True
        asked = json.loads(body)
        if path == "/tokenize":
            num = len(json.dumps(asked.get("messages") or asked.get("prompt")).split())
            await link.send_json(200, {"count": num})
            return True
        self.bodies.append(asked)
        if self.drops_requests:
            return False
        self.running += 1
        try:
            return await self._answer(link, asked, is_chat=path.endswith("/chat/completions"))
        finally:
            self.running -= 1

    async def _get(self, link: _Link, path: str) -> None:
        if path == "/health":
            await link.send(self.health, b"", "text/plain")
        elif path == "/v1/models":
            data = [
                {
                    "id": name,
                    "object": "model",
                    "owned_by": self.owner,
                    "max_model_len": MOST_TOKENS,
                }
                for name in self.models
            ]
            await link.send_json(200, {"object": "list", "data": data})
        elif path == "/metrics" and self.has_metrics and self.owner in METRICS:
            page = METRICS[self.owner].format(running=self.running, tokens=self.num_tokens)
            await link.send(200, page.encode(), "text/plain")
        else:
            await link.send_json(404, {"detail": "Not Found"})

    async def _answer(self, link: _Link, asked: dict[str, Any], *, is_chat: bool) -> bool:
        text = str(asked["messages"][-1]["content"]) if is_chat else str(asked["prompt"])
        word, _, rest = text.partition(" ")
        limit = asked.get("max_tokens") or asked.get("max_completion_tokens") or 0
        if self.owner == "vllm" and limit >= MOST_TOKENS:
            said = f"max_tokens={limit} cannot be greater than max_model_len={MOST_TOKENS}."
            await link.send_json(400, _error(said, "BadRequestError", "400", "max_tokens"))
            return True
        if word == "refuse":
            status, _, message = rest.partition(" ")
            error = _error(message or "no", "BadRequestError", "scripted", "messages")
            await link.send_json(int(status), error, {"Retry-After": "7"})
            return True
        try:
            await link.begin_stream()
            async with contextlib.aclosing(self._events(word, rest, text, asked)) as events:
                async for event in events:
                    if event is None:
                        return False  # broken off
                    if not is_chat and event.get("choices"):
                        choice = event["choices"][0]
                        choice["text"] = choice.pop("delta").get("content", "")
                    await link.send_event(event)
        except (OSError, asyncio.IncompleteReadError):
            self.num_left += 1
            return False
        if word == "hang":
            await link.until_left()
            self.num_left += 1
            return False
        await link.end_stream()
        return True

    async def _events(
        self, word: str, rest: str, text: str, asked: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any] | None]:
        limit = asked.get("max_tokens") or 10**9
        yield _chunk(role="assistant", content="")
        if word == "call":
            name, _, arguments = rest.partition(" ")
            for event in _call(name, arguments):
                yield event
            yield _finished(self.ends_calls_with, 1)
            return
        words = [w if i == 0 else f" {w}" for i, w in enumerate(text.split(" "))]
        if word == "think":
            yield _chunk(reasoning=rest)
            words = ["done"]
        elif word == "tokens":
            words = [self.piece] * int(rest)
        elif word in {"hang", "cut", "fail"}:
            words = ["begun"]
        for piece in words[:limit]:
            self.num_tokens += 1
            yield _chunk(content=piece)
            if self.pace_s:
                await asyncio.sleep(self.pace_s)
        if word == "hang":
            return
        if word == "cut":
            yield None
        if word == "fail":
            yield _error("the worker died", "InternalServerError", "500")
            return
        yield _finished("length" if len(words) > limit else "stop", min(len(words), limit))


@contextmanager
def running(upstream: ScriptedUpstream) -> Iterator[ScriptedUpstream]:
    """Run the server in a thread, for those who wait for something else in their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result(20)
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(upstream.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class _Link:
    """One connection: requests in, answers out."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read_request(self) -> tuple[str, str, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (row.partition(":") for row in lines)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return method, target.partition("?")[0], headers, body

    async def send(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        rows = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        await self._write(_head(status, rows) + body)

    async def send_json(
        self, status: int, value: object, headers: dict[str, str] | None = None
    ) -> None:
        await self.send(status, json.dumps(value).encode(), "application/json", headers)

    async def begin_stream(self) -> None:
        rows = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        await self._write(_head(200, rows))

    async def send_event(self, value: object) -> None:
        await self._chunk(f"data: {json.dumps(value)}\n\n".encode())

    async def end_stream(self) -> None:
        await self._chunk(b"data: [DONE]\n\n")
        await self._write(b"0\r\n\r\n")

    async def until_left(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(OSError):
            while await self.reader.read(1024):
                pass

    async def _chunk(self, data: bytes) -> None:
        await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def _write(self, data: bytes) -> None:
        if self.reader.at_eof():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _error(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _chunk(**delta: object) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _call(name: str, arguments: str) -> list[dict[str, Any]]:
    first: dict[str, object] = {
        "id": "call_up",
        "type": "function",
        "function": {"name": name, "arguments": ""},
    }
    half = len(arguments) // 2
    rest = [arguments[:half], arguments[half:]]
    pieces: list[dict[str, object]] = [first]
    pieces += [{"function": {"arguments": text}} for text in rest]
    return [_chunk(tool_calls=[{"index": 0, **piece}]) for piece in pieces]


def _finished(reason: str, num_tokens: int) -> dict[str, Any]:
    choice = {"index": 0, "delta": {}, "finish_reason": reason, "stop_reason": None}
    return {"id": "c", "choices": [choice], "usage": {**USAGE, "completion_tokens": num_tokens}}


async def _main(argv: list[str]) -> None:
    """Be `vllm serve MODEL …`: the arguments go where a test can read them."""
    options = dict(itertools.pairwise(argv))
    _record(argv)
    print("scripted: loading", flush=True)
    if "--exit-code" in options:
        print("scripted: no such device", flush=True)
        sys.exit(int(options["--exit-code"]))
    upstream = ScriptedUpstream(
        models=(options["--served-model-name"],),
        port=int(options["--port"]),
        pace_s=float(options.get("--pace-ms", 0)) / 1000,
    )
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with upstream:
        await ended.wait()
        print("scripted: shutting down", flush=True)
        _record(["ended", str(upstream.running)])


def _record(words: list[str]) -> None:
    if file := os.environ.get("SCRIPTED_ARGV"):
        with Path(file).open("a", encoding="utf-8") as record:
            record.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
