"""One client's connection: requests in, answers out, one at a time.

Reads a head, lets the site screen it, reads the body only if it may come, runs the handler and
sends what it gives. After a refusal the rest of the request is skipped or the connection closes,
so that it is never taken for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.chunked import ChunkDecoder, MalformedChunks
from colibri_cli.gateway.access_log import AccessRecord
from colibri_cli.gateway.byte_stream import READ_AHEAD, EndOfInput, ReadTimeout
from colibri_cli.gateway.http1 import CONTINUE, Exchange, HeadScanner, RequestHead
from colibri_cli.gateway.http_types import HttpError, Request, Response, StreamingResponse
from colibri_cli.gateway.problems import internal_error
from colibri_cli.gateway.response_writer import close_body, head_fields, send_stream
from colibri_cli.gateway.site import Screened, parse_target, too_large

if TYPE_CHECKING:
    from colibri_cli.gateway.byte_stream import ByteStream
    from colibri_cli.gateway.http_types import AnyResponse
    from colibri_cli.gateway.limits import ConnectionTable
    from colibri_cli.gateway.site import Site, Target

logger = logging.getLogger(__name__)
CLIENT_GONE: Final = 499  # for logs and counters: there was nobody to answer
_BODY_SLICE: Final = 16 * 1024  # of a chunked body, decoded at a time


@dataclass(slots=True)
class _Turn:
    """One request and what became of it, for the answer's head and the access log."""

    exchange: Exchange
    request_id: str
    began: float
    written_before: int
    head: RequestHead | None = None
    target: Target | None = None
    key_name: str | None = None
    status: int = 0
    is_stream: bool = False
    is_cut: bool = False

    @property
    def path(self) -> str:
        return self.target.path if self.target is not None else "-"

    @property
    def is_head_request(self) -> bool:
        return self.head is not None and self.head.method == "HEAD"


