"""A real server on loopback in a thread of its own, with routes that do what tests need."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from colibri_cli.errors import EngineCrashed, QueueFull
from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.http_types import (
    Access,
    AnyResponse,
    HttpError,
    Request,
    Response,
    Route,
    StreamingResponse,
    json_response,
)
from colibri_cli.gateway.limits import Limits
from colibri_cli.gateway.listeners import TcpAddress
from colibri_cli.gateway.server import Server, ServerOptions
from colibri_cli.gateway.sse import encode_comment, encode_event, with_keepalive
from colibri_protocol.errors import ColibriError, ContextLengthExceeded
from tests.gateway.http.raw_client import Answer, RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from colibri_cli.gateway.access_log import AccessRecord
    from colibri_cli.gateway.services import Services

T = TypeVar("T")
KEY = "k-UNIQUE-123"
SECRET_PATH = "/opt/private/model.gguf"


@dataclass
class Script:
    """What the routes were asked and did."""

    requests: list[Request] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    records: list[AccessRecord] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, event: str) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def record(self, record: AccessRecord) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()

    def wait_for(self, event: str, timeout_s: float = 3.0) -> None:
        """Wait until something happened."""
        with self.changed:
            assert self.changed.wait_for(lambda: event in self.events, timeout_s), self.events

    def wait_for_records(self, count: int, timeout_s: float = 3.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.records) >= count, timeout_s)

    # ---- handlers -----------------------------------------------------------------------------

    async def health(self, services: Services, request: Request) -> AnyResponse:
        return json_response(200, {"status": "ok", "authorized": request.is_authorized})

    async def echo(self, services: Services, request: Request) -> AnyResponse:
        self.requests.append(request)
        return json_response(
            200,
            {
                "path": request.path,
                "values": dict(request.path_values),
                "query": dict(request.query),
                "key": request.key_name,
                "body": request.body.decode("latin-1"),
            },
        )

    async def stream(self, services: Services, request: Request) -> AnyResponse:
        if "late" in request.query:
            self.note("handler runs")
            assert request.disconnected is not None
            await request.disconnected()
        body = self.pieces(request)
        if "keepalive" in request.query:
            interval = float(request.query["keepalive"])
            body = with_keepalive(body, interval, lambda: [encode_comment()])
        return StreamingResponse(body)

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """Send `n` events; with `wait`, then wait for the gate; with `fail`, break."""
        count = int(request.query.get("n", "3"))
        pause = float(request.query.get("pause", "0"))
        size = int(request.query.get("size", "1"))
        try:
            for index in range(count):
                yield encode_event(b"%d " % index + b"x" * size)
                self.note("piece sent")
                if pause:
                    await asyncio.sleep(pause)
            if "wait" in request.query:
                self.note("waiting")
                await self.gate.wait()
            if "fail" in request.query:
                raise RuntimeError(f"broke in {SECRET_PATH}")
            yield b"data: [DONE]\n\n"
        finally:
            await asyncio.sleep(0)
            self.note("stream closed")

    async def until_gone(self, services: Services, request: Request) -> AnyResponse:
        self.note("handler runs")
        assert request.disconnected is not None
        await request.disconnected()
        self.note("handler saw the client leave")
        return Response(200)

    async def until_gate(self, services: Services, request: Request) -> AnyResponse:
        self.note("handler runs")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.note("handler cancelled")
            raise
        return json_response(200, {"waited": True})

    async def fail(self, services: Services, request: Request) -> AnyResponse:
        kind = request.query["kind"]
        errors: dict[str, Exception] = {
            "bug": RuntimeError(f"cannot open {SECRET_PATH} with {KEY}"),
            "http": HttpError(418, "a teapot", code="teapot", param="pot"),
            "context": ContextLengthExceeded(5000, 4094),
            "full": QueueFull("all is full", retry_after_s=7),
            "crash": EngineCrashed(f"died at {SECRET_PATH}"),
            "unknown": ColibriError(f"something at {SECRET_PATH}"),
        }
        raise errors[kind]

    async def headers(self, services: Services, request: Request) -> AnyResponse:
        return Response(200, b"x", headers={"x-bad": request.query["value"]})

    async def big(self, services: Services, request: Request) -> AnyResponse:
        return Response(200, b"b" * int(request.query["n"]), "text/plain")

    def routes(self) -> tuple[Route, ...]:
        return (
            Route("GET", "/health", self.health, Access.OPEN),
            Route("GET", "/status", self.health, Access.PARTIAL),
            Route("POST", "/echo", self.echo, Access.OPEN),
            Route("GET", "/echo", self.echo, Access.OPEN),
            Route("POST", "/v1/chat/completions", self.echo),
            Route("POST", "/v1/messages", self.echo, render_error=other_envelope),
            Route("GET", "/v1/models", self.echo),
            Route("GET", "/v1/models/{id}", self.echo),
            Route("POST", "/stream", self.stream, Access.OPEN),
            Route("GET", "/stream", self.stream, Access.OPEN),
            Route("POST", "/until-gone", self.until_gone, Access.OPEN),
            Route("POST", "/until-gate", self.until_gate, Access.OPEN),
            Route("GET", "/fail", self.fail, Access.OPEN),
            Route("POST", "/v1/messages/fail", self.fail, Access.OPEN, other_envelope),
            Route("GET", "/headers", self.headers, Access.OPEN),
            Route("GET", "/big", self.big, Access.OPEN),
        )


def other_envelope(error: HttpError, request_id: str) -> Response:
    body = {"type": "error", "error": {"message": error.message}, "request_id": request_id}
    return json_response(error.status, body)


class RunningServer:
    """A server in a thread; leaving the block ends it."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        routes: tuple[Route, ...] | None = None,
        **options: Any,  # noqa: ANN401 - of ServerOptions
    ) -> None:
        self.script = Script()
        options.setdefault("addresses", (TcpAddress("127.0.0.1", 0),))
        self._options = ServerOptions(
            limits=limits or Limits(), on_access=self.script.record, **options
        )
        self._routes = self.script.routes() if routes is None else routes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._is_over = False
        self.server: Server

    @property
    def port(self) -> int:
        address = self.server.addresses[0]
        assert isinstance(address, TcpAddress)
        return address.port

    def connect(self) -> RawClient:
        return RawClient(("127.0.0.1", self.port))

    def ask(self, data: bytes) -> Answer:
        """Send a request on a connection of its own and return the answer."""
        with self.connect() as client:
            return client.ask(data)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 10) -> T:
        """Run something on the server's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def open_gate(self) -> None:
        self._loop.call_soon_threadsafe(self.script.gate.set)

    def wait_for_connections(self, count: int, timeout_s: float = 3.0) -> None:
        """Wait until so many connections are open."""

        async def wait() -> None:
            async with asyncio.timeout(timeout_s):
                while self.server.num_connections != count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        self.call(wait())

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5)
        self._raise_failure()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(RuntimeError):  # a test may have ended the server itself
            self._loop.call_soon_threadsafe(self._drain)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the server did not end"
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _drain(self) -> None:
        if self._is_over:  # the loop only tidies up: a task of now would never run
            return
        self._draining = self._loop.create_task(self.server.drain(0.1))

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._main())
            except BaseException as error:  # noqa: BLE001 - handed to the test
                self._failure = error
            self._ready.set()

    async def _main(self) -> None:
        services = cast("Services", object())
        self.server = Server(services, self._options, self._routes)
        await self.server.bind()
        serving = asyncio.create_task(self.server.serve())
        await asyncio.sleep(0)
        self._ready.set()
        await serving
        self._is_over = True
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, leftover = await asyncio.wait(others, timeout=1)
            assert not leftover, leftover


KEYS = ApiKeys({"mine": KEY, "other": "k-OTHER-456"})
FAST = Limits(head_s=0.4, body_s=0.4, idle_s=0.6, write_stall_s=0.6, linger_s=0.3)


def with_limits(**changes: Any) -> Limits:  # noqa: ANN401 - fields of Limits
    return replace(FAST, **changes)


def post(path: str, body: bytes, *fields: str) -> bytes:
    """Return a POST request with a Host, a length and further header lines."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *fields: str) -> bytes:
    """Return a GET request with a Host and further header lines."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *fields]).encode() + b"\r\n\r\n"
