"""One connection to a server: a request goes out, its answer comes in as fast as it is taken.

An asyncio protocol that serves one exchange after the other. Reading from the socket stops while
enough lies here untaken, so that a slow taker slows the server down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from colibri_cli.backends.upstreams.http1 import HttpExchange, Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_AHEAD: Final = 64 * 1024  # bytes of a body kept untaken before reading stops
# llama-server closes a connection after each stream, and says that it keeps it: the end comes in a
# millisecond, but a request that was written before it is lost.
_REST_S: Final = 0.05
_CLOSED: Final = "the server closed the connection"


class LinkLost(Exception):
    """The connection ended, or what came over it was no answer."""


class Link(asyncio.Protocol):
    """A connection.

    Attributes:
        idle_since: Loop time of the end of its last exchange.
        rested_at: Loop time from which on another may begin.
        on_lost: Called once it is of no use any more.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._exchange: HttpExchange | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._num_untaken = 0
        self._is_reading = True
        self._problem: str | None = None
        self.idle_since = self.rested_at = 0.0
        self.on_lost: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._problem is None and self._transport is not None

    # ---- what asyncio calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Give what came to the exchange; without one it cannot be meant for us."""
        if self._exchange is None:
            self._fail("the server sent something unasked")
            return
        try:
            self._num_untaken += self._exchange.feed(data)
        except Malformed as error:
            self._fail(str(error))
            return
        if self._num_untaken >= _READ_AHEAD and self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Note that nothing more will come; for some answers that is their end."""
        try:
            if self._exchange is not None:
                self._exchange.end()
        except Malformed as error:
            self._fail(str(error))
        if self._problem is None:
            self._problem = _CLOSED
        self._wake()
        return False  # close our end too

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is gone."""
        if self._problem is None:
            self._problem = str(exc) if exc else _CLOSED
        self._wake()
        if self.on_lost is not None:
            self.on_lost()

    # ---- one exchange ----

    async def ask(self, exchange: HttpExchange) -> None:
        """Send a request and wait for the head of its answer.

        Raises:
            LinkLost: there will be none.
        """
        if self._problem is not None or self._transport is None:
            raise LinkLost(self._problem or _CLOSED)
        self._exchange, self._num_untaken = exchange, 0
        self._transport.write(exchange.request)
        while not exchange.status:
            await self._wait()

    async def read(self) -> bytes:
        """Wait for more of the body and return it; empty at its end.

        Raises:
            LinkLost: it ends too early.
        """
        exchange = self._exchange
        assert exchange is not None, "a request comes first"
        while not exchange.payload:
            if exchange.is_complete:
                return b""
            await self._wait()
        self._num_untaken = 0
        self._resume_reading()
        return exchange.take()

    def finish(self) -> bool:
        """End the exchange; False, and closed at once, unless another may follow."""
        exchange, self._exchange = self._exchange, None
        is_done = exchange is not None and exchange.is_complete and exchange.is_kept
        transport = self._transport
        # A server may answer before it has all of a request: what it reads next is the rest.
        if (
            transport is None
            or not is_done
            or not self.is_open
            or transport.get_write_buffer_size()
        ):
            self.close()
            return False
        self._resume_reading()
        self.idle_since = self._loop.time()
        is_stream = exchange is not None and exchange.is_chunked
        self.rested_at = self.idle_since + (_REST_S if is_stream else 0.0)
        return True

    def close(self) -> None:
        """Close at once; what is under way is lost."""
        if self._problem is None:
            self._problem = "it was closed"
        if self._transport is not None:
            self._transport.abort()

    # ---- inside ----

    async def _wait(self) -> None:
        """Wait until something has come.

        Raises:
            LinkLost: nothing will.
        """
        if self._problem is not None:
            raise LinkLost(self._problem)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _resume_reading(self) -> None:
        if self._is_reading or self._transport is None:
            return
        self._is_reading = True
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _fail(self, problem: str) -> None:
        if self._problem is None:
            self._problem = problem
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
