"""Where a server listens: addresses to bound sockets, before anything else is started."""

from __future__ import annotations

import errno
import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import ServerStartError
from colibri_protocol.errors import reason_of

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORT: Final = 8000
_OWNER_ONLY: Final = 0o600
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, times


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host name or address, and a port; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        return self.host in LOOPBACK_HOSTS or self.host.startswith("127.")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file; only its owner may connect."""

    path: Path

    @property
    def is_loopback(self) -> bool:
        """Always: no other machine can connect."""
        return True

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and the address it really has."""

    socket: socket.socket
    address: Address

    def close(self) -> None:
        """Stop listening; a socket file is removed."""
        self.socket.close()
        if isinstance(self.address, UnixAddress):
            self.address.path.unlink(missing_ok=True)


def open_listeners(addresses: tuple[Address, ...], backlog: int) -> list[Listener]:
    """Bind and listen on every address.

    Raises:
        ServerStartError: one of them cannot be had; none is kept then.
    """
    opened: list[Listener] = []
    try:
        for address in addresses:
            if isinstance(address, UnixAddress):
                opened.append(_open_unix(address, backlog))
            else:
                opened.extend(_open_tcp(address, backlog))
    except BaseException:
        for listener in opened:
            listener.close()
        raise
    return opened


def _open_tcp(address: TcpAddress, backlog: int) -> list[Listener]:
    opened: list[Listener] = []
    port, failure = address.port, None
    try:
        for family, name in _resolve(address):
            try:
                sock = _listen(family, (name, port), backlog)
            except OSError as exc:
                # "localhost" may stand for an address of a family this machine lacks
                if exc.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                failure = exc
                continue
            port = sock.getsockname()[1]
            opened.append(Listener(sock, TcpAddress(name, port)))
    except OSError as exc:
        for listener in opened:
            listener.close()
        raise _failure(address, exc) from exc
    if not opened:
        raise _failure(address, failure or OSError(errno.EADDRNOTAVAIL, "no such address"))
    return opened


def _resolve(address: TcpAddress) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as exc:
        raise ServerStartError(
            f"the host {address.host!r} is no address of this machine ({reason_of(exc)})",
            hint="check --host",
        ) from exc
    return list(dict.fromkeys((family, str(name[0])) for family, _, _, _, name in found))


def _listen(family: socket.AddressFamily, name: tuple[str, int], backlog: int) -> socket.socket:
    # With the protocol named, asyncio sends each piece of a stream at once. Without it the system
    # holds every second one back until the client has acknowledged the first: 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Connections inherit it: a client that lost power or network is noticed in the end.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        sock.setblocking(False)
        sock.bind(name)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _open_unix(address: UnixAddress, backlog: int) -> Listener:
    if not hasattr(socket, "AF_UNIX"):
        raise ServerStartError(f"cannot listen on {address}: this system has no socket files")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        _remove_stale(address.path)
        sock.bind(str(address.path))
        address.path.chmod(_OWNER_ONLY)  # nobody can connect before `listen`
        sock.listen(backlog)
    except OSError as exc:
        sock.close()
        raise _failure(address, exc) from exc
    return Listener(sock, address)


def _remove_stale(path: Path) -> None:
    """Remove a socket file that nobody listens on any more."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return  # `bind` will say that something is in the way
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)


def _failure(address: Address, error: OSError) -> ServerStartError:
    if error.errno == errno.EADDRINUSE:
        return ServerStartError(
            f"{address} is already in use", hint="end the other server, or choose another --port"
        )
    is_file = isinstance(address, UnixAddress)
    if error.errno == errno.EACCES:
        hint = "choose another --uds" if is_file else "choose a --port above 1023"
        return ServerStartError(f"{address} may not be used: permission denied", hint=hint)
    return ServerStartError(
        f"cannot listen on {address}: {error.strerror or error}",
        hint="check --uds" if is_file else "check --host",
    )
