"""Which web pages may talk to us: Host allow-list, Origin of state changes, CORS headers.

The Host guard stops pages that point their own name at a local address; the Origin check stops
pages that post to us blindly; CORS tells browsers who may read answers. Pure functions of headers.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from colibri_cli.gateway.http_types import HttpError
from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
DEFAULT_ORIGINS: Final = (  # development servers of a dashboard, and desktop shells
    "http://127.0.0.1:5173",
    "http://localhost:5173",
    "http://tauri.localhost",
    "tauri://localhost",
)
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# name, IPv4 or [IPv6], then an optional port
_HOST: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|([^\s:/?#@\[\]\\]+))(?::(\d{0,5}))?"
)
_ALLOWED_HEADERS: Final = (
    "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta,"
    " anthropic-dangerous-direct-browser-access, openai-beta, openai-organization,"
    " openai-project, x-session-id, idempotency-key"
)
_EXTRA_HEADER: Final = re.compile(r"x-stainless-[a-z0-9-]{1,40}")
_MAX_SHOWN: Final = 100
_FLAG: Final = "--allowed-host"


class HostGuard:
    """The names this server answers to.

    Args:
        bind_hosts: Addresses it listens on.
        extra_hosts: Further names, from the options.

    Raises:
        SettingsError: an extra name is a wildcard, or cannot be a host name.
    """

    def __init__(self, bind_hosts: Iterable[str], extra_hosts: Iterable[str] = ()) -> None:
        extra = [name for host in extra_hosts if (name := host.strip())]
        for host in extra:
            if "*" in host:
                raise _host_error(f"{_FLAG} {host}: there are no wildcards")
            if parse_authority(host if host.count(":") < 2 else f"[{host.strip('[]')}]") is None:
                raise _host_error(f"{_FLAG} {host}: this is not a host name")
        names = (*LOOPBACK_NAMES, *bind_hosts, *extra)
        self._names = frozenset(_normal(name) for name in names)

    def check(self, authority: str, local_address: str | None = None) -> None:
        """Let a request through whose Host, or absolute target, names this server.

        Args:
            authority: Host with an optional port.
            local_address: The address of ours that the client connected to.

        Raises:
            HttpError: 403, naming the host and the option that would allow it.
        """
        name = parse_authority(authority)
        # A literal address cannot be pointed anywhere by somebody else's name server.
        if name is not None and (name in self._names or name == local_address):
            return
        shown = _shown(authority if name is None else name)
        raise HttpError(
            403,
            f"the host {shown!r} is not allowed here; start the server with"
            f" {_FLAG} {shown} (COLI_ALLOWED_HOSTS) to allow it",
            code="forbidden",
        )


class OriginGuard:
    """Which pages may read answers and change state.

    Args:
        origins: Exact origins, or "*" for any; None for the defaults.
        own_ports: Ports of this server; its own pages on loopback are let in.
    """

    def __init__(self, origins: Iterable[str] | None, own_ports: Iterable[int] = ()) -> None:
        given = DEFAULT_ORIGINS if origins is None else tuple(o.strip() for o in origins)
        self._any = "*" in given
        self._origins = {origin.rstrip("/").lower() for origin in given if origin}
        if origins is None:
            for port in own_ports:
                self._origins |= {f"http://{name}:{port}" for name in ("127.0.0.1", "localhost")}

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Let a request through unless a foreign page wants to change something.

        Raises:
            HttpError: 403, naming the origin and the option that would allow it.
        """
        origin = headers.get("origin")
        if origin is None or method in SAFE_METHODS or self._allows(origin):
            return
        if _is_own(origin, headers.get("host", "")):
            return
        shown = _shown(origin)
        raise HttpError(
            403,
            f"pages of the origin {shown!r} may not use this server; start it with"
            f" --cors-origin {shown} to allow it",
            code="forbidden",
        )

    def cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the CORS headers of an answer: none without an allowed Origin."""
        origin = headers.get("origin")
        if origin is None or not self._allows(origin):
            return {} if self._any else {"Vary": "Origin"}
        wanted = headers.get("access-control-request-headers", "").lower().split(",")
        extra = [name for word in wanted if _EXTRA_HEADER.fullmatch(name := word.strip())]
        return {
            "Access-Control-Allow-Origin": "*" if self._any else origin,
            "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": ", ".join([_ALLOWED_HEADERS, *extra[:32]]),
            "Access-Control-Expose-Headers": "x-request-id, x-colibri-queue-wait-ms, Retry-After",
            "Access-Control-Max-Age": "600",
            **({} if self._any else {"Vary": "Origin"}),
        }

    def _allows(self, origin: str) -> bool:
        return self._any or origin.lower() in self._origins


@lru_cache(maxsize=64)  # clients keep to one
def parse_authority(authority: str) -> str | None:
    """Return the name of `name[:port]`, normalised, or None when it is no such thing."""
    match = _HOST.fullmatch(authority.strip(" \t"))
    if match is None or (match[3] and int(match[3]) > 65535):
        return None
    return _normal(match[1] or match[2])


def _normal(name: str) -> str:
    """Return a name in lower case without brackets and final dot; addresses in one spelling."""
    name = name.strip("[]").lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_own(origin: str, host: str) -> bool:
    """Tell whether a page came from this server: its origin is the Host that passed the guard."""
    return bool(host) and origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower()}


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:_MAX_SHOWN])


def _host_error(problem: str) -> SettingsError:
    hint = "name each host, here or in COLI_ALLOWED_HOSTS"
    return SettingsError(problem, setting="allowed_hosts", source=_FLAG, hint=hint)
