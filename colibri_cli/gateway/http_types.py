"""What handlers take and give: requests, responses, streams, routes. No sockets, no h11."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colibri_cli.gateway.services import Services


@dataclass(frozen=True, slots=True)
class Request:
    """One complete request; the body was read within its limits before the handler runs.

    Args:
        method: Upper case.
        path: Percent-decoded path without query.
        raw_path: Path as sent.
        query: Query parameters, last one wins.
        headers: Names in lower case.
        body: All of it, de-chunked.
        peer: Address of the client without its port ("unix" for a local socket).
        id: "req_" and 32 hexadecimal digits.
        key_name: Name of the API key that was shown; None without one.
        is_authorized: No key is configured, or a right one was shown.
        path_values: What the route's `{name}` parts matched.
        disconnected: Resolves when the client is gone.
    """

    method: str
    path: str
    raw_path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: str
    id: str
    key_name: str | None
    is_authorized: bool
    path_values: Mapping[str, str] = field(default_factory=dict)
    disconnected: Callable[[], Awaitable[None]] | None = None


@dataclass(slots=True)
class Response:
    """A complete answer. Common headers (Server, x-request-id, CORS …) are added by the server."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StreamingResponse:
    """An answer whose body comes in pieces. Leaving early closes `body` (its `aclose` runs)."""

    body: AsyncIterator[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)


AnyResponse = Response | StreamingResponse
Handler = Callable[["Services", Request], Awaitable[AnyResponse]]
# (status, type word or None, message, param, code, headers) -> body in a dialect's envelope
ErrorRenderer = Callable[["HttpError", str], Response]


class Access(Enum):
    """Who may use a route."""

    OPEN = "open"  # anybody who passes the Host guard
    PARTIAL = "partial"  # answers everybody; the handler hides what needs a key
    KEY = "key"  # 401 without a right key


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path.

    Args:
        method: Upper case; GET also serves HEAD.
        path: `/v1/models/{id}`; a `{name}` at the end may contain slashes.
        handler: What answers.
        access: Who may use it.
        render_error: Envelope of the dialect the path belongs to; None: OpenAI's.
        operation: OpenAPI operation object (request body, responses), or None to hide the route.
    """

    method: str
    path: str
    handler: Handler
    access: Access = Access.KEY
    render_error: ErrorRenderer | None = None
    operation: Mapping[str, Any] | None = None


class HttpError(Exception):
    """A refusal with everything an envelope needs.

    Args:
        status: HTTP status.
        message: For the client: names the value, the limit, the remedy; no file paths, no keys.
        code: Stable word, or None.
        param: The field concerned, or None.
        error_type: OpenAI type word; None: derived from the status.
        headers: Further response headers (Retry-After, Allow).
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        error_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.error_type = error_type
        self.headers = dict(headers or {})


class ClientGone(HttpError):
    """The client left before its answer was complete: there is nobody to answer.

    The status is for logs and counters only.
    """

    def __init__(self) -> None:
        super().__init__(499, "the client left", code="client_gone")


def json_response(status: int, value: object, headers: dict[str, str] | None = None) -> Response:
    """Return compact JSON, non-ASCII as it is."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(status, text.encode("utf-8", "surrogatepass"), headers=headers or {})
