"""How httpx reaches a server: connections that are kept, on asyncio alone.

The transport that httpx brings goes over four layers for every piece of a stream, and looks at all
its connections for every request; with 64 streams that took more time than everything else here
together. This one does what a gateway needs and no more: HTTP/1.1, with or without TLS, no proxies.
A request that was written is never written again; connecting alone is tried twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httpx

from colibri_cli.backends.upstreams.http1 import HttpExchange, Malformed
from colibri_cli.backends.upstreams.link import Link, LinkLost

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

CONNECT_S: Final = 10.0
# Below the 5 s after which uvicorn and llama.cpp's server close a silent connection, so that no
# request is written to one that is about to be closed.
KEEPALIVE_S: Final = 3.0
_CONNECT_TRIES: Final = 2
_NEXT_ADDRESS_S: Final = 0.25  # RFC 8305: until the next address of a host is tried as well
_PORTS: Final = {"http": 80, "https": 443}
_Origin = tuple[str, str, int]


class KeepAliveTransport(httpx.AsyncBaseTransport):
    """Connections to servers; as many as there are requests at once, since admission bounds them.

    The one time limit is that for connecting; whoever asks has limits of his own for the rest.
    """

    def __init__(self) -> None:
        self._idle: dict[_Origin, list[Link]] = {}  # the one used last at the end
        self._used: set[Link] = set()
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its answer once its head is there.

        Raises:
            httpx.ConnectError: nobody listens there.
            httpx.ConnectTimeout: or nobody that answers in time.
            httpx.ReadError: the connection was lost.
            httpx.LocalProtocolError: the request cannot be sent as it is.
        """
        body = await request.aread()
        try:
            exchange = HttpExchange(
                request.method.encode("ascii"), request.url.raw_path, request.headers.raw, body
            )
        except Malformed as error:
            raise httpx.LocalProtocolError(str(error), request=request) from error
        origin = _origin_of(request.url)
        link = self._take(origin) or await self._connect(origin, request)
        self._used.add(link)
        answer = _Body(self, origin, link, request)
        try:
            await link.ask(exchange)
        except LinkLost as error:
            await answer.aclose()
            raise httpx.ReadError(str(error), request=request) from error
        except BaseException:
            await answer.aclose()
            raise
        return httpx.Response(exchange.status, headers=exchange.headers, stream=answer)

    async def aclose(self) -> None:
        """Close all connections."""
        for link in [*self._used, *(link for links in self._idle.values() for link in links)]:
            link.close()
        self._idle.clear()
        await asyncio.sleep(0)  # asyncio closes sockets in its next turn

    def release(self, origin: _Origin, link: Link) -> None:
        """Take a connection back, to be used again if that is possible."""
        self._used.discard(link)
        if link.finish():
            link.on_lost = lambda: self._forget(origin, link)
            self._idle.setdefault(origin, []).append(link)

    def _take(self, origin: _Origin) -> Link | None:
        """Return a connection that was used a moment ago; older ones are closed."""
        links = self._idle.get(origin, [])
        now = asyncio.get_running_loop().time()
        while links and links[0].idle_since < now - KEEPALIVE_S:
            links.pop(0).close()
        for link in reversed(links):
            if link.is_open and link.rested_at <= now:
                links.remove(link)
                return link
        return None

    def _forget(self, origin: _Origin, link: Link) -> None:
        links = self._idle.get(origin, [])
        if link in links:
            links.remove(link)

    async def _connect(self, origin: _Origin, request: httpx.Request) -> Link:
        scheme, host, port = origin
        tls = self._tls_context() if scheme == "https" else None
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(_CONNECT_TRIES)):
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, link = await loop.create_connection(
                        Link, host, port, ssl=tls, happy_eyeballs_delay=_NEXT_ADDRESS_S
                    )
                    return link
            except TimeoutError as error:
                reason = f"no connection after {CONNECT_S:g} s"
                raise httpx.ConnectTimeout(reason, request=request) from error
            except OSError as error:
                if not tries_left:
                    raise httpx.ConnectError(str(error), request=request) from error
        raise AssertionError("the last try returns or raises")

    def _tls_context(self) -> ssl.SSLContext:
        # Made when it is needed: reading certificates takes longer than all before a prompt.
        if self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _Body(httpx.AsyncByteStream):
    """The body of an answer as it comes; closing it before its end closes the connection."""

    def __init__(
        self, transport: KeepAliveTransport, origin: _Origin, link: Link, request: httpx.Request
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._link: Link | None = link
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        link = self._link
        if link is None:
            return
        try:
            while piece := await link.read():
                yield piece
        except LinkLost as error:
            raise httpx.ReadError(str(error), request=self._request) from error

    async def aclose(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._transport.release(self._origin, link)


def _origin_of(url: httpx.URL) -> _Origin:
    host = url.raw_host.decode("ascii")
    return url.scheme, host, url.port or _PORTS[url.scheme]
