"""Answers onto a byte stream: common headers, and bodies that come in pieces.

Pieces that are ready together become one write; a slow client holds the source up; a client that
leaves ends the source at once.
"""

from __future__ import annotations

import asyncio
import logging
from email.utils import formatdate
from time import time
from typing import TYPE_CHECKING, Final

from colibri_cli.gateway.byte_stream import WRITE_AHEAD
from colibri_cli.gateway.http1 import LAST_CHUNK, encode_chunk
from colibri_cli.gateway.http_types import Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from colibri_cli.gateway.byte_stream import ByteStream
    from colibri_cli.gateway.http_types import AnyResponse

logger = logging.getLogger(__name__)
SERVER_NAME: Final = "colibri"
_EVENT_STREAM: Final = "text/event-stream"
_WITH_ID: Final = ("application/json", _EVENT_STREAM)
_STREAM_FIELDS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_BODILESS: Final = frozenset({204, 304})


class _Clock:
    """The Date header, made once per second."""

    second = 0
    text = ""

    @classmethod
    def date(cls) -> str:
        now = int(time())
        if now != cls.second:
            cls.second, cls.text = now, formatdate(now, usegmt=True)
        return cls.text


def head_fields(
    response: AnyResponse, request_id: str, cors: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the headers of an answer: ours, then CORS, then its own, which win."""
    fields = {"Server": SERVER_NAME, "Date": _Clock.date()}
    kind = response.content_type
    if kind:
        fields["Content-Type"] = kind
    if kind.startswith(_WITH_ID):
        fields["x-request-id"] = request_id
    if kind.startswith(_EVENT_STREAM):
        fields.update(_STREAM_FIELDS)
    if isinstance(response, Response) and response.status not in _BODILESS:
        fields["Content-Length"] = str(len(response.body))
    fields.update(cors)
    own = {name.lower() for name in response.headers}
    if "vary" in own and "Vary" in fields:
        own.discard("vary")  # both count
    kept = [(name, value) for name, value in fields.items() if name.lower() not in own]
    return [*kept, *response.headers.items()]


class BodyWriter:
    """Gathers the pieces of a body until the event loop's turn ends, then writes them at once.

    Args:
        stream: Where to.
        head: Status line and headers, sent with the first pieces, or alone if none is ready.
        is_chunked: Frame what is written as chunks.
    """

    def __init__(self, stream: ByteStream, head: bytes, *, is_chunked: bool) -> None:
        self._stream = stream
        self._is_chunked = is_chunked
        self._loop = asyncio.get_running_loop()
        self._head = head
        self._pieces: list[bytes] = []
        self._handle: asyncio.Handle | None = self._loop.call_soon(self.flush)
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether enough is gathered to be written before more is added."""
        return self._size >= WRITE_AHEAD

    def add(self, piece: bytes) -> None:
        """Add a piece; an empty one adds nothing."""
        if not piece:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._handle is None:
            self._handle = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is gathered."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        data = self._take()
        if data:
            self._stream.write(data)

    def close(self, *, is_complete: bool) -> None:
        """Write what is gathered, and the end of the body if it is complete."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        data = self._take()
        if is_complete and self._is_chunked:
            data += LAST_CHUNK
        if data:
            self._stream.write(data)

    def _take(self) -> bytes:
        payload = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if payload and self._is_chunked:
            payload = encode_chunk(payload)
        head, self._head = self._head, b""
        return head + payload


async def send_stream(
    stream: ByteStream, head: bytes, body: AsyncIterator[bytes], *, is_chunked: bool
) -> bool:
    """Send a body as it comes; return whether it was sent to its end.

    The source is closed on every way out: when it ended or failed, when the client left (in that
    moment, by cancelling what it waits for) and when this task is cancelled.
    """
    task = asyncio.current_task()
    assert task is not None
    writer = BodyWriter(stream, head, is_chunked=is_chunked)
    is_complete, is_pumping, num_cancels = False, True, 0

    def cancel() -> None:
        # Runs between two steps of the task, so it is delivered where the task now waits.
        nonlocal num_cancels
        if is_pumping:
            num_cancels += 1
            task.cancel()

    stream.call_when_gone(cancel)
    try:
        is_complete = await _pump(stream, writer, body)
    except asyncio.CancelledError:
        if task.cancelling() != num_cancels:
            raise  # not only because the client left
    except Exception:  # the head is sent: all that is left is to end without a proper end
        logger.exception("an answer broke after its head was sent")
    finally:
        is_pumping = False
        stream.call_when_gone(None)
        for _ in range(num_cancels):
            task.uncancel()
        writer.close(is_complete=is_complete)
        await close_body(body)
    await stream.drain()
    return is_complete and stream.can_write


async def _pump(stream: ByteStream, writer: BodyWriter, body: AsyncIterator[bytes]) -> bool:
    """Move pieces until the source ends; False when the client left before.

    At least one piece is asked for, even for nobody: a generator that never began has no way to
    clean up.
    """
    async for piece in body:
        writer.add(piece)
        if stream.is_gone:
            return False
        if writer.is_full:
            writer.flush()
            await asyncio.sleep(0)  # a source that is always ready must not keep the loop
        if stream.is_backlogged:
            await stream.drain()
    return True


async def close_body(body: AsyncIterator[bytes]) -> None:
    """Close a source, whatever state it is in."""
    close = getattr(body, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception:  # the answer is over in any case
        logger.exception("the source of an answer could not be closed")
