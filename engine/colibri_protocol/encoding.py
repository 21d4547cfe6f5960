"""Messages to bytes: one uninterrupted frame each, never more than the limits allow.

Whatever cannot be written so that the peer would read the same message back is our own bug and
raises LocalProtocolError. Free text is made to fit its line instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from colibri_protocol import limits
from colibri_protocol import messages as m
from colibri_protocol.errors import BadOption, LocalProtocolError, MessageTooLarge
from colibri_protocol.fields import write_number
from colibri_protocol.gateway_lines import check_sampling
from colibri_protocol.json_text import dump_object
from colibri_protocol.segments import join_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

READY_LINE: Final = b"\x01\x01READY\x01\x01\n"
LOWEST_LOGPROB: Final = -9999.0  # JSON has no infinity; stands for a token that cannot occur
_MAX_TEXT_CHARS: Final = 8192


def encode(message: m.GatewayMessage | m.EngineMessage) -> bytes:
    """Return the bytes of one message.

    Raises:
        MessageTooLarge: A field is longer than the protocol allows.
        LocalProtocolError: A field is out of range.
    """
    writer = _WRITERS.get(type(message))
    if writer is None:
        raise LocalProtocolError(f"{type(message).__name__} is not a message")
    try:
        return writer(message)
    except limits.TooLarge as exc:
        raise MessageTooLarge(f"this is too large for one request: {exc}") from exc
    except (BadOption, ValueError, TypeError, OverflowError) as exc:
        raise LocalProtocolError(f"cannot send {type(message).__name__}: {exc}") from exc


def _line(*fields: str | int) -> bytes:
    return (" ".join(str(field) for field in fields) + "\n").encode()


def _frame(header: bytes, *payloads: bytes) -> bytes:
    return b"".join((header, *payloads, b"\n"))


def _whole(value: int, low: int = 0, high: int = limits.MAX_ID) -> int:
    if isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r} is not in {low}..{high}")
    return int(value)


def _id(value: int) -> int:
    return _whole(value, 1)


def _bounded(payload: bytes, limit: int, name: str) -> bytes:
    if len(payload) > limit:
        raise limits.TooLarge(f"{name} of {len(payload)} bytes, at most {limit} are allowed")
    return payload


def _number(value: float, digits: int | None = None) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return write_number(value) if digits is None else f"{value:.{digits}f}"


def _text(text: str) -> str:
    """Fit free text into one line: no control characters, not too long."""
    words = "".join(char if char.isprintable() else " " for char in text[:_MAX_TEXT_CHARS])
    return words.strip()


# ---- gateway → engine ----


def _submit(message: m.Submit) -> bytes:
    check_sampling(message.max_tokens, message.temperature, message.top_p)
    prompt = _bounded(message.prompt, limits.MAX_PROMPT_BYTES, "prompt")
    grammar = _bounded(message.grammar or b"", limits.MAX_GRAMMAR_BYTES, "grammar")
    if 0 in prompt or 0 in grammar:
        raise ValueError("a NUL byte in the prompt or the grammar")
    prompt.decode()
    grammar.decode()
    fields: list[str | int] = [
        _id(message.id),
        _whole(message.slot, 0, limits.MAX_SLOT),
        len(prompt),
        message.max_tokens,
        _number(message.temperature),
        _number(message.top_p),
    ]
    if grammar:
        fields.append(len(grammar))
    return _frame(_line("SUBMIT", *fields), prompt, grammar)


def _submit_extended(message: m.SubmitExtended) -> bytes:
    options = _bounded(message.options.to_json(), limits.MAX_OPTIONS_BYTES, "options")
    prompt = join_segments(message.segments)
    slot = _whole(message.slot, limits.ANY_SLOT, limits.MAX_SLOT)
    header = _line("SUBMITX", _id(message.id), slot, len(options), len(prompt))
    return _frame(header, options, prompt)


def _count(message: m.Count) -> bytes:
    prompt = join_segments(message.segments)
    return _frame(_line("COUNT", _id(message.id), len(prompt)), prompt)


# ---- engine → gateway ----


def _start_failed(message: m.StartFailed) -> bytes:
    body: dict[str, object] = {"code": message.code, "message": message.message}
    if message.hint is not None:
        body["hint"] = message.hint
    if message.details:
        body["details"] = message.details
    payload = _bounded(dump_object(body), limits.MAX_FAILURE_JSON_BYTES, "failure")
    return _frame(b"\x01\x01FAILED\x01\x01 %d\n" % len(payload), payload)


def _caps(message: m.Caps) -> bytes:
    for word in message.words:
        if not (word and word.isascii() and word.isprintable() and " " not in word):
            raise ValueError(f"{word!r} is not a word")
    return _line("CAPS", *sorted(message.words))


def _figures(completion: int, speed: float, hits: float, rss: float) -> tuple[str | int, ...]:
    return (_whole(completion), _number(speed, 2), _number(hits, 1), _number(rss, 2))


def _stat(message: m.EngineStat) -> bytes:
    figures = _figures(
        message.completion_tokens, message.tokens_per_second, message.hit_percent, message.rss_gb
    )
    return _line("STAT", *figures)


def _accepted(message: m.Accepted) -> bytes:
    fields: list[str | int] = [_id(message.id), _whole(message.prompt_tokens)]
    if message.reused_tokens is not None:
        fields.append(_whole(message.reused_tokens))
        if message.slot is not None:
            fields.append(_whole(message.slot, 0, limits.MAX_SLOT))
    elif message.slot is not None:
        raise ValueError("slot without reused_tokens")
    return _line("ACCEPT", *fields)


def _delta(message: m.TextDelta) -> bytes:
    payload = _bounded(message.payload, limits.MAX_DATA_BYTES, "payload")
    return b"DATA %d %d\n%b\n" % (_id(message.id), len(payload), payload)


def _token(message: m.TokenLogprobs) -> bytes:
    if len(message.top) > limits.MAX_ALTERNATIVES + 1:
        raise ValueError(f"{len(message.top)} alternatives")
    body: dict[str, object] = {
        "id": message.token_id,
        "logprob": max(message.logprob, LOWEST_LOGPROB),
        "bytes": message.token_bytes.hex(),
        "top": [
            [entry.token_id, max(entry.logprob, LOWEST_LOGPROB), entry.token_bytes.hex()]
            for entry in message.top
        ],
    }
    payload = _bounded(dump_object(body), limits.MAX_TOKEN_JSON_BYTES, "token")
    return _frame(_line("TOKEN", _id(message.id), len(payload)), payload)


def _finished(message: m.Finished) -> bytes:
    figures = _figures(
        message.completion_tokens, message.tokens_per_second, message.hit_percent, message.rss_gb
    )
    fields: list[str | int] = [
        *figures,
        _whole(message.prompt_tokens),
        int(message.limited),
        _whole(message.reused_tokens),
    ]
    if message.finish is not None:
        fields += (
            message.finish.value,
            _whole(-1 if message.stop_id is None else message.stop_id, -1),
        )
    elif message.stop_id is not None:
        raise ValueError("stop_id without finish")
    return _line("DONE", _id(message.id), "STAT", *fields)


def _failed(message: m.RequestFailed) -> bytes:
    words = _text(f"{message.code} {message.detail}") or m.ErrorCode.INTERNAL.value
    return _line("ERROR", _whole(message.id), words)


def _body(header: Sequence[str | int], data: Mapping[str, object]) -> bytes:
    payload = _bounded(dump_object(data), limits.MAX_BODY_BYTES, "body")
    return _frame(_line(*header, len(payload)), payload)


# ---- telemetry ----


def _hardware(message: m.HardwareInfo) -> bytes:
    return _line(
        "HWINFO",
        _whole(message.num_cores),
        _number(message.ram_total_gb, 1),
        _number(message.ram_available_gb, 1),
        _whole(message.num_gpus),
        _number(message.vram_total_gb, 1),
        f"{_text(message.cpu).replace('|', '/')}|{_text(message.gpu)}",
    )


def _tiers(message: m.TierCounts) -> bytes:
    counts = (_whole(count) for count in (message.vram, message.ram, message.disk))
    return _line("TIERS", *counts, _number(message.vram_gb, 2), _number(message.ram_gb, 2))


def _grid(word: str, message: m.ExpertMap | m.ExpertHits, payload: bytes, size: int) -> bytes:
    if len(payload) != size:
        raise ValueError(f"{len(payload)} bytes instead of {size}")
    line = _line(word, _whole(message.rows), _whole(message.cols), payload.hex())
    return _bounded(line, limits.MAX_MAP_LINE_BYTES, "line")


def _map(message: m.ExpertMap) -> bytes:
    return _grid("EMAP", message, message.cells, message.rows * message.cols)


def _hits(message: m.ExpertHits) -> bytes:
    return _grid("HITS", message, message.bits, (message.rows * message.cols + 7) // 8)


def _profile(message: m.TurnProfile) -> bytes:
    spans = (
        message.expert_disk_s,
        message.expert_wait_s,
        message.expert_matmul_s,
        message.attention_s,
        message.lm_head_s,
    )
    return _line(
        "PROF",
        _number(message.wall_s, 3),
        _whole(message.prompt_tokens),
        _whole(message.completion_tokens),
        *(_number(span, 3) for span in spans),
        _whole(message.num_forwards),
    )


def _timings(message: m.RequestTimings) -> bytes:
    spans = (
        message.wall_s,
        message.expert_disk_s,
        message.expert_wait_s,
        message.expert_matmul_s,
        message.attention_s,
        message.kv_expansion_s,
        message.lm_head_s,
    )
    return _line("PERF", _id(message.id), *(_number(span) for span in spans))


def _gpus(message: m.GpuUsage) -> bytes:
    fields: list[str | int] = []
    for used, total, experts in message.devices:
        fields += (_number(used), _number(total), _whole(experts))
    return _line("GPUS", len(message.devices), *fields)


def _candidates(message: m.TokenCandidates) -> bytes:
    fields: list[str | int] = []
    for logprob, token in message.candidates:
        fields += (_number(logprob), token.hex())
    return _line("TOPK", _id(message.id), len(message.candidates), *fields)


def _moved(message: m.ExpertMoved) -> bytes:
    places = (_whole(message.layer), _whole(message.expert), _whole(message.old_tier))
    return _line("REPIN", *places, _whole(message.gpu, -1))


# Any: each writer takes the class it stands beside, which a mapping cannot express.
_WRITERS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    m.Submit: _submit,
    m.SubmitExtended: _submit_extended,
    m.Stop: lambda message: _line("STOP", _id(message.id)),
    m.Cancel: lambda message: _line("CANCEL", _id(message.id)),
    m.Count: _count,
    m.StatsQuery: lambda message: _line("STATS", _id(message.id)),
    m.Ping: lambda message: _line("PING", _whole(message.id)),
    m.StartFailed: _start_failed,
    m.Ready: lambda _: READY_LINE,
    m.Caps: _caps,
    m.EngineStat: _stat,
    m.Accepted: _accepted,
    m.TextDelta: _delta,
    m.TokenLogprobs: _token,
    m.Finished: _finished,
    m.RequestFailed: _failed,
    m.Progress: lambda message: _line(
        "PROGRESS", _id(message.id), _whole(message.done), _whole(message.total)
    ),
    m.Counted: lambda message: _line("COUNTED", _id(message.id), _whole(message.num_tokens)),
    m.StatsReport: lambda message: _body(("STATS", _id(message.id)), message.data),
    m.ModelInfo: lambda message: _body(("MODEL",), message.data),
    m.Pong: lambda message: _line("PONG", _whole(message.id)),
    m.HardwareInfo: _hardware,
    m.TierCounts: _tiers,
    m.ExpertMap: _map,
    m.ExpertHits: _hits,
    m.TurnProfile: _profile,
    m.RequestTimings: _timings,
    m.RoutingEntropy: lambda message: _line("ENTROPY", *(_number(bits) for bits in message.bits)),
    m.GpuUsage: _gpus,
    m.TokenCandidates: _candidates,
    m.ExpertMoved: _moved,
}
