"""Lines of the gateway: from the words of one line (and its body) to a message.

What breaks the framing raises ValueError, for nothing after it can be read. What is merely wrong
becomes a RequestFailed, the answer to send back: one bad request hurts only itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from colibri_protocol import limits
from colibri_protocol.errors import BadOption
from colibri_protocol.fields import FieldError, expect_fields, read_id, read_number, read_whole
from colibri_protocol.messages import (
    Cancel,
    Count,
    ErrorCode,
    GatewayMessage,
    Ping,
    RequestFailed,
    RequestOptions,
    StatsQuery,
    Stop,
    Submit,
    SubmitExtended,
)
from colibri_protocol.segments import split_segments

if TYPE_CHECKING:
    from collections.abc import Mapping

Request = GatewayMessage | RequestFailed
_T = TypeVar("_T", int, float)
_MAX_TOKENS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GatewayBody:
    """A line that announces `size` bytes, and what they will become."""

    size: int
    build: Callable[[bytes], Request]


GatewayReader = Callable[[bytes], "Request | GatewayBody"]


def check_sampling(max_tokens: int, temperature: float, top_p: float) -> None:
    """Check the three numbers of a baseline SUBMIT.

    Raises:
        BadOption: Naming the one that is out of range.
    """
    if not 1 <= max_tokens <= _MAX_TOKENS:
        raise BadOption("max_tokens", f"must be in 1..{_MAX_TOKENS}, not {max_tokens}")
    RequestOptions(temperature=temperature, top_p=top_p)


def _submit(rest: bytes) -> GatewayBody:
    found = expect_fields(rest, 6)
    if len(found) > 7:
        raise FieldError(f"{len(found)} fields instead of 6 or 7")
    prompt_bytes = read_whole(found[2], 0, limits.MAX_PROMPT_BYTES)
    grammar_bytes = read_whole(found[6], 0, limits.MAX_GRAMMAR_BYTES) if len(found) > 6 else 0

    def build(payload: bytes) -> Request:
        return _answer(found[0], lambda: _build_submit(found, payload, prompt_bytes))

    return GatewayBody(prompt_bytes + grammar_bytes, build)


def _build_submit(found: list[bytes], payload: bytes, prompt_bytes: int) -> Submit:
    request, slot = read_id(found[0]), _slot(found[1], 0)
    max_tokens = _named("max_tokens", lambda: read_whole(found[3], 1, _MAX_TOKENS))
    temperature = _named("temperature", lambda: read_number(found[4]))
    top_p = _named("top_p", lambda: read_number(found[5]))
    check_sampling(max_tokens, temperature, top_p)
    prompt, grammar = payload[:prompt_bytes], payload[prompt_bytes:]
    if 0 in payload:
        raise FieldError("a NUL byte in the prompt or the grammar")
    for name, text in (("prompt", prompt), ("grammar", grammar)):
        try:
            text.decode()
        except UnicodeDecodeError as exc:
            raise FieldError(f"the {name} is not UTF-8") from exc
    return Submit(request, slot, prompt, max_tokens, temperature, top_p, grammar or None)


def _submit_extended(rest: bytes) -> GatewayBody:
    found = _exact_fields(rest, 4)
    options_bytes = read_whole(found[2], 0, limits.MAX_OPTIONS_BYTES)
    prompt_bytes = read_whole(found[3], 0, limits.MAX_PROMPT_BYTES)

    def build_message(payload: bytes) -> SubmitExtended:
        request, slot = read_id(found[0]), _slot(found[1], limits.ANY_SLOT)
        options = RequestOptions.from_json(payload[:options_bytes])
        return SubmitExtended(request, slot, options, split_segments(payload[options_bytes:]))

    def build(payload: bytes) -> Request:
        return _answer(found[0], lambda: build_message(payload))

    return GatewayBody(options_bytes + prompt_bytes, build)


def _count(rest: bytes) -> GatewayBody:
    found = _exact_fields(rest, 2)
    size = read_whole(found[1], 0, limits.MAX_PROMPT_BYTES)

    def build(payload: bytes) -> Request:
        return _answer(found[0], lambda: Count(read_id(found[0]), split_segments(payload)))

    return GatewayBody(size, build)


def _stop(rest: bytes) -> Request:
    return _answer(rest, lambda: Stop(read_id(rest.strip())))


def _cancel(rest: bytes) -> Request:
    return _answer(rest, lambda: Cancel(read_id(rest.strip())))


def _stats(rest: bytes) -> Request:
    return _answer(rest, lambda: StatsQuery(read_id(rest.strip())))


def _ping(rest: bytes) -> Request:
    return _answer(rest, lambda: Ping(read_whole(rest.strip())))


def _answer(request: bytes, build: Callable[[], GatewayMessage]) -> Request:
    """Build a message, or the refusal of it under the id it had (0 if that is unreadable)."""
    try:
        return build()
    except (BadOption, ValueError) as exc:
        try:
            known_id = read_id(request.strip())
        except ValueError:
            known_id = 0
        return RequestFailed(known_id, ErrorCode.BAD_REQUEST, str(exc))


def _exact_fields(rest: bytes, count: int) -> list[bytes]:
    found = expect_fields(rest, count)
    if len(found) > count:
        raise FieldError(f"{len(found)} fields instead of {count}")
    return found


def _slot(field: bytes, low: int) -> int:
    return _named("slot", lambda: read_whole(field, low, limits.MAX_SLOT))


def _named(name: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except ValueError as exc:
        raise FieldError(f"{name}: {exc}") from exc


GATEWAY_LINES: Final[Mapping[bytes, GatewayReader]] = {
    b"CANCEL": _cancel,
    b"COUNT": _count,
    b"PING": _ping,
    b"STATS": _stats,
    b"STOP": _stop,
    b"SUBMIT": _submit,
    b"SUBMITX": _submit_extended,
}
