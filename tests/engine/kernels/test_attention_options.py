"""Windows, sinks, query scales and relative biases, and the store without rotation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import AttentionOptions, Batch, Rows
from tests.engine.kernels import reference
from tests.engine.kernels.conftest import gqa_cache, rows_of
from tests.engine.kernels.reference import F32, AttentionRules

HEADS, KV_HEADS, DIM = 6, 2, 32
QKV = (HEADS + 2 * KV_HEADS) * DIM
KEYS_AT = HEADS * DIM


def options_of(rules: AttentionRules) -> AttentionOptions:
    return AttentionOptions(
        window=rules.window,
        sinks=rules.sinks,
        profiles=rules.profiles,
        log_floor=rules.log_floor,
        log_alpha=rules.log_alpha,
    )


def attend(qkv: F32, chunks: list[int], options: AttentionOptions | None, scale: float) -> F32:
    """Return the attention of one sequence whose rows come in chunks."""
    cache, batch = gqa_cache(2, KV_HEADS, DIM), Batch()
    parts, begin = [], 0
    for count in chunks:
        batch.set([(cache, begin, count)])
        rows, out = rows_of(qkv[begin : begin + count]), Rows(count, HEADS * DIM)
        kernels.store_kv(rows, batch, 1, KEYS_AT)
        kernels.attention(rows, batch, 1, HEADS, scale, out, options)
        np.testing.assert_array_equal(rows.array, qkv[begin : begin + count])
        batch.commit()
        parts.append(out.array.copy())
        begin += count
    return np.concatenate(parts)


def random_rows(rng: np.random.Generator, count: int, num_profiles: int = 0) -> F32:
    return rng.standard_normal((count, QKV + HEADS * num_profiles)).astype(np.float32)


def expected(qkv: F32, rules: AttentionRules, scale: float) -> tuple[np.ndarray, np.ndarray]:
    count = len(qkv)
    heads = qkv[:, :QKV].reshape(count, -1, DIM)
    mix = qkv[:, QKV:].reshape(count, HEADS, -1) if rules.profiles is not None else None
    return reference.attention(
        heads[:, :HEADS],
        heads[:, HEADS : HEADS + KV_HEADS],
        heads[:, HEADS + KV_HEADS :],
        0,
        scale,
        rules=rules,
        mix=mix,
    )


def random_rules(rng: np.random.Generator, name: str) -> AttentionRules:
    sinks = (2 * rng.standard_normal(HEADS)).astype(np.float32)
    profiles = (rng.standard_normal((8, 40)) / 2).astype(np.float32)
    return {
        "plain": AttentionRules(),
        "window": AttentionRules(window=8),
        "wide window": AttentionRules(window=100),
        "sinks": AttentionRules(sinks=sinks),
        "bias": AttentionRules(profiles=profiles),
        "growing queries": AttentionRules(log_floor=16, log_alpha=0.5),
        "bias in a window": AttentionRules(window=40, profiles=profiles),
        "bias and growth": AttentionRules(profiles=profiles, log_floor=9, log_alpha=0.1),
        "all": AttentionRules(70, sinks, profiles, 30, 0.2),
    }[name]


NAMES = [
    "plain",
    "window",
    "wide window",
    "sinks",
    "bias",
    "growing queries",
    "bias in a window",
    "bias and growth",
    "all",
]


@pytest.mark.parametrize("name", NAMES)
def test_options_against_float64(isa: str, rng: np.random.Generator, name: str) -> None:
    rules = random_rules(rng, name)
    num_profiles = 0 if rules.profiles is None else len(rules.profiles)
    qkv = random_rows(rng, 150, num_profiles)
    out = attend(qkv, [1, 1, 30, 70, 1, 47], options_of(rules), 0.2)
    want, bound = expected(qkv, rules, 0.2)
    assert (np.abs(out.reshape(want.shape) - want) <= bound).all()


@pytest.mark.parametrize("name", NAMES)
def test_options_keep_their_bits_in_any_chunks_on_any_threads(
    isa: str, rng: np.random.Generator, name: str
) -> None:
    rules = random_rules(rng, name)
    num_profiles = 0 if rules.profiles is None else len(rules.profiles)
    qkv, options = random_rows(rng, 300, num_profiles), options_of(rules)
    whole = attend(qkv, [300], options, 0.125)
    for chunks in ([1] * 30 + [270], [33] * 9 + [3], [256, 44]):
        np.testing.assert_array_equal(attend(qkv, chunks, options, 0.125), whole)
    kernels.set_num_threads(1)
    np.testing.assert_array_equal(attend(qkv, [299, 1], options, 0.125), whole)


def test_options_on_any_instruction_set(rng: np.random.Generator) -> None:
    rules = random_rules(rng, "all")
    qkv = random_rows(rng, 200, 8)
    before, results = kernels.active_isa(), []
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            results.append(attend(qkv, [150, 1, 49], options_of(rules), 0.125))
    finally:
        kernels.set_isa(before)
    for result in results:
        np.testing.assert_array_equal(result, results[-1])


def test_no_options_are_the_plain_bits(isa: str, rng: np.random.Generator) -> None:
    qkv = random_rows(rng, 90)
    plain = attend(qkv, [90], None, 0.25)
    np.testing.assert_array_equal(attend(qkv, [90], AttentionOptions(), 0.25), plain)


def test_a_window_forgets_what_lies_behind_it(isa: str, rng: np.random.Generator) -> None:
    qkv, options = random_rows(rng, 120), AttentionOptions(window=8)
    out = attend(qkv, [120], options, 0.25)
    changed = qkv.copy()
    changed[:90, KEYS_AT:] = np.nan
    np.testing.assert_array_equal(attend(changed, [120], options, 0.25)[97:], out[97:])
    assert np.isnan(attend(changed, [120], options, 0.25)[96]).all()


def test_a_sink_takes_its_share_and_gives_nothing(isa: str) -> None:
    qkv = np.zeros((1, QKV), np.float32)
    qkv[:, QKV - KV_HEADS * DIM :] = 3.0
    sinks = np.array([0, np.log(3), -100, 0, 0, 100], np.float32)
    out = attend(qkv, [1], AttentionOptions(sinks=sinks), 1.0)
    shares = out.reshape(HEADS, DIM)[:, 0] / 3
    np.testing.assert_allclose(shares, [0.5, 0.25, 1, 0.5, 0.5, 0], atol=1e-6)


REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "a negative window": (lambda: AttentionOptions(window=-1), "negative"),
    "a sink that is infinite": (
        lambda: AttentionOptions(sinks=np.array([np.inf], np.float32)),
        "not finite",
    ),
    "too many profiles": (
        lambda: AttentionOptions(profiles=np.zeros((65, 4), np.float32)),
        "more relative profiles than 64",
    ),
    "profiles without a distance": (
        lambda: AttentionOptions(profiles=np.zeros((4, 0), np.float32)),
        "at least one distance",
    ),
    "an infinite floor": (lambda: AttentionOptions(log_floor=np.inf), "must be finite"),
    "a negative floor": (lambda: AttentionOptions(log_floor=-1.0), "not negative"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_impossible_options_are_refused(name: str) -> None:
    call, text = REFUSALS[name]
    with pytest.raises(ValueError, match=text):
        call()


def test_sinks_must_be_those_of_the_heads() -> None:
    options = AttentionOptions(sinks=np.zeros(HEADS - 1, np.float32))
    with pytest.raises(ValueError, match="one sink per query head"):
        attend(np.zeros((1, QKV), np.float32), [1], options, 1.0)


def test_rows_must_hold_the_mixing_weights() -> None:
    options = AttentionOptions(profiles=np.zeros((4, 9), np.float32))
    with pytest.raises(ValueError, match="width"):
        attend(np.zeros((1, QKV), np.float32), [1], options, 1.0)


@pytest.mark.parametrize("offset", [-1, KEYS_AT + 1, 2**62])
def test_keys_and_values_must_lie_in_the_row(offset: int) -> None:
    cache, batch = gqa_cache(1, KV_HEADS, DIM), Batch()
    batch.set([(cache, 0, 1)])
    with pytest.raises(ValueError, match="outside the row"):
        kernels.store_kv(rows_of(np.zeros((1, QKV))), batch, 0, offset)
