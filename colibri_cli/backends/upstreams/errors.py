"""What an upstream server refuses, and how it fails, as errors of ours in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx

from colibri_cli.errors import ServerRefused, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_ERROR: Final = 500
_TOO_LONG: Final = "context_length_exceeded"


def error_of_response(response: httpx.Response) -> ServerRefused:
    """Return the error a refusal stands for, in the server's own words."""
    try:
        body = response.json()
    except ValueError:
        body = None
    # Servers of the API wrap it; FastAPI has `detail`, some have the fields at the top.
    error = body.get("error", body) if isinstance(body, dict) else None
    status = response.status_code
    refused = error_of_body(error, status, f"{_shown_url(response.url)} answered {status}")
    if status == httpx.codes.UNAUTHORIZED:
        refused.hint = "set COLI_API_KEY to the server's key"
    elif status == httpx.codes.TOO_MANY_REQUESTS:
        seconds = response.headers.get("retry-after", "1")
        refused.hint = f"try again in {_shown(seconds)} s"
    wait = response.headers.get("retry-after", "")
    refused.retry_after_s = float(wait) if wait.isdecimal() else None
    return refused


def error_of_body(
    error: object, status: int, otherwise: str = "the server failed"
) -> ServerRefused:
    """Return the error of an `error` object.

    Args:
        error: The object, or whatever stands in its place.
        status: HTTP status; an error inside a stream has none and takes that of a failure.
        otherwise: The message if it has none.
    """
    if not isinstance(error, dict):
        return ServerRefused(_shown(error) if isinstance(error, str) else otherwise, status=status)
    message = error.get("message", error.get("detail"))
    refused = ServerRefused(_shown(message) if message else otherwise, status=status)
    refused.kind = _word(error, "type")
    refused.param = _word(error, "param")
    refused.word = _TOO_LONG if _is_too_long(error) else _word(error, "code")
    return refused


def lost(url: httpx.URL | str, error: Exception | None = None) -> ServerUnreachable:
    """Return the error for a server that was there and is gone."""
    shown = _shown_url(httpx.URL(url))
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ServerUnreachable(f"no server answers at {shown}", hint="start it, then try again")
    return ServerUnreachable(
        f"the connection to the server at {shown} was lost", hint="send the message once more"
    )


def no_answer(url: httpx.URL, what: str) -> ServerUnreachable:
    """Return the error for a stream that broke off or is none."""
    return ServerUnreachable(
        f"the server at {_shown_url(url)} {what}", hint="send the message once more"
    )


def _is_too_long(error: Mapping[str, Any]) -> bool:
    """Whether a prompt did not fit: clients shorten a conversation when they are told so."""
    if error.get("type") == "exceed_context_size_error" or error.get("code") == _TOO_LONG:
        return True
    return "maximum context length" in str(error.get("message"))


def _word(error: Mapping[str, Any], name: str) -> str | None:
    """Return a field that names something; a status repeated as a number names nothing."""
    value = error.get(name)
    return _shown(value) if isinstance(value, str) and value else None


def _shown_url(url: httpx.URL) -> str:
    """Return the root of a server."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


def _shown(text: object) -> str:
    """Return a server's text on one line without control characters."""
    line = "".join(c if c.isprintable() else " " for c in str(text)[:_MAX_ERROR])
    return line.strip() or "the server failed"
