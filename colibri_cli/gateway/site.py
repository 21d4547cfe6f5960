"""What all connections share: guards, routes, keys, services; a request's way to its answer.

The order of checks is fixed here: Host, preflight, Origin, route, key, coding, length; the body is
read only after all of them. Knows no sockets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from colibri_cli.gateway.http_types import Access, HttpError, Response
from colibri_cli.gateway.problems import http_error_of, internal_error, render_error
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.gateway.access_log import AccessRecord
    from colibri_cli.gateway.auth import ApiKeys
    from colibri_cli.gateway.guards import HostGuard, OriginGuard
    from colibri_cli.gateway.http1 import RequestHead
    from colibri_cli.gateway.http_types import AnyResponse, Request, Route
    from colibri_cli.gateway.limits import Limits
    from colibri_cli.gateway.router import Router
    from colibri_cli.gateway.services import Services

logger = logging.getLogger(__name__)
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_MAX_QUERY_FIELDS: Final = 100


@dataclass(frozen=True, slots=True)
class Target:
    """A request target, taken apart.

    Args:
        path: Percent-decoded; "*" for the server as a whole.
        raw_path: As sent, without query.
        query: Parameters, last one wins.
        authority: Host of an absolute target, or None.
    """

    path: str
    raw_path: str
    query: Mapping[str, str]
    authority: str | None = None


@dataclass(frozen=True, slots=True)
class Screened:
    """A request that may be answered by its route."""

    route: Route
    path_values: Mapping[str, str]
    key_name: str | None
    is_authorized: bool


@dataclass(slots=True)
class Site:
    """Guards, routes and services of one server.

    Args:
        services: Handed to every handler.
        router: Its routes.
        hosts: Names it answers to.
        origins: Pages it answers to.
        keys: Who may use it.
        limits: Bounds of one client.
        on_access: Called for every request when it is over.
        is_draining: No connection is kept after its next answer.
    """

    services: Services
    router: Router
    hosts: HostGuard
    origins: OriginGuard
    keys: ApiKeys
    limits: Limits
    on_access: Callable[[AccessRecord], None]
    is_draining: bool = False

    def screen(
        self, head: RequestHead, target: Target, local_address: str | None
    ) -> Screened | Response:
        """Return the route of an acceptable request, or the answer to a preflight.

        Raises:
            HttpError: the request is refused; its body was not looked at.
        """
        if head.method == "OPTIONS":
            return self._preflight(head, target, local_address)
        self._check_host(head, target, local_address)
        self.origins.check(head.method, head.headers)
        match = self.router.match(head.method, target.path)
        key_name = self.keys.identify(head.headers)
        is_authorized = key_name is not None or not self.keys
        if match.route.access is Access.KEY and not is_authorized:
            raise _unauthorized()
        self._check_body(head)
        return Screened(match.route, match.values, key_name, is_authorized)

    async def respond(self, route: Route, request: Request) -> AnyResponse:
        """Run a handler; whatever it raises becomes an answer."""
        try:
            return await route.handler(self.services, request)
        except HttpError as error:
            return render_error(error, request.id, route.render_error)
        except ColibriError as error:
            logger.info("%s: %s: %s", request.id, error.code, error.message)
            return render_error(http_error_of(error), request.id, route.render_error)
        except Exception:  # a bug; the client learns nothing but that
            logger.exception("%s: %s %s failed", request.id, request.method, route.path)
            return render_error(internal_error(), request.id, route.render_error)

    def refuse(self, error: HttpError, request_id: str, path: str) -> Response:
        """Return a refusal in the envelope of the path's dialect."""
        return render_error(error, request_id, self.router.error_renderer(path))

    def _preflight(self, head: RequestHead, target: Target, local_address: str | None) -> Response:
        try:
            self._check_host(head, target, local_address)
        except HttpError as error:
            return Response(error.status, content_type="")
        allowed = self.router.allowed(target.path)
        return Response(204, content_type="", headers={"Allow": allowed})

    def _check_host(self, head: RequestHead, target: Target, local_address: str | None) -> None:
        host = head.headers.get("host")
        if host is not None:
            self.hosts.check(host, local_address)
        if target.authority is not None:
            self.hosts.check(target.authority, local_address)

    def _check_body(self, head: RequestHead) -> None:
        coding = head.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise HttpError(
                415,
                f"request bodies are read as they are, not {coding[:20]}-encoded; send plain JSON",
            )
        if head.content_length is None:
            if head.method in _WITH_BODY and not head.is_chunked:
                raise HttpError(
                    411,
                    "the request has no body: send Content-Length or Transfer-Encoding: chunked",
                    code="length_required",
                )
        elif head.content_length > self.limits.max_body_bytes:
            raise too_large(self.limits.max_body_bytes)


def too_large(limit: int) -> HttpError:
    """Return the refusal of a body above the limit."""
    return HttpError(
        413,
        f"the request body is larger than the limit of {limit} bytes (--max-body)",
        code="request_too_large",
    )


def parse_target(head: RequestHead) -> Target:
    """Take a request target apart.

    Raises:
        HttpError: it is none that this server could serve.
    """
    target, authority = head.target, None
    if target == "*" and head.method == "OPTIONS":
        return Target("*", "*", {})
    if not target.startswith("/"):
        scheme, mark, rest = target.partition("://")
        if not mark or scheme.lower() not in {"http", "https"}:
            raise HttpError(400, "the request target is neither a path nor an http address")
        authority, slash, rest = _split_authority(rest)
        target = slash + rest if slash == "/" else "/" + slash + rest
    raw_path, _, query = target.partition("?")
    raw_path = raw_path.partition("#")[0]
    return Target(_decode_path(raw_path), raw_path, _parse_query(query), authority)


def _split_authority(rest: str) -> tuple[str, str, str]:
    end = min((i for mark in "/?#" if (i := rest.find(mark)) >= 0), default=len(rest))
    return rest[:end], rest[end : end + 1], rest[end + 1 :]


def _decode_path(raw_path: str) -> str:
    try:
        path = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        raise HttpError(400, "the path is not UTF-8") from None
    if "\0" in path:
        raise HttpError(400, "the path has a NUL character")
    return path


def _parse_query(query: str) -> dict[str, str]:
    if not query:
        return {}
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS))
    except ValueError:
        raise HttpError(400, f"the query has more than {_MAX_QUERY_FIELDS} fields") from None


def _unauthorized() -> HttpError:
    return HttpError(
        401,
        "a right API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
