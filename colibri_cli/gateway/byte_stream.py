"""One connection as bytes: bounded input with a deadline, coalesced output, knowing who is gone.

An asyncio protocol with one reading task. Reading from the socket stops while enough is buffered;
writes of one turn of the event loop become one. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, cast

from colibri_cli.gateway.limits import UNIX_PEER

if TYPE_CHECKING:
    from collections.abc import Callable

READ_AHEAD: Final = 64 * 1024  # bytes kept unread before reading from the socket stops
WRITE_AHEAD: Final = 64 * 1024  # bytes unsent before a writer has to wait


class ReadTimeout(Exception):
    """The deadline passed before the bytes that were waited for had come."""


class EndOfInput(Exception):
    """The client will send nothing more."""


class ByteStream(asyncio.Protocol):
    """The two directions of one connection.

    Args:
        on_open: Called with the stream once it is connected; starts the task that reads.
        on_input: Called with the change of the number of bytes held.

    Attributes:
        buffer: Received and not consumed; only the reading task shortens it, by `consume`.
        deadline: Loop time after which waiting for input fails.
        on_close: Called when the connection is gone for good.
        is_gone: The client closed its end, half of it or all.
        bytes_written: Handed over for sending so far.
    """

    def __init__(
        self,
        on_open: Callable[[ByteStream], None],
        on_input: Callable[[int], None],
    ) -> None:
        self._on_open = on_open
        self._on_input = on_input
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._left: asyncio.Future[None] | None = None
        self._on_gone: Callable[[], None] | None = None
        self._read_limit = READ_AHEAD
        self._is_reading = True
        self._is_paused = False
        self._is_lost = False
        self._is_discarding = False
        self._progress = (-1, 0.0)  # bytes the system took, since when
        self.buffer = bytearray()
        self.deadline = math.inf
        self.on_close: Callable[[], None] | None = None
        self.is_gone = False
        self.is_timed_out = False
        self.bytes_written = 0
        self.peer = ""
        self.local_address: str | None = None

    # ---- what asyncio calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        self.peer = _address_of(transport.get_extra_info("peername")) or UNIX_PEER
        self.local_address = _address_of(transport.get_extra_info("sockname"))
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Keep what arrived, and stop reading once it is enough."""
        if self._is_discarding:
            return
        self.buffer += data
        self._on_input(len(data))
        if len(self.buffer) >= self._read_limit:
            self._pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        """Note that the client will send nothing more; what was begun may still be answered."""
        self._note_gone()
        if self._is_discarding:
            self.close()
        return True  # keeps our direction open

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing can be read or written any more."""
        del exc  # how a client leaves does not matter
        self._is_lost = True
        self._note_gone()
        self._release(self._drained)
        self._on_input(-len(self.buffer))
        self.buffer = bytearray()
        if self.on_close is not None:
            self.on_close()

    def pause_writing(self) -> None:
        """Note that the client takes less than it is given."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Let the waiting writer go on."""
        self._is_paused = False
        self._release(self._drained)

    # ---- input ------------------------------------------------------------------------------

    def set_deadline(self, when: float) -> None:
        """Set the loop time after which waiting for input fails; infinity: never."""
        self.deadline = when
        self.is_timed_out = False

    async def wait_for_input(self, read_limit: int = READ_AHEAD) -> None:
        """Wait until more bytes have arrived.

        Args:
            read_limit: How many the buffer may hold before reading from the socket stops.

        Raises:
            ReadTimeout: the deadline passed.
            EndOfInput: nothing more will come.
        """
        if self.is_timed_out:
            raise ReadTimeout
        if self.is_gone:
            raise EndOfInput
        self._read_limit = max(read_limit, READ_AHEAD)
        self._resume_reading()
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None
        if self.is_timed_out:
            raise ReadTimeout

    def consume(self, num_bytes: int) -> bytes:
        """Take bytes from the front of the buffer."""
        if num_bytes >= len(self.buffer):
            taken, self.buffer = bytes(self.buffer), bytearray()
        else:
            taken = bytes(self.buffer[:num_bytes])
            del self.buffer[:num_bytes]
        self._on_input(-len(taken))
        self._read_limit = READ_AHEAD
        if len(self.buffer) < READ_AHEAD:
            self._resume_reading()
        return taken

    def push_back(self, data: bytes) -> None:
        """Put bytes in front of the buffer again."""
        self.buffer[:0] = data
        self._on_input(len(data))

    async def wait_until_gone(self) -> None:
        """Return once the client has closed its end, half of it or all."""
        if self.is_gone:
            return
        if self._left is None:
            self._left = self._loop.create_future()
        await asyncio.shield(self._left)

    def call_when_gone(self, callback: Callable[[], None] | None) -> None:
        """Set what the event loop calls once the client is gone; None: nothing."""
        self._on_gone = callback
        if callback is not None and self.is_gone:
            self._loop.call_soon(callback)

    # ---- output -----------------------------------------------------------------------------

    @property
    def can_write(self) -> bool:
        """Whether writing can still reach anybody."""
        return not self._is_lost and self._transport is not None

    @property
    def is_backlogged(self) -> bool:
        """Whether a writer has to wait with `drain` before it writes more."""
        return self._is_paused and not self._is_lost

    def write(self, data: bytes) -> None:
        """Send bytes; they are held when the client does not take them."""
        if self._is_lost or self._transport is None:
            return
        self.bytes_written += len(data)
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken enough, or is lost."""
        while self.is_backlogged:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def close(self) -> None:
        """Close once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def close_gently(self, linger_s: float) -> None:
        """End our direction, but read on for a while and throw away what comes.

        Closing with unread input makes the system reset the connection, and a reset can destroy
        the answer on its way.
        """
        transport = self._transport
        if self._is_lost or transport is None or self.is_gone or not transport.can_write_eof():
            self.close()
            return
        self._is_discarding = True
        self.consume(len(self.buffer))
        self._resume_reading()
        self.set_deadline(self._loop.time() + linger_s)
        transport.write_eof()

    def abort(self) -> None:
        """Close at once, whatever is unsent or unread."""
        self.consume(len(self.buffer))
        if self._transport is not None:
            self._transport.abort()

    def check_times(self, now: float, write_stall_s: float) -> None:
        """Enforce the deadline of the input and the patience with a client that takes nothing."""
        if now >= self.deadline:
            self.deadline = math.inf
            self.is_timed_out = True
            if self._is_discarding:
                self.abort()
            self._wake_reader()
        if self._transport is None or self._is_lost:
            return
        unsent = self._transport.get_write_buffer_size()
        taken = self.bytes_written - unsent
        if not unsent or taken != self._progress[0]:
            self._progress = (taken, now)
        elif now - self._progress[1] >= write_stall_s:
            self.abort()

    # ---- inside -----------------------------------------------------------------------------

    def _note_gone(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._wake_reader()
        self._release(self._left)
        if self._on_gone is not None:
            self._on_gone()

    def _wake_reader(self) -> None:
        self._release(self._reader)

    @staticmethod
    def _release(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._is_reading and self._transport is not None:
            self._is_reading = True
            if not self._transport.is_closing():
                self._transport.resume_reading()


def _address_of(name: object) -> str | None:
    """Return the address of a socket name without port; mapped IPv4 addresses as IPv4."""
    if not isinstance(name, tuple) or not name:
        return None
    return str(name[0]).removeprefix("::ffff:") if "." in str(name[0]) else str(name[0])
