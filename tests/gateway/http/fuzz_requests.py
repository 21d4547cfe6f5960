"""Mutated requests and pipelines against a real server: nothing may break it or confuse it.

Run it: `python -m tests.gateway.http.fuzz_requests --requests 100000 --seed 1`.

For each connection, what came back is compared with an independent reading of what was sent: every
answer is well-formed, the answers to complete requests come in order and hold what those requests
said, nothing that is not a request is answered as one, and after an announced end nothing follows.
The server always answers or closes within two seconds, logs no error, keeps no connection, task or
byte, and serves a known request on a fresh connection at any time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.http_types import (
    Access,
    AnyResponse,
    Request,
    Route,
    StreamingResponse,
    json_response,
)
from colibri_cli.gateway.limits import Limits
from colibri_cli.gateway.listeners import TcpAddress, UnixAddress
from colibri_cli.gateway.server import Server, ServerOptions
from colibri_cli.gateway.sse import with_keepalive
from tests.gateway.http.raw_client import Answer, BadAnswer, NeedMore, parse_answer
from tests.gateway.http.reference_reader import End, Expected, read_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from colibri_cli.gateway.services import Services

HANG_S = 2.0
_TICK_S = 0.02
NUM_WORKERS = 16
LIMITS = Limits(
    max_body_bytes=200_000, head_s=0.3, body_s=0.3, idle_s=0.3, write_stall_s=0.5, linger_s=0.2
)
KNOWN = b"GET /echo?known HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

# ---- what is sent -------------------------------------------------------------------------------

TARGETS = ("/echo", "/echo?a=1&b", "/echo/%61%2Fb", "/locked", "/none", "http://localhost/echo")
FIELDS = (
    b"Accept: */*",
    b"User-Agent: fuzz",
    b"X-Empty:",
    b"Authorization: Bearer right",
    b"Origin: https://evil.example",
    b"Origin: http://localhost:5173",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"Cookie: " + b"c" * 300,
)
TOKENS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b"\r\n ",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"content-length:+3\r\n",
    b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding:\tchunked\r\n",
    b"Host: evil.example\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\x16\x03\x01\x02",
    b"\xff\xfe",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


class Maker:
    """Valid requests, and what becomes of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pipeline(self) -> tuple[bytes, int]:
        """Return one to four requests in a row and their number."""
        count = self.rng.choice((1, 1, 2, 2, 3, 4))
        return b"".join(self.request() for _ in range(count)), count

    def request(self) -> bytes:
        """Return a valid request."""
        rng = self.rng
        method = rng.choice((b"GET", b"GET", b"POST", b"POST", b"POST", b"HEAD", b"OPTIONS"))
        version = b"1.0" if rng.random() < 0.04 else b"1.1"
        target = rng.choice(TARGETS).encode()
        lines = [method + b" " + target + b" HTTP/" + version]
        lines.append(b"Host: evil.example" if rng.random() < 0.05 else b"Host: localhost")
        fields = rng.sample(FIELDS, rng.choice((0, 0, 1, 2, 3)))
        lines += {line.partition(b":")[0]: line for line in fields}.values()
        body = self.body()
        if method == b"POST" or rng.random() < 0.1:
            if version == b"1.1" and rng.random() < 0.4:
                lines.append(b"Transfer-Encoding: chunked")
                body = self.chunked(body)
            else:
                lines.append(b"Content-Length: %d" % len(body))
        else:
            body = b""
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def body(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:  # what would be a request if it were not a body
            return b"GET /echo?hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
        size = rng.choice((0, 1, 5, 41, 300)) if kind < 0.97 else rng.choice((70_000, 250_000))
        return rng.randbytes(size)

    def chunked(self, body: bytes) -> bytes:
        rng, out, at = self.rng, b"", 0
        while at < len(body):
            size = rng.randint(1, max(len(body) // 2, 1))
            piece = body[at : at + size]
            extension = b";x=y" if rng.random() < 0.1 else b""
            out += b"%x%b\r\n%b\r\n" % (len(piece), extension, piece)
            at += size
        trailer = b"X-Trailer: 1\r\n" if rng.random() < 0.1 else b""
        return out + b"0\r\n" + trailer + b"\r\n"

    def mutate(self, data: bytes) -> bytes:
        """Return the bytes with one to three changes."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            data = self._change(data)
        return data

    def _change(self, data: bytes) -> bytes:
        rng = self.rng
        at = rng.randrange(min(len(data), 400) + 1) if data else 0
        end = min(at + rng.choice((1, 1, 2, 8, 40)), len(data))
        kind = rng.randrange(9)
        if kind == 0:
            return data[:at] + bytes([rng.randrange(256)]) + data[end:]
        if kind == 1:
            return data[:at] + data[end:]
        if kind == 2:
            return data[:at] + data[at:end] * 2 + data[end:]
        if kind == 3:
            return data[:at]
        if kind == 4:
            return data[:at] + rng.randbytes(rng.choice((1, 3, 30))) + data[at:]
        if kind == 5 and rng.random() < 0.02:
            return data[:at] + b"a" * 70_000 + data[at:]
        if kind == 6:  # at the start of a line, where it hurts most
            starts = [i + 2 for i in range(len(data[:400])) if data[i : i + 2] == b"\r\n"]
            at = rng.choice(starts or [0])
        return data[:at] + rng.choice(TOKENS) + data[at:]

    def splits(self, data: bytes) -> list[bytes]:
        """Return the pieces in which the bytes are sent."""
        rng = self.rng
        if rng.random() < 0.6 or len(data) < 2:
            return [data]
        if rng.random() < 0.1:
            return [data[i : i + 1] for i in range(min(len(data), 200))] + [data[200:]]
        cuts = sorted(rng.sample(range(1, len(data)), min(rng.randint(1, 6), len(data) - 1)))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# ---- what answers -------------------------------------------------------------------------------


def fingerprint(method: str, body: bytes) -> dict[str, object]:
    """Return what an answer says about its request."""
    return {"method": method, "length": len(body), "digest": hashlib.sha256(body).hexdigest()[:16]}


async def echo(services: Services, request: Request) -> AnyResponse:
    """Answer with the request's fingerprint."""
    method = "GET" if request.method == "HEAD" else request.method
    return json_response(200, fingerprint(method, request.body))


async def stream(services: Services, request: Request) -> AnyResponse:
    """Answer with a short stream."""

    async def pieces() -> AsyncIterator[bytes]:
        for index in range(5):
            yield b"data: %d\n\n" % index
            await asyncio.sleep(0)

    return StreamingResponse(with_keepalive(pieces(), 1, list))


ROUTES = (
    Route("GET", "/echo", echo, Access.OPEN),
    Route("POST", "/echo", echo, Access.OPEN),
    Route("POST", "/echo/{rest}", echo, Access.OPEN),
    Route("POST", "/locked", echo),
    Route("GET", "/stream", stream, Access.OPEN),
)

# ---- what must hold -----------------------------------------------------------------------------


@dataclass
class Report:
    """What was done."""

    num_requests: int = 0
    num_connections: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest_s: float = 0.0
    grown_kib: int = 0

    def __str__(self) -> str:
        statuses = ", ".join(f"{s}: {n}" for s, n in sorted(self.statuses.items()))
        return (
            f"{self.num_requests} requests on {self.num_connections} connections in"
            f" {self.seconds:.1f} s; slowest connection {self.slowest_s:.2f} s; resident memory"
            f" +{self.grown_kib} KiB; answers: {statuses}"
        )


class Broken(AssertionError):
    """An invariant does not hold; the message has what was sent."""


def judge(sent: bytes, received: bytes, *, is_mutated: bool) -> list[Answer]:
    """Compare what came back with what was sent; return the answers.

    Raises:
        Broken: they do not fit.
    """
    reading = read_stream(sent)
    heads = [*reading.requests, *([reading.unfinished] if reading.unfinished else [])]
    answers = _split(received, heads)
    final = [answer for answer in answers if answer.status >= 200]
    for index, answer in enumerate(final):
        is_last = index == len(final) - 1
        if answer.closes and not is_last:
            raise Broken("an answer follows an announced end")
        if index < len(reading.requests):
            _check_answer(reading.requests[index], answer, is_mutated=is_mutated)
        elif index > len(reading.requests) or reading.end is End.CLEAN:
            raise Broken("more answers than requests")
        elif answer.status < 400 and answer.status != 204:
            raise Broken(f"{answer.status} for what is no complete request")
        elif reading.end is End.REFUSED and not answer.closes and not _may_skip(reading.unfinished):
            raise Broken("kept open after something that is no request")
    ended = bool(final) and final[-1].closes
    if len(final) < len(reading.requests) and not ended:
        raise Broken(f"{len(final)} answers to {len(reading.requests)} requests")
    return final


def _may_skip(unfinished: Expected | None) -> bool:
    return unfinished is not None and "transfer-encoding" not in unfinished.fields


def _split(received: bytes, heads: list[Expected]) -> list[Answer]:
    answers: list[Answer] = []
    at, index = 0, 0
    while at < len(received):
        is_head = index < len(heads) and heads[index].method == "HEAD"
        try:
            answer, length = _parse(received[at:], is_head=is_head)
        except NeedMore:
            raise Broken("the last answer is cut") from None
        except BadAnswer as error:
            raise Broken(str(error)) from None
        answers.append(answer)
        at += length
        index += answer.status >= 200
    return answers


def _parse(received: bytes, *, is_head: bool) -> tuple[Answer, int]:
    answer, length = parse_answer(received, is_head=is_head, at_end=True)
    if is_head and answer.closes and len(received) > length:
        # A head that could not be read was not known to be of a HEAD request.
        return parse_answer(received, at_end=True)
    return answer, length


def _check_answer(request: Expected, answer: Answer, *, is_mutated: bool) -> None:
    if request.closes and not answer.closes:
        raise Broken("the end that was asked for is not announced")
    if answer.status == 200 and request.method != "HEAD":
        if answer.headers.get("content-type") == "text/event-stream":
            return
        if answer.json != fingerprint(request.method, request.body):
            raise Broken(f"the answer is to another request: {answer.json}")
    elif answer.status in {400, 501, 505} and not is_mutated:
        raise Broken(f"{answer.status} for a valid request: {answer.body!r}")


# ---- the run ------------------------------------------------------------------------------------


class Fuzzer:
    """Connections in parallel against one server."""

    def __init__(self, path: Path, seed: int, num_requests: int) -> None:
        self.path = path
        self.seed = seed
        self.num_requests = num_requests
        self.report = Report()
        self.port = 0
        self._next = 0
        self._starved_s = 0.0  # time in which the machine let nothing of this run

    async def run(self) -> Report:
        """Run all of it.

        Raises:
            Broken: something did not hold; the message says how to repeat it.
        """
        options = ServerOptions(
            addresses=(TcpAddress("127.0.0.1", 0), UnixAddress(self.path)),
            keys=ApiKeys({"right": "right"}),
            limits=LIMITS,
        )
        server = Server(cast("Services", object()), options, ROUTES)
        await server.bind()
        assert isinstance(server.addresses[0], TcpAddress)
        self.port = server.addresses[0].port
        serving = asyncio.create_task(server.serve())
        began, before = time.monotonic(), resident_kib()
        watching = asyncio.create_task(self._watch_machine())
        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_WORKERS):
                group.create_task(self._work())
        watching.cancel()
        await asyncio.wait({watching})
        await self._settle(server)
        self.report.seconds = time.monotonic() - began
        self.report.grown_kib = resident_kib() - before
        await server.drain(1)
        await serving
        return self.report

    async def _settle(self, server: Server) -> None:
        for _ in range(200):
            if not server.num_connections:
                break
            await asyncio.sleep(0.02)
        if server.num_connections or server.table.input_bytes:
            raise Broken(f"left: {server.num_connections} open, {server.table.input_bytes} bytes")
        if len(asyncio.all_tasks()) > 2:  # this one and the server's
            raise Broken(f"tasks are left: {asyncio.all_tasks()}")

    async def _watch_machine(self) -> None:
        """Count the time by which ticks come late though we did not compute: others did."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK_S)
            late = time.monotonic() - began - _TICK_S
            self._starved_s += max(late - (time.process_time() - used), 0.0)

    async def _work(self) -> None:
        while self.report.num_requests < self.num_requests:
            number, self._next = self._next, self._next + 1
            try:
                await self._one(random.Random(f"{self.seed}/{number}"))
            except Broken as error:
                raise Broken(f"seed {self.seed}, connection {number}: {error}") from None
            if number % 40 == 0:
                await self._check_fresh()

    async def _one(self, rng: random.Random) -> None:
        maker = Maker(rng)
        data, count = maker.pipeline()
        if is_mutated := rng.random() < 0.85:
            data = maker.mutate(data)
        how = rng.choices(("end", "wait", "reset", "close"), (80, 4, 8, 8))[0]
        if how == "wait" and rng.random() < 0.5:
            data = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n" + data
        self.report.num_requests += count
        self.report.num_connections += 1
        received, wait_s = await self._exchange(maker.splits(data), how)
        self.report.slowest_s = max(self.report.slowest_s, wait_s)
        if wait_s > HANG_S:
            raise Broken(f"no answer and no end within {HANG_S} s to {data!r}")
        if received is None:
            return
        try:
            answers = judge(data, received, is_mutated=is_mutated)
        except Broken as error:
            raise Broken(f"{error}\n  sent {data!r}\n  received {received!r}") from None
        self.report.statuses.update(answer.status for answer in answers)

    def _now(self) -> float:
        """Return the time without that in which nothing of this ran."""
        return time.monotonic() - self._starved_s

    async def _exchange(self, pieces: list[bytes], how: str) -> tuple[bytes | None, float]:
        """Send bytes and leave as told.

        Returns:
            All that came, None if it does not matter, and how long its end took after sending.
        """
        if how == "reset":  # a socket file knows no reset
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        else:
            reader, writer = await asyncio.open_unix_connection(self.path)
        reading = asyncio.create_task(reader.read(-1))
        try:
            with contextlib.suppress(OSError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    if len(pieces) > 1:
                        await asyncio.sleep(0)
                if how == "end":
                    writer.write_eof()
            sent = self._now()
            if how in {"end", "wait"}:
                await asyncio.wait({reading}, timeout=5 * HANG_S)
                return (reading.result() if reading.done() else None), self._now() - sent
            if how == "reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return None, 0.0
        except OSError:
            return None, 0.0  # what had come before is lost: nothing to judge
        finally:
            reading.cancel()
            writer.transport.abort()
            await asyncio.wait({reading})

    async def _check_fresh(self) -> None:
        async with asyncio.timeout(10 * HANG_S):
            reader, writer = await asyncio.open_unix_connection(self.path)
            writer.write(KNOWN)
            received = await reader.read(-1)
            writer.close()
        answer, _ = parse_answer(received)
        if answer.status != 200 or answer.json != fingerprint("GET", b""):
            raise Broken(f"a known request on a fresh connection: {received!r}")


def resident_kib() -> int:
    """Return the memory of this process; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("VmRSS:")[2].split()[0])


class ErrorCollector(logging.Handler):
    """Remembers what was logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


def fuzz(num_requests: int, seed: int) -> Report:
    """Fuzz a server and return what was done.

    Raises:
        Broken: an invariant does not hold.
    """
    collector = ErrorCollector()
    loggers = [logging.getLogger(name) for name in ("colibri_cli", "asyncio")]
    for logger in loggers:
        logger.addHandler(collector)
    try:
        with tempfile.TemporaryDirectory() as directory:
            fuzzer = Fuzzer(Path(directory) / "s", seed, num_requests)
            try:
                report = asyncio.run(fuzzer.run())
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
    finally:
        for logger in loggers:
            logger.removeHandler(collector)
    if collector.messages:
        raise Broken(f"the server logged errors: {collector.messages[:3]}")
    return report


def main() -> int:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description="Fuzz the HTTP server with mutated requests.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        print(fuzz(options.requests, options.seed))
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
