"""The HTTP server: bound sockets, accepted connections, their deadlines, and a clean end.

`bind` before the engine is started, so that an occupied port costs nothing; then `serve`, until
`drain` lets running answers finish.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from colibri_cli.errors import ServerStartError
from colibri_cli.gateway.access_log import AccessRecord, log_access
from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.byte_stream import ByteStream
from colibri_cli.gateway.connection import Connection
from colibri_cli.gateway.guards import HostGuard, OriginGuard
from colibri_cli.gateway.limits import ConnectionTable, Limits
from colibri_cli.gateway.listeners import Address, Listener, TcpAddress, open_listeners
from colibri_cli.gateway.router import Router, discover_routes
from colibri_cli.gateway.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from colibri_cli.gateway.http_types import Route
    from colibri_cli.gateway.services import Services

logger = logging.getLogger(__name__)
_LAST_WORDS_S: Final = 1.0  # for answers to say that they were ended
_CLEANUP_S: Final = 5.0  # for handlers that were cancelled at the end of a drain
_WARN_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server listens and whom it serves.

    Args:
        addresses: Where it listens.
        keys: API keys; without any, everybody may use it.
        allowed_hosts: Host names it answers to besides loopback and its own addresses.
        cors_origins: Origins of pages that may use it, "*" for any; None for the defaults.
        limits: Bounds of one client.
        backlog: Connections the system holds until they are accepted.
        may_be_exposed: Other machines may connect although there are no keys.
        has_json_log: Access log in JSON lines.
        on_access: Called, besides the log, for every request when it is over.
    """

    addresses: tuple[Address, ...] = (TcpAddress(),)
    keys: ApiKeys = field(default_factory=ApiKeys)
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] | None = None
    limits: Limits = field(default_factory=Limits)
    backlog: int = 512
    may_be_exposed: bool = False
    has_json_log: bool = False
    on_access: Callable[[AccessRecord], None] | None = None


class Server:
    """An HTTP server.

    Args:
        services: Handed to every handler.
        options: How it listens and whom it serves.
        routes: What it answers; None: all modules of the routes folder.

    Raises:
        SettingsError: an allowed host is none.
    """

    def __init__(
        self, services: Services, options: ServerOptions, routes: Iterable[Route] | None = None
    ) -> None:
        self._options = options
        self._services = services
        self._router = Router(discover_routes() if routes is None else routes)
        self._host_guard(options.addresses)
        self.table = ConnectionTable(options.limits)
        self.answers: Counter[int] = Counter()  # status → how many
        self._listeners: list[Listener] = []
        self._acceptors: list[asyncio.Server] = []
        self._site: Site | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._sweep: asyncio.TimerHandle | None = None
        self._last_warning = float("-inf")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it really listens, port 0 replaced; empty before `bind`."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def num_connections(self) -> int:
        """Open connections."""
        return len(self.table)

    async def bind(self) -> None:
        """Take the addresses; connections queue up until `serve`.

        Raises:
            ServerStartError: an address cannot be had, or may not be had without a key.
        """
        self._check_exposure()
        self._listeners = open_listeners(self._options.addresses, self._options.backlog)
        raise_file_limit(self._options.limits.max_connections)
        ports = {a.port for a in self.addresses if isinstance(a, TcpAddress)}
        self._site = Site(
            services=self._services,
            router=self._router,
            hosts=self._host_guard((*self._options.addresses, *self.addresses)),
            origins=OriginGuard(self._options.cors_origins, ports),
            keys=self._options.keys,
            limits=self._options.limits,
            on_access=self._note_access,
        )

    async def serve(self) -> None:
        """Accept connections until `drain`; being cancelled ends everything at once."""
        assert self._site is not None, "bind comes first"
        if self._site.is_draining:
            return
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(self._options.limits.tick_s, self._check_times)
        try:
            for listener in self._listeners:
                self._acceptors.append(
                    await loop.create_server(
                        self._new_stream, sock=listener.socket, backlog=self._options.backlog
                    )
                )
            await self._stopped.wait()
        finally:
            await self._close()

    async def drain(self, grace_s: float, on_late: Callable[[], None] | None = None) -> None:
        """Accept nothing more, let running answers finish, and end `serve`.

        Being cancelled ends the grace.

        Args:
            grace_s: After it, answers that still run are cut off.
            on_late: Called before that; what answers then say within a moment is still sent.
        """
        assert self._site is not None, "bind comes first"
        self._site.is_draining = True
        self._stop_accepting()
        for connection in self.table:
            cast("Connection", connection).close_idle()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=grace_s)
        finally:
            if self._tasks and on_late is not None:
                on_late()
                await asyncio.wait(self._tasks, timeout=_LAST_WORDS_S)
            self._stopped.set()

    # ---- connections --------------------------------------------------------------------------

    def _new_stream(self) -> ByteStream:
        return ByteStream(self._open, self.table.add_input)

    def _open(self, stream: ByteStream) -> None:
        assert self._site is not None
        connection = Connection(stream, self._site, self.table)
        reason = "the server is shutting down" if self._site.is_draining else None
        reason = reason or self.table.admit(connection)
        if reason is not None:
            self._warn(f"{stream.peer}: connection refused: {reason}")
            stream.abort()
            return
        stream.on_close = partial(self.table.remove, connection)
        task = connection.start()
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a connection failed", exc_info=error)

    def _check_times(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(self._options.limits.tick_s, self._check_times)
        now = loop.time()
        for connection in self.table:
            cast("Connection", connection).check_times(now)

    def _note_access(self, record: AccessRecord) -> None:
        self.answers[record.status] += 1
        log_access(record, as_json=self._options.has_json_log)
        if self._options.on_access is not None:
            self._options.on_access(record)

    def _warn(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._last_warning >= _WARN_EVERY_S:  # a flood must not flood the log
            self._last_warning = now
            logger.warning("%s (%d refused so far)", text, self.table.num_refused)

    # ---- beginning and end --------------------------------------------------------------------

    def _host_guard(self, addresses: tuple[Address, ...]) -> HostGuard:
        hosts = [a.host for a in addresses if isinstance(a, TcpAddress)]
        return HostGuard(hosts, self._options.allowed_hosts)

    def _check_exposure(self) -> None:
        exposed = [str(a) for a in self._options.addresses if not a.is_loopback]
        if not exposed or self._options.keys:
            return
        if self._options.may_be_exposed:
            logger.warning("other machines can use %s, and no API key is set", exposed[0])
            return
        raise ServerStartError(
            f"{exposed[0]} can be reached by other machines and no API key is set",
            hint="set COLI_API_KEY, or COLI_ALLOW_INSECURE_BIND=1 to serve everybody",
        )

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for listener in self._listeners:
            listener.close()

    async def _close(self) -> None:
        self._stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self.table:
            cast("Connection", connection).abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLEANUP_S)
        self._stopped.set()


def raise_file_limit(num_connections: int) -> None:
    """Let the process have as many files open as the connections need, where the system allows."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + 512  # the engine's pipes, logs, libraries
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
