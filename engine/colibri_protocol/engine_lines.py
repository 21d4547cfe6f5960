"""Lines of the engine: from the words of one line (and its body) to a message.

Knows the grammar of each line; knows no order. Readers raise ValueError; `frames` decides whether
that ends the session or is ignored (telemetry).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_protocol import limits
from colibri_protocol.fields import (
    FieldError,
    expect_fields,
    read_hex,
    read_id,
    read_measure,
    read_number,
    read_text,
    read_whole,
    show,
)
from colibri_protocol.json_text import as_list, as_object, load_object
from colibri_protocol.messages import (
    Accepted,
    Caps,
    Counted,
    EngineMessage,
    EngineStat,
    ExpertHits,
    ExpertMap,
    ExpertMoved,
    Finished,
    FinishReason,
    GpuUsage,
    HardwareInfo,
    ModelInfo,
    Pong,
    Progress,
    RequestFailed,
    RequestTimings,
    RoutingEntropy,
    StartFailed,
    StatsReport,
    TextDelta,
    TierCounts,
    TokenAlternative,
    TokenCandidates,
    TokenLogprobs,
    TurnProfile,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODE_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")


@dataclass(frozen=True, slots=True)
class EngineBody:
    """A line that announces `size` bytes, and what they will become."""

    size: int
    build: Callable[[bytes], EngineMessage]


EngineReader = Callable[[bytes], "EngineMessage | EngineBody"]


def read_caps(rest: bytes) -> Caps:
    """Read the words after CAPS."""
    return Caps(frozenset(word.decode("ascii", errors="replace") for word in rest.split()))


def read_stat(rest: bytes) -> EngineStat:
    """Read `<completion> <tok_s> <hit_pct> <rss_gb>`."""
    found = expect_fields(rest, 4)
    completion, speed, hits, rss = (read_measure(field) for field in found[:4])
    return EngineStat(rss, int(completion), speed, hits)


def build_start_failed(payload: bytes) -> StartFailed:
    """Read the JSON of a start that failed."""
    body = load_object(payload)
    code, message, hint = body.get("code"), body.get("message"), body.get("hint")
    if not isinstance(code, str) or not isinstance(message, str):
        raise FieldError("code and message must be strings")
    details = as_object(body.get("details")) or {}
    return StartFailed(code, message, hint if isinstance(hint, str) else None, details)


def _accepted(rest: bytes) -> Accepted:
    found = expect_fields(rest, 2)
    reused = read_whole(found[2]) if len(found) > 2 else None
    slot = read_whole(found[3], 0, limits.MAX_SLOT) if len(found) > 3 else None
    return Accepted(read_id(found[0]), read_whole(found[1]), reused, slot)


def _data(rest: bytes) -> EngineBody:
    request, size = _id_and_size(rest, limits.MAX_DATA_BYTES)
    return EngineBody(size, lambda payload: TextDelta(request, payload))


def _done(rest: bytes) -> Finished:
    found = expect_fields(rest, 2)
    if found[1] != b"STAT":
        raise FieldError("STAT is missing")
    if len(found) < 6:
        raise FieldError(f"{len(found) - 2} figures instead of at least 4")
    names = (b"stop", b"length", b"stopped")
    has_reason = len(found) > 9 and found[9] in names
    return Finished(
        read_id(found[0]),
        read_whole(found[2]),
        read_measure(found[3]),
        read_measure(found[4]),
        read_measure(found[5]),
        read_whole(found[6]) if len(found) > 6 else 0,
        read_whole(found[7], 0, 1) == 1 if len(found) > 7 else False,
        read_whole(found[8]) if len(found) > 8 else 0,
        FinishReason(found[9].decode()) if has_reason else None,
        read_whole(found[10], -1) if has_reason and len(found) > 10 else None,
    )


def _error(rest: bytes) -> RequestFailed:
    request, _, text = rest.strip().partition(b" ")
    code, _, detail = text.strip().partition(b" ")
    if len(code) < 3 or not _CODE_LETTERS.issuperset(code) or not code[:1].isalpha():
        code, detail = b"", text
    try:
        return RequestFailed(read_whole(request), code.decode(), read_text(detail))
    except ValueError as exc:
        raise FieldError(f"{exc} ({show(rest)})") from exc


def _progress(rest: bytes) -> Progress:
    found = expect_fields(rest, 3)
    return Progress(read_id(found[0]), read_whole(found[1]), read_whole(found[2]))


def _counted(rest: bytes) -> Counted:
    found = expect_fields(rest, 2)
    return Counted(read_id(found[0]), read_whole(found[1]))


def _pong(rest: bytes) -> Pong:
    return Pong(read_whole(expect_fields(rest, 1)[0]))


def _stats(rest: bytes) -> EngineBody:
    request, size = _id_and_size(rest, limits.MAX_BODY_BYTES)
    return EngineBody(size, lambda payload: StatsReport(request, load_object(payload)))


def _model(rest: bytes) -> EngineBody:
    size = read_whole(expect_fields(rest, 1)[0], 0, limits.MAX_BODY_BYTES)
    return EngineBody(size, lambda payload: ModelInfo(load_object(payload)))


def _token(rest: bytes) -> EngineBody:
    request, size = _id_and_size(rest, limits.MAX_TOKEN_JSON_BYTES)
    return EngineBody(size, lambda payload: _build_token(request, load_object(payload)))


def _build_token(request: int, body: dict[str, object]) -> TokenLogprobs:
    chosen = _alternative([body.get("id"), body.get("logprob"), body.get("bytes")])
    top = as_list(body.get("top", []))
    if top is None:
        raise FieldError("top must be a list")
    alternatives = tuple(_alternative(as_list(entry) or []) for entry in top)
    return TokenLogprobs(request, chosen.token_id, chosen.logprob, chosen.token_bytes, alternatives)


def _alternative(entry: list[object]) -> TokenAlternative:
    if len(entry) != 3:
        raise FieldError("an alternative must be [id, logprob, hex]")
    token, logprob, text = entry
    if isinstance(token, bool) or not isinstance(token, int) or token < 0:
        raise FieldError("a token's id must be a whole number")
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        raise FieldError("a token's logprob must be a number")
    if not isinstance(text, str):
        raise FieldError("a token's bytes must be hex digits")
    return TokenAlternative(token, float(logprob), read_hex(text.encode(), len(text) // 2))


def _id_and_size(rest: bytes, limit: int) -> tuple[int, int]:
    found = expect_fields(rest, 2)
    return read_id(found[0]), read_whole(found[1], 0, limit)


def _hardware(rest: bytes) -> HardwareInfo:
    found = rest.split(None, 5)
    if len(found) < 5:
        raise FieldError(f"{len(found)} fields instead of 5")
    cpu, _, gpu = (found[5] if len(found) > 5 else b"").partition(b"|")
    return HardwareInfo(
        read_whole(found[0]),
        read_number(found[1]),
        read_number(found[2]),
        read_whole(found[3]),
        read_number(found[4]),
        read_text(cpu),
        read_text(gpu),
    )


def _tiers(rest: bytes) -> TierCounts:
    found = expect_fields(rest, 5)
    vram, ram, disk = (read_whole(field) for field in found[:3])
    return TierCounts(vram, ram, disk, read_number(found[3]), read_number(found[4]))


def _expert_map(rest: bytes) -> ExpertMap:
    rows, cols, digits = _grid(rest)
    return ExpertMap(rows, cols, read_hex(digits, rows * cols))


def _expert_hits(rest: bytes) -> ExpertHits:
    rows, cols, digits = _grid(rest)
    return ExpertHits(rows, cols, read_hex(digits, (rows * cols + 7) // 8))


def _grid(rest: bytes) -> tuple[int, int, bytes]:
    found = expect_fields(rest, 2)
    return read_whole(found[0]), read_whole(found[1]), found[2] if len(found) > 2 else b""


def _profile(rest: bytes) -> TurnProfile:
    found = expect_fields(rest, 9)
    disk, wait, matmul, attention, head = (read_number(field) for field in found[3:8])
    return TurnProfile(
        read_number(found[0]), read_whole(found[1]), read_whole(found[2]),
        disk, wait, matmul, attention, head, read_whole(found[8]),
    )  # fmt: skip


def _timings(rest: bytes) -> RequestTimings:
    found = expect_fields(rest, 8)
    wall, disk, wait, matmul, attention, kvb, head = (read_number(field) for field in found[1:8])
    return RequestTimings(read_id(found[0]), wall, disk, wait, matmul, attention, kvb, head)


def _entropy(rest: bytes) -> RoutingEntropy:
    return RoutingEntropy(tuple(read_number(field) for field in rest.split()))


def _gpus(rest: bytes) -> GpuUsage:
    found = expect_fields(rest, 1)
    count = read_whole(found[0], 0, 1024)
    if len(found) != 1 + 3 * count:
        raise FieldError(f"{len(found)} fields instead of {1 + 3 * count}")
    groups = zip(found[1::3], found[2::3], found[3::3], strict=True)
    return GpuUsage(tuple((read_number(a), read_number(b), read_whole(c)) for a, b, c in groups))


def _candidates(rest: bytes) -> TokenCandidates:
    found = rest.split(b" ")  # a token without bytes leaves an empty field
    count = read_whole(found[1], 0, 1024) if len(found) > 1 else -1
    if len(found) != 2 + 2 * count:
        raise FieldError("logprobs and tokens do not come in pairs")
    pairs = zip(found[2::2], found[3::2], strict=True)
    return TokenCandidates(
        read_id(found[0]), tuple((read_number(p), read_hex(t, len(t) // 2)) for p, t in pairs)
    )


def _moved(rest: bytes) -> ExpertMoved:
    found = expect_fields(rest, 4)
    layer, expert, tier = (read_whole(field) for field in found[:3])
    return ExpertMoved(layer, expert, tier, read_whole(found[3], -1))


REQUEST_LINES: Final[Mapping[bytes, EngineReader]] = {
    b"ACCEPT": _accepted,
    b"COUNTED": _counted,
    b"DATA": _data,
    b"DONE": _done,
    b"ERROR": _error,
    b"MODEL": _model,
    b"PONG": _pong,
    b"PROGRESS": _progress,
    b"STATS": _stats,
    b"TOKEN": _token,
}
TELEMETRY_LINES: Final[Mapping[bytes, EngineReader]] = {
    b"EMAP": _expert_map,
    b"ENTROPY": _entropy,
    b"GPUS": _gpus,
    b"HITS": _expert_hits,
    b"HWINFO": _hardware,
    b"PERF": _timings,
    b"PROF": _profile,
    b"REPIN": _moved,
    b"STAT": read_stat,
    b"TIERS": _tiers,
    b"TOPK": _candidates,
}
MAP_WORDS: Final = frozenset({b"EMAP", b"HITS"})
