"""Event streams: frames as bytes, and signs of life in the silences between them.

Knows no JSON and no dialect. Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

_MAX_PENDING: Final = 64 * 1024  # bytes of frames ahead of a slow client before the source waits


def encode_event(
    data: bytes, *, event: str | None = None, id: str | None = None, retry_ms: int | None = None
) -> bytes:
    """Return one event; line ends inside `data` are kept by sending it as several lines."""
    lines = []
    if event is not None:
        lines.append(b"event: " + _one_line(event))
    if id is not None:
        lines.append(b"id: " + _one_line(id))
    if retry_ms is not None:
        lines.append(b"retry: %d" % retry_ms)
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines += [b"data: " + line for line in text.split(b"\n")]
    return b"\n".join(lines) + b"\n\n"


def encode_comment(text: str = "ping") -> bytes:
    """Return a line that every client skips."""
    return b": " + _one_line(text) + b"\n\n"


async def with_keepalive(
    frames: AsyncIterator[bytes], interval_s: float, keepalive: Callable[[], Iterable[bytes]]
) -> AsyncGenerator[bytes, None]:
    """Pass frames on, and a sign of life after every `interval_s` of silence.

    Frames that are ready together come out as one piece. `keepalive` is asked only while nothing
    of the source is on its way, so its frames stand between complete ones; it returns nothing once
    the stream's last frame was made. After the source ended it is not asked.

    Args:
        frames: Complete frames; closed on every way out.
        interval_s: Longest silence.
        keepalive: Makes the frames of a sign of life.
    """
    relay = _Relay(interval_s)
    source = asyncio.create_task(relay.fill(frames))
    try:
        # Let the source begin: a generator that never began has no way to clean up.
        await asyncio.sleep(0)
        while await relay.wait():
            piece = relay.take()
            if not piece:
                piece = b"".join(keepalive())
            if piece:
                yield piece
        await source
    finally:
        relay.close()
        source.cancel()
        await asyncio.wait({source})
        if not source.cancelled():
            source.exception()  # raised above, or of no interest to a client that left


class _Relay:
    """Frames between the task that makes them and the one that sends them, with one timer."""

    def __init__(self, interval_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = interval_s
        self._frames: list[bytes] = []
        self._size = 0
        self._is_over = False
        self._filled: asyncio.Future[None] | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._last = self._loop.time()  # of something that was passed on
        self._timer = self._loop.call_later(interval_s, self._tick)

    async def fill(self, frames: AsyncIterator[bytes]) -> None:
        """Take frames from the source until it ends."""
        try:
            async for frame in frames:
                self._frames.append(frame)
                self._size += len(frame)
                _release(self._filled)
                if self._size >= _MAX_PENDING:
                    self._emptied = self._loop.create_future()
                    await self._emptied
        finally:
            self._is_over = True
            _release(self._filled)
            close = getattr(frames, "aclose", None)
            if close is not None:
                await close()

    async def wait(self) -> bool:
        """Wait for frames or a silence; False once the source ended and all was taken."""
        if not self._frames and not self._is_over:
            self._filled = self._loop.create_future()
            try:
                await self._filled
            finally:
                self._filled = None
        return bool(self._frames) or not self._is_over

    def take(self) -> bytes:
        """Return what is there, nothing after a silence."""
        self._last = self._loop.time()
        frames, self._frames, self._size = self._frames, [], 0
        _release(self._emptied)
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def close(self) -> None:
        """End the timer."""
        self._timer.cancel()

    def _tick(self) -> None:
        silence = self._loop.time() - self._last
        if silence >= self._interval:
            _release(self._filled)  # without frames: a silence
            silence = 0.0
        self._timer = self._loop.call_later(self._interval - silence, self._tick)


def _release(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _one_line(text: str) -> bytes:
    return " ".join(text.splitlines()).encode()
