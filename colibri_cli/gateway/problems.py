"""Every failure as an HTTP answer: codes of our errors to `HttpError`, `HttpError` to a body.

The one place that knows both. Texts for clients hold no file paths and no engine output.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import (
    EngineCrashed,
    EngineHung,
    EngineNotReady,
    Overloaded,
    ServerRefused,
    ServerUnreachable,
    SupervisorError,
    outcome_of,
)
from colibri_cli.gateway.http_types import HttpError, json_response
from colibri_protocol.errors import BadOption, ContextLengthExceeded

if TYPE_CHECKING:
    from colibri_cli.gateway.http_types import ErrorRenderer, Response
    from colibri_protocol.errors import ColibriError

_MAX_RETRY_AFTER_S: Final = 3600
_ENGINE_TEXT: Final = "the engine failed while it worked on this request"
_LOST_TEXT: Final = "the engine was lost while it worked on this request; try again in {} s"
_UNAVAILABLE_TEXT: Final = "the engine is not ready; try again in {} s"
_UPSTREAM_LOST_TEXT: Final = "the connection to the upstream server was lost; try again"
_UPSTREAM_KEY_TEXT: Final = (
    "the upstream server refuses the key of this one (COLI_UPSTREAM_API_KEY)"
)
_INTERNAL_TEXT: Final = "an internal error occurred; the server's log has the details"
_TYPES: Final = {401: "authentication_error", 429: "rate_limit_error"}

# Errors whose message was written for whoever made the request, with the code clients know.
_CLIENT_CODES: Final = {
    "usage_error": None,
    "bad_option": None,
    "chat_format_error": None,
    "message_too_large": None,
    "capability_missing": "unsupported_parameter",
    "context_length_exceeded": "context_length_exceeded",
    "empty_prompt": None,
    "expert_read_failed": "engine_error",  # names a file of the model, and no directory
    "model_not_found": "model_not_found",
    "overloaded": "overloaded",
    "queue_full": "queue_full",
    "queue_timeout": "queue_timeout",
    "rate_limited": "rate_limit_exceeded",
    "scheduler_closed": "scheduler_closed",
}


def http_error_of(error: ColibriError) -> HttpError:
    """Return the answer that an error of ours means."""
    if isinstance(error, ServerRefused):
        return _refused_upstream(error)
    if isinstance(error, ServerUnreachable):
        headers = {"Retry-After": "1"}
        return HttpError(502, _UPSTREAM_LOST_TEXT, code="upstream_unreachable", headers=headers)
    status = outcome_of(error).http_status
    code = error.code if error.code in _CLIENT_CODES else error.default_code
    if code in _CLIENT_CODES:
        return HttpError(
            status,
            _message_of(error),
            code=_CLIENT_CODES[code],
            param=_param_of(error),
            headers=_retry_header(error),
        )
    if status == 503 or isinstance(error, EngineNotReady):
        wait = retry_after(error.ready_in_s if isinstance(error, EngineNotReady) else None)
        is_lost = isinstance(error, EngineCrashed | EngineHung)
        text = (_LOST_TEXT if is_lost else _UNAVAILABLE_TEXT).format(wait)
        return HttpError(503, text, code="engine_error", headers={"Retry-After": wait})
    if isinstance(error, SupervisorError) or code != "internal_error":
        return HttpError(500, _ENGINE_TEXT, code="engine_error")
    return internal_error()


def _refused_upstream(error: ServerRefused) -> HttpError:
    """Return a refusal of the server behind as the server behind means it."""
    if error.status in {401, 403}:  # it is our key that it does not like, not the client's
        return HttpError(502, _UPSTREAM_KEY_TEXT, code="upstream_refused")
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = retry_after(error.retry_after_s)
    elif error.status in {429, 503}:
        headers["Retry-After"] = "1"
    status = error.status if 400 <= error.status < 600 else 502
    refused = HttpError(status, error.message, code=error.word, param=error.param, headers=headers)
    refused.error_type = error.kind
    return refused


def retry_after(seconds: float | None) -> str:
    """Return the header's value for a wait; None: an unknown one."""
    return str(min(max(math.ceil(seconds or 0.0), 1), _MAX_RETRY_AFTER_S))


def internal_error() -> HttpError:
    """Return the answer to a fault of our own."""
    return HttpError(500, _INTERNAL_TEXT, code="internal_error")


def error_type_of(error: HttpError) -> str:
    """Return the OpenAI word for the kind of a failure."""
    if error.error_type is not None:
        return error.error_type
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    return _TYPES.get(error.status, fallback)


def render_openai_error(error: HttpError, request_id: str) -> Response:
    """Return a failure in the envelope of the OpenAI API, which is also ours."""
    del request_id  # x-request-id carries it
    body = {
        "message": error.message,
        "type": error_type_of(error),
        "param": error.param,
        "code": error.code,
    }
    return json_response(error.status, {"error": body}, dict(error.headers))


def render_error(error: HttpError, request_id: str, renderer: ErrorRenderer | None) -> Response:
    """Return a failure in a dialect's envelope (None: OpenAI's), with the error's own headers."""
    response = (renderer or render_openai_error)(error, request_id)
    for name, value in error.headers.items():
        response.headers.setdefault(name, value)
    return response


def _message_of(error: ColibriError) -> str:
    message = error.message
    if isinstance(error, ContextLengthExceeded) and error.limit is not None:
        # LiteLLM and others tell this failure by the words "this model's maximum context length is"
        used = "too many" if error.prompt_tokens is None else str(error.prompt_tokens)
        whole = error.limit if error.context_length is None else error.context_length
        message = (
            f"the prompt has {used} tokens and may have {error.limit}:"
            f" this model's maximum context length is {whole} tokens"
        )
    return f"{message} ({error.hint})" if error.hint else message


def _param_of(error: ColibriError) -> str | None:
    if isinstance(error, ContextLengthExceeded):
        return "messages"
    return error.name if isinstance(error, BadOption) else None


def _retry_header(error: ColibriError) -> dict[str, str]:
    if isinstance(error, Overloaded):
        return {"Retry-After": retry_after(error.retry_after_s)}
    return {}
