"""An OpenAI-like server that does what a test tells it, and the built page at its own address.

It remembers every request, can end and come back at the same port, and sees when a client leaves.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from colibri_cli.gateway.static_files import find_file, send_file


@dataclass
class Seen:
    """A request that arrived; `left_at` is when its client closed before the answer was whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float
    left_at: float | None = None


@dataclass
class Reply:
    """An answer: bytes are sent, numbers are pauses in seconds."""

    parts: Iterable[bytes | float] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: object, status: int = 200, **headers: str) -> Reply:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(
            [json.dumps(value).encode()], status, {"Content-Type": "application/json", **named}
        )

    @classmethod
    def error(cls, status: int, message: str, code: str = "", **headers: str) -> Reply:
        body = {"error": {"message": message, "type": "x", "param": None, "code": code}}
        return cls.of_json(body, status, x_request_id="req_scripted", **headers)


Script = Callable[[Seen], Reply]


def frame(value: object) -> bytes:
    """Return one event of a stream."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


def delta(finish: str | None = None, **fields: object) -> bytes:
    """Return a chunk of an answer."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return frame({"object": "chat.completion.chunk", "choices": [choice]})


def usage(prompt: int, completion: int) -> bytes:
    """Return the chunk that counts."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return frame({"choices": [], "usage": counts})


DONE = frame("[DONE]")


def answer(text: str, *, pause_s: float = 0.0, finish: str = "stop", **headers: str) -> Reply:
    """Return a streamed answer, a word a chunk."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    parts: list[bytes | float] = []
    for word in words:
        parts += [delta(content=word), pause_s]
    parts += [delta(finish), usage(5, len(words)), DONE]
    return stream(parts, **headers)


def held(first: list[bytes], seen: threading.Event, rest: list[bytes]) -> Iterator[bytes | float]:
    """Yield the first parts, and the rest once the test has seen them."""
    yield from first
    while not seen.is_set():
        yield 0.02
    yield from rest


def stream(parts: Iterable[bytes | float], **headers: str) -> Reply:
    """Return a reply of events."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(parts, 200, {"Content-Type": "text/event-stream", **named})


def health(**fields: object) -> dict[str, object]:
    """Return a health object of a ready server."""
    scheduler = {
        "active": 0,
        "queued": 0,
        "capacity": 1,
        "max_queue": 8,
        "queue_timeout_seconds": 300.0,
        "admitted": 0,
        "completed": 0,
        "failed": 0,
        "aborted": 0,
        "rejected": 0,
        "timed_out": 0,
        "cancelled": 0,
    }
    return {
        "status": "ok",
        "scheduler": scheduler,
        "kv_slots": 1,
        "slots": [],
        "model": "scripted",
        "version": "0.0.0",
        "tiers": {"vram": 10, "ram": 30, "disk": 60, "vram_gb": 1.5, "ram_gb": 4.5},
        "hwinfo": {
            "cores": 8,
            "ram_total_gb": 64.0,
            "ram_avail_gb": 32.0,
            "gpus": 2,
            "vram_total_gb": 48.0,
            "cpu": "A CPU",
            "gpu": "A GPU",
        },
        "engine": {"state": "ready", "restarts": 0, "last_end": None, "rss_gb": 5.0},
        **fields,
    }


class ScriptedServer:
    """The server. `routes` maps "METHOD /path" to what answers; what is not in it is 404.

    Args:
        page: Folder of the built page, or None for an API alone.
    """

    def __init__(self, page: Path | None) -> None:
        self.page = page
        self.seen: list[Seen] = []
        self.routes: dict[str, Script] = {
            "GET /v1/models": lambda _: Reply.of_json({"data": [{"id": "scripted"}]}),
            "GET /health": lambda _: Reply.of_json(health()),
            "GET /experts": lambda _: Reply.of_json(
                {"rows": 0, "cols": 0, "map": "", "hits": "", "seq": 0}
            ),
            "GET /profile": lambda _: Reply.of_json({"seq": 0, "turns": []}),
            "POST /v1/chat/completions": lambda _: answer("Hello there."),
        }
        self.port = 0
        self._http: _Http | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def chats(self) -> list[Seen]:
        return self.to("POST /v1/chat/completions")

    def to(self, route: str) -> list[Seen]:
        return [seen for seen in self.seen if f"{seen.method} {seen.path}" == route]

    def on_chat(self, *replies: Reply | Script) -> None:
        """Answer chats with these in turn, the last one for all that follow."""
        left = list(replies)

        def script(seen: Seen) -> Reply:
            reply = left.pop(0) if len(left) > 1 else left[0]
            return reply if isinstance(reply, Reply) else reply(seen)

        self.routes["POST /v1/chat/completions"] = script

    def start(self) -> None:
        self._http = _Http(("127.0.0.1", self.port), _Handler, self)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._http is None:
            return
        self._http.is_ended = True
        self._http.shutdown()
        self._http.server_close()
        self._http = None


class _Http(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], handler: type[_Handler], scripted: ScriptedServer
    ) -> None:
        self.scripted = scripted
        self.is_ended = False
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave are a part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        self.close_connection = True  # an ended server must not live on in kept connections
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): text for name, text in self.headers.items()}
        path = self.path.split("?")[0]
        seen = Seen(self.command, path, headers, body, time.monotonic())
        scripted = self.server.scripted
        script = scripted.routes.get(f"{self.command} {path}")
        if script is not None:
            scripted.seen.append(seen)
            self._send(script(seen), seen)
        elif self.command != "GET" or not self._send_page(path):
            scripted.seen.append(seen)
            self._send(Reply.error(404, "there is nothing here", "not_found"), seen)

    def _send_page(self, path: str) -> bool:
        page = self.server.scripted.page
        is_api = path.startswith("/v1/") or path in {"/health", "/experts", "/profile", "/events"}
        file = None if page is None or is_api else find_file(page, unquote(path).lstrip("/"))
        if file is None:
            return False
        response = send_file(file, {"accept-encoding": self.headers.get("accept-encoding", "")})
        self.send_response(response.status)
        for name, text in response.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)
        return True

    def _send(self, reply: Reply, seen: Seen) -> None:
        try:
            self.send_response(reply.status)
            for name, text in {**reply.headers, "Connection": "close"}.items():
                self.send_header(name, text)
            self.end_headers()
            for part in reply.parts:
                if isinstance(part, bytes):
                    self.wfile.write(part)
                    self.wfile.flush()
                elif not self._rest(part, seen):
                    return
        except OSError:
            seen.left_at = time.monotonic()

    def _rest(self, seconds: float, seen: Seen) -> bool:
        """Wait; False if the client or the server left meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.server.is_ended:
                return False
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.02))
            if readable and not self.connection.recv(1):
                seen.left_at = time.monotonic()
                return False
        return True
