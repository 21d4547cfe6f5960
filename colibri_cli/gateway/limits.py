"""How much one client may take: sizes, times, connections. Numbers and bookkeeping, no sockets.

Every time limit is absolute: no byte that arrives ever extends one.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB: Final = 1024 * 1024
UNIX_PEER: Final = "unix"  # what stands for the address of a client on a local socket


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the HTTP layer.

    Args:
        max_head_bytes: Request line and headers together.
        max_headers: Header lines of one request.
        max_body_bytes: Body of one request, de-chunked.
        max_input_bytes: Received and not yet answered, all connections together.
        max_connections: Open connections; over it the one that waits longest for the rest of a
            request makes room.
        max_connections_per_address: Open connections of one address (IPv6: one /64 network).
        is_loopback_exempt: Clients on this machine do not count per address.
        head_s: From the first byte of a request to the end of its headers.
        body_s: From the end of the headers to the end of the body.
        idle_s: Silence of a kept connection between two requests.
        write_stall_s: Without the client taking a single byte of what is to be sent.
        linger_s: After a refusal that closes: how long the rest of the request is still read, so
            that the answer is not lost to a reset.
    """

    # 64 KiB: common servers allow 8 to 80; cookies and long keys fit many times over.
    max_head_bytes: int = 64 * 1024
    max_headers: int = 128
    max_body_bytes: int = 4 * _MIB
    max_input_bytes: int = 256 * _MIB
    max_connections: int = 2048
    max_connections_per_address: int = 64
    is_loopback_exempt: bool = True
    head_s: float = 30.0
    body_s: float = 30.0
    idle_s: float = 30.0
    write_stall_s: float = 30.0
    linger_s: float = 3.0

    @property
    def input_budget(self) -> int:
        """`max_input_bytes`, but never so little that two full bodies do not fit."""
        return max(self.max_input_bytes, 2 * (self.max_body_bytes + self.max_head_bytes))

    @property
    def tick_s(self) -> float:
        """How often the times are looked at."""
        shortest = min(self.head_s, self.body_s, self.idle_s, self.write_stall_s, self.linger_s)
        return min(max(shortest / 8, 0.02), 1.0)


class Counted(Protocol):
    """What the table holds: a connection."""

    peer: str

    def evict(self, reason: str) -> None:
        """Close at once to make room."""


class ConnectionTable:
    """Open connections, who of them waits for the rest of a request, and for how long.

    A connection waits from its acceptance, or from the end of its last answer, until its next
    request is complete. The one that waits longest is the first to go when room is needed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[Counted, None] = {}
        self._waiting: dict[Counted, None] = {}  # in the order in which the waits began
        self._per_address: Counter[str] = Counter()
        self.num_refused = 0
        self.num_evicted = 0
        self.input_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Counted]:
        return iter(list(self._open))

    def admit(self, connection: Counted) -> str | None:
        """Count a new connection in, or return why it must go."""
        address = _network_of(connection.peer)
        is_exempt = self._limits.is_loopback_exempt and _is_local(connection.peer)
        if not is_exempt and self._per_address[address] >= self._limits.max_connections_per_address:
            self.num_refused += 1
            return f"{self._limits.max_connections_per_address} connections of its address are open"
        if len(self._open) >= self._limits.max_connections and not self._make_room():
            self.num_refused += 1
            return f"{self._limits.max_connections} connections are open and busy"
        self._open[connection] = None
        self._waiting[connection] = None
        self._per_address[address] += 1
        return None

    def remove(self, connection: Counted) -> None:
        """Forget a closed connection; harmless for one that is not counted."""
        self._waiting.pop(connection, None)
        if connection not in self._open:
            return
        del self._open[connection]
        address = _network_of(connection.peer)
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]

    def begin_request(self, connection: Counted) -> None:
        """Note that a request is complete: the connection is busy."""
        self._waiting.pop(connection, None)

    def end_request(self, connection: Counted) -> None:
        """Note that the answer is complete: the connection waits from now."""
        if connection in self._open:
            self._waiting[connection] = None

    def add_input(self, num_bytes: int) -> None:
        """Count received bytes (negative: given back); too many cost who waits longest."""
        self.input_bytes += num_bytes
        while self.input_bytes > self._limits.input_budget and num_bytes > 0:
            if not self._make_room():
                return

    def _make_room(self) -> bool:
        """Close the connection that waits longest; False when all are busy."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        self.num_evicted += 1
        self.remove(oldest)
        oldest.evict("room is needed and no other waited longer for the rest of its request")
        return True


def _is_local(peer: str) -> bool:
    if peer == UNIX_PEER:
        return True
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _network_of(peer: str) -> str:
    """Return what counts as one address: an IPv6 client usually owns a whole /64."""
    if ":" not in peer:
        return peer
    try:
        return str(ipaddress.ip_network((peer.partition("%")[0], 64), strict=False))
    except ValueError:
        return peer
