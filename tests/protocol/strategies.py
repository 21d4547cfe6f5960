"""Hypothesis strategies: any message that may be sent, any stream of them, any way to split it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from colibri_protocol import messages as m
from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.frames import EngineLineDecoder, GatewayLineDecoder, encode

IDS = st.integers(1, 2**63 - 1)
COUNTS = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# What is written with a fixed number of digits comes back the same only if it has no more.
TENTHS = st.integers(0, 10_000).map(lambda n: n / 10)
HUNDREDTHS = st.integers(0, 10_000).map(lambda n: n / 100)
THOUSANDTHS = st.integers(0, 100_000).map(lambda n: n / 1000)
PROMPT_BYTES = TEXTS.map(lambda text: text.replace("\0", "").encode())
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON_OBJECTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | FINITE | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
ONE_LINE_TEXTS = (
    st.text(st.characters(categories=["L", "N", "P"], exclude_characters="|"), max_size=30)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: text == "".join(c for c in text if c.isprintable()))
)


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The values, or None."""
    return st.none() | values


OPTIONS = st.builds(
    m.RequestOptions,
    max_tokens=some(st.integers(1, 2**31 - 1)),
    temperature=some(st.floats(0, 2)),
    top_p=some(st.floats(0, 1, exclude_min=True)),
    top_k=some(st.integers(0, 2**31 - 1)),
    min_p=some(st.floats(0, 1)),
    repetition_penalty=some(st.floats(0, 10, exclude_min=True)),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    logit_bias=st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-100, 100), max_size=3),
    seed=some(st.integers(0, 2**64 - 1)),
    stop_ids=st.lists(st.integers(0, 2**31 - 1), max_size=3).map(tuple),
    ignore_eos=st.booleans(),
    logprobs=some(st.integers(0, 20)),
    grammar=some(
        st.builds(m.Grammar, TEXTS.filter(lambda text: text != ""), TEXTS.filter(lambda t: t != ""))
    ),
    draft=some(st.integers(0, 64)),
)
SEGMENTS = st.lists(st.builds(m.Segment, st.sampled_from(m.SegmentKind), TEXTS), max_size=4).map(
    tuple
)
GATEWAY_MESSAGES = st.one_of(
    st.builds(
        m.Submit,
        IDS,
        st.integers(0, 15),
        PROMPT_BYTES,
        st.integers(1, 2**31 - 1),
        st.integers(0, 2000).map(lambda n: n / 1000),
        st.integers(1, 1000).map(lambda n: n / 1000),
        some(PROMPT_BYTES.filter(lambda text: text != b"")),
    ),
    st.builds(m.SubmitExtended, IDS, st.integers(-1, 15), OPTIONS, SEGMENTS),
    st.builds(m.Stop, IDS),
    st.builds(m.Cancel, IDS),
    st.builds(m.Count, IDS, SEGMENTS),
    st.builds(m.StatsQuery, IDS),
    st.builds(m.Ping, COUNTS),
)

ALTERNATIVES = st.builds(m.TokenAlternative, COUNTS, st.floats(-9999, 0), st.binary(max_size=8))


@st.composite
def _expert_maps(draw: st.DrawFn) -> m.ExpertMap:
    rows, cols = draw(SMALL), draw(SMALL)
    size = rows * cols
    return m.ExpertMap(rows, cols, draw(st.binary(min_size=size, max_size=size)))


@st.composite
def _expert_hits(draw: st.DrawFn) -> m.ExpertHits:
    rows, cols = draw(SMALL), draw(SMALL)
    size = (rows * cols + 7) // 8
    return m.ExpertHits(rows, cols, draw(st.binary(min_size=size, max_size=size)))


@st.composite
def _accepted(draw: st.DrawFn) -> m.Accepted:
    reused = draw(some(COUNTS))
    slot = None if reused is None else draw(some(st.integers(0, 15)))
    return m.Accepted(draw(IDS), draw(COUNTS), reused, slot)


@st.composite
def _finished(draw: st.DrawFn) -> m.Finished:
    finish = draw(some(st.sampled_from(m.FinishReason)))
    return m.Finished(
        draw(IDS),
        draw(COUNTS),
        draw(HUNDREDTHS),
        draw(TENTHS),
        draw(HUNDREDTHS),
        draw(COUNTS),
        draw(st.booleans()),
        draw(COUNTS),
        finish,
        None if finish is None else draw(st.integers(-1, 2**31 - 1)),
    )


ENGINE_MESSAGES = st.one_of(
    _accepted(),
    st.builds(m.TextDelta, IDS, st.binary(max_size=40)),
    st.builds(
        m.TokenLogprobs,
        IDS,
        COUNTS,
        st.floats(-9999, 0),
        st.binary(max_size=8),
        st.lists(ALTERNATIVES, max_size=3).map(tuple),
    ),
    _finished(),
    st.builds(m.RequestFailed, COUNTS, st.sampled_from(m.ErrorCode).map(str), ONE_LINE_TEXTS),
    st.builds(m.Progress, IDS, COUNTS, COUNTS),
    st.builds(m.Counted, IDS, COUNTS),
    st.builds(m.StatsReport, IDS, JSON_OBJECTS),
    st.builds(m.ModelInfo, JSON_OBJECTS),
    st.builds(m.Pong, COUNTS),
    st.builds(
        m.HardwareInfo, COUNTS, TENTHS, TENTHS, COUNTS, TENTHS, ONE_LINE_TEXTS, ONE_LINE_TEXTS
    ),
    st.builds(m.TierCounts, COUNTS, COUNTS, COUNTS, HUNDREDTHS, HUNDREDTHS),
    _expert_maps(),
    _expert_hits(),
    st.builds(
        m.TurnProfile, THOUSANDTHS, COUNTS, COUNTS, *([THOUSANDTHS] * 5), num_forwards=COUNTS
    ),
    st.builds(m.RequestTimings, IDS, *([THOUSANDTHS] * 7)),
    st.builds(m.RoutingEntropy, st.lists(THOUSANDTHS, max_size=4).map(tuple)),
    st.builds(m.GpuUsage, st.lists(st.tuples(TENTHS, TENTHS, COUNTS), max_size=3).map(tuple)),
    st.builds(
        m.TokenCandidates,
        IDS,
        st.lists(st.tuples(THOUSANDTHS.map(lambda n: -n), st.binary(max_size=4)), max_size=3).map(
            tuple
        ),
    ),
    st.builds(m.ExpertMoved, COUNTS, COUNTS, COUNTS, st.integers(-1, 8)),
)

Decoder = EngineLineDecoder | GatewayLineDecoder


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Any way to cut `data` into pieces, empty ones included."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@st.composite
def mutated(draw: st.DrawFn, messages: st.SearchStrategy[Any]) -> bytes:
    """A stream of real messages with a few bytes replaced, removed or put in."""
    data = bytearray(b"".join(encode(message) for message in draw(st.lists(messages, max_size=5))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        removed = draw(st.integers(0, 3))
        data[place : place + removed] = draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b" ", b"9", b"-1", b"nan", b"DATA 1 "])
        )
    return bytes(data)


def decode(decoder: Decoder, chunks: list[bytes]) -> tuple[list[object], str | None]:
    """Feed all chunks; return the messages, and what the fault was if there is one."""
    found: list[object] = []
    for chunk in chunks:
        try:
            found += decoder.feed(chunk)
        except RemoteProtocolError as exc:
            return [*found, *exc.messages], exc.message
    return found, None