class Connection:
    """A connection and the task that serves it.

    Args:
        stream: Its bytes.
        site: What it may reach.
        table: Where its waiting and its input are counted.
    """

    def __init__(self, stream: ByteStream, site: Site, table: ConnectionTable) -> None:
        self._stream = stream
        self._site = site
        self._limits = site.limits
        self._table = table
        self._scanner = HeadScanner(site.limits.max_head_bytes)
        self._loop = asyncio.get_running_loop()
        self._held = 0  # bytes of a body outside the stream's buffer
        self._is_busy = False
        self._has_begun = False  # some of a request has come
        self._is_unread = False  # part of a refused request may still be on its way
        self.peer = stream.peer
        self.task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has arrived that is not yet answered."""
        return not self._is_busy and not self._has_begun and not self._stream.buffer

    def start(self) -> asyncio.Task[None]:
        """Begin to serve."""
        self.task = self._loop.create_task(self.run())
        return self.task

    def evict(self, reason: str) -> None:
        """Close at once to make room."""
        logger.info("%s: closed: %s", self.peer, reason)
        self._stream.abort()
        self._hold(-self._held)

    def close_idle(self) -> None:
        """Close if nothing of a request is there."""
        if self.is_idle:
            self._stream.close()

    def check_times(self, now: float) -> None:
        """Enforce deadlines; called a few times per shortest time limit."""
        self._stream.check_times(now, self._limits.write_stall_s)

    def abort(self) -> None:
        """Close at once and end the task."""
        self._stream.call_when_gone(None)  # one cancellation is enough
        self._stream.abort()
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Serve requests until one side has had enough."""
        try:
            self._stream.set_deadline(self._loop.time() + self._limits.head_s)
            while await self._serve_one():
                self._stream.set_deadline(self._loop.time() + self._limits.idle_s)
                if self._stream.buffer:  # pipelined: let the others have their turn
                    await asyncio.sleep(0)
            if self._is_unread or self._stream.buffer:
                self._stream.close_gently(self._limits.linger_s)
            else:
                self._stream.close()
        except (EndOfInput, ReadTimeout):
            self._stream.close()
        except BaseException:
            self._stream.abort()
            raise
        finally:
            self._hold(-self._held)

    # ---- one request --------------------------------------------------------------------------

    async def _serve_one(self) -> bool:
        """Serve one request; return whether another may follow."""
        try:
            raw = await self._read_head()
        except HttpError as error:
            return await self._refuse(self._new_turn(), error, must_close=True)
        turn = self._new_turn()
        try:
            turn.head = turn.exchange.read_head(raw, self._limits.max_headers)
            turn.target = parse_target(turn.head)
        except HttpError as error:
            return await self._refuse(turn, error, must_close=True)
        try:
            screened = self._site.screen(turn.head, turn.target, self._stream.local_address)
        except HttpError as error:
            return await self._refuse(turn, error)
        if isinstance(screened, Response):
            return await self._answer_early(turn, screened)
        turn.key_name = screened.key_name
        try:
            body = await self._read_body(turn.head)
        except ReadTimeout:
            late = HttpError(408, f"the body was not complete after {self._limits.body_s:g} s")
            return await self._refuse(turn, late, must_close=True)
        except HttpError as error:
            return await self._refuse(turn, error, must_close=True)
        return await self._run_handler(turn, screened, body)

    async def _run_handler(self, turn: _Turn, screened: Screened, body: bytes) -> bool:
        assert turn.head is not None
        assert turn.target is not None
        request = Request(
            method=turn.head.method,
            path=turn.target.path,
            raw_path=turn.target.raw_path,
            query=turn.target.query,
            headers=turn.head.headers,
            body=body,
            peer=self.peer,
            id=turn.request_id,
            key_name=screened.key_name,
            is_authorized=screened.is_authorized,
            path_values=screened.path_values,
            disconnected=self._stream.wait_until_gone,
        )
        self._hold(len(body) - self._held)
        self._begin_answer()
        response = await self._site.respond(screened.route, request)
        if response.status == CLIENT_GONE and self._stream.is_gone:
            turn.status, turn.is_cut = CLIENT_GONE, True
            self._log(turn)
            return False
        is_kept = await self._send(turn, response, is_kept=turn.head.is_kept)
        self._hold(-self._held)
        if is_kept:
            self._end_answer()
        return is_kept

    # ---- input --------------------------------------------------------------------------------

    async def _read_head(self) -> bytes:
        """Wait for a complete head.

        Raises:
            HttpError: there will be none; the connection must close.
        """
        stream, self._has_begun = self._stream, False
        while True:
            if stream.buffer and not self._has_begun:
                self._has_begun = True  # the deadline is absolute from the first byte on
                stream.set_deadline(self._loop.time() + self._limits.head_s)
            if num_empty := self._scanner.num_empty(stream.buffer):
                stream.consume(num_empty)
            length = self._scanner.find(stream.buffer)
            if length is not None:
                return stream.consume(length)
            try:
                await stream.wait_for_input(self._limits.max_head_bytes + READ_AHEAD)
            except ReadTimeout:
                if b"\r\n" not in stream.buffer:
                    raise
                message = f"the request head was not complete after {self._limits.head_s:g} s"
                raise HttpError(408, message) from None

    async def _read_body(self, head: RequestHead) -> bytes:
        """Wait for the body.

        Raises:
            HttpError: it is malformed or too large.
            ReadTimeout: it is not complete in time.
        """
        length = head.content_length or 0
        if not length and not head.is_chunked:
            return b""
        stream = self._stream
        stream.set_deadline(self._loop.time() + self._limits.body_s)
        if head.expects_continue and not stream.buffer:
            stream.write(CONTINUE)
        if head.is_chunked:
            return await self._read_chunks()
        while len(stream.buffer) < length:
            await stream.wait_for_input(length)
        return stream.consume(length)

    async def _read_chunks(self) -> bytes:
        stream, chunks = self._stream, ChunkDecoder()
        pieces: list[bytes] = []
        size = 0
        while not chunks.is_complete:
            if not stream.buffer:
                await stream.wait_for_input()
            try:
                piece = chunks.feed(stream.consume(_BODY_SLICE))
            except MalformedChunks as error:
                raise HttpError(400, f"the chunked body is malformed: {error}") from None
            size += len(piece)
            if size + chunks.num_due > self._limits.max_body_bytes:
                raise too_large(self._limits.max_body_bytes)
            pieces.append(piece)
            self._hold(len(piece))
            if stream.buffer:
                await asyncio.sleep(0)
        stream.push_back(chunks.leftover)
        return b"".join(pieces)

    async def _skip_body(self, num_bytes: int) -> None:
        """Read the body of a refused request and throw it away."""
        stream = self._stream
        if num_bytes:
            stream.set_deadline(self._loop.time() + self._limits.body_s)
        while num_bytes:
            if not stream.buffer:
                await stream.wait_for_input()
            num_bytes -= len(stream.consume(min(num_bytes, len(stream.buffer))))

    def _can_skip_body(self, head: RequestHead) -> bool:
        if head.is_chunked or (head.expects_continue and not self._stream.buffer):
            return False  # of unknown length, or it may never come
        return (head.content_length or 0) <= self._limits.max_body_bytes

    def _hold(self, num_bytes: int) -> None:
        """Count bytes of a body that left the stream's buffer but not our memory."""
        self._held += num_bytes
        self._table.add_input(num_bytes)

    # ---- output -------------------------------------------------------------------------------

    async def _refuse(self, turn: _Turn, error: HttpError, *, must_close: bool = False) -> bool:
        response = self._site.refuse(error, turn.request_id, turn.path)
        return await self._answer_early(turn, response, must_close=must_close)

    async def _answer_early(
        self, turn: _Turn, response: Response, *, must_close: bool = False
    ) -> bool:
        """Answer before the body was read; what is left of it is skipped, or the end announced."""
        self._hold(-self._held)
        head = turn.head
        is_kept = not must_close and head is not None and head.is_kept and self._can_skip_body(head)
        self._begin_answer()
        if not await self._send(turn, response, is_kept=is_kept):
            self._is_unread = True
            return False
        self._end_answer()
        if head is not None:
            await self._skip_body(head.content_length or 0)
        return True

    async def _send(self, turn: _Turn, response: AnyResponse, *, is_kept: bool) -> bool:
        """Send an answer; return whether another may follow."""
        # A client that closed only its sending end still gets what it asked for before.
        is_over = self._stream.is_gone and not self._stream.buffer
        is_kept = is_kept and not self._site.is_draining and not is_over
        try:
            head = self._encode_head(turn, response, is_closing=not is_kept)
            if head is None:
                is_kept, response = (
                    False,
                    self._site.refuse(internal_error(), turn.request_id, turn.path),
                )
                head = self._encode_head(turn, response, is_closing=True) or b""
            turn.status = response.status
            if isinstance(response, StreamingResponse):
                return await self._stream_body(turn, response, head) and is_kept
            self._stream.write(head if turn.is_head_request else head + response.body)
            await self._stream.drain()
            turn.is_cut = not self._stream.can_write
            return is_kept
        finally:
            self._log(turn)

    async def _stream_body(self, turn: _Turn, response: StreamingResponse, head: bytes) -> bool:
        turn.is_stream = turn.is_cut = True
        if turn.is_head_request:
            self._stream.write(head)
            await close_body(response.body)
            is_complete = True
        else:
            is_chunked = turn.exchange.is_answer_chunked
            is_complete = await send_stream(
                self._stream, head, response.body, is_chunked=is_chunked
            )
        turn.is_cut = not is_complete
        return is_complete

    def _encode_head(self, turn: _Turn, response: AnyResponse, *, is_closing: bool) -> bytes | None:
        headers = turn.head.headers if turn.head is not None else {}
        fields = head_fields(response, turn.request_id, self._site.origins.cors_headers(headers))
        try:
            return turn.exchange.encode_head(response.status, fields, is_closing=is_closing)
        except ValueError:
            logger.exception("%s: %s gave a bad response header", turn.request_id, turn.path)
            turn.exchange = Exchange()
            return None

    # ---- bookkeeping --------------------------------------------------------------------------

    def _new_turn(self) -> _Turn:
        request_id = f"req_{secrets.token_hex(16)}"
        return _Turn(Exchange(), request_id, self._loop.time(), self._stream.bytes_written)

    def _begin_answer(self) -> None:
        self._is_busy = True
        self._stream.set_deadline(math.inf)
        self._table.begin_request(self)

    def _end_answer(self) -> None:
        self._is_busy = False
        self._table.end_request(self)

    def _log(self, turn: _Turn) -> None:
        self._site.on_access(
            AccessRecord(
                request_id=turn.request_id,
                peer=self.peer,
                method=turn.head.method if turn.head is not None else "-",
                path=turn.path,
                status=turn.status,
                sent_bytes=self._stream.bytes_written - turn.written_before,
                duration_s=self._loop.time() - turn.began,
                key_name=turn.key_name,
                is_stream=turn.is_stream,
                is_cut=turn.is_cut,
            )
        )
