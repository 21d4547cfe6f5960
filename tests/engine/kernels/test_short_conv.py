"""Short convolutions: their state lives in the cache, so chunks are as good as one piece."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Batch, KvCache, LayerLayout, ShortConv
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import EPS, F32

CHANNELS, COLUMN, WIDTH = 530, 7, 540
OFFSET = 11  # of the state


def make_cache(state_dim: int = OFFSET + 15 * CHANNELS) -> KvCache:
    layout = LayerLayout(num_kv_heads=1, head_dim=16, state_dim=state_dim)
    return KvCache([LayerLayout(num_kv_heads=1, head_dim=16), layout])


def convolve(
    cache: KvCache, x: F32, conv: ShortConv, chunks: list[int], residual: F32 | None = None
) -> F32:
    """Feed x (N, WIDTH) in chunks; return what became of it, or of the residual."""
    batch, parts, begin = Batch(), [], 0
    for count in chunks:
        batch.set([(cache, cache.length, count)])
        rows = rows_of(x[begin : begin + count])
        if residual is None:
            kernels.short_conv(rows, conv, batch, 1)
            parts.append(rows.array.copy())
        else:
            onto = rows_of(residual[begin : begin + count])
            kernels.short_conv(rows, conv, batch, 1, onto)
            np.testing.assert_array_equal(rows.array, x[begin : begin + count])
            parts.append(onto.array.copy())
        batch.commit()
        begin += count
    return np.concatenate(parts)


def make_conv(weights: F32) -> ShortConv:
    return ShortConv(weights, column=COLUMN, state_offset=OFFSET)


def random_case(rng: np.random.Generator, count: int, taps: int = 4) -> tuple[F32, F32]:
    x = rng.standard_normal((count, WIDTH)).astype(np.float32)
    return x, (rng.standard_normal((CHANNELS, taps)) / 2).astype(np.float32)


@pytest.mark.parametrize("taps", [1, 2, 4, 16])
def test_convolution_against_float64(isa: str, rng: np.random.Generator, taps: int) -> None:
    x, weights = random_case(rng, 40, taps)
    got = convolve(make_cache(), x, make_conv(weights), [40])
    inputs = x[:, COLUMN : COLUMN + CHANNELS].astype(np.float64)
    padded = np.concatenate([np.zeros((taps - 1, CHANNELS)), inputs])
    expected, size = inputs.copy(), np.abs(inputs)
    for tap in range(taps):
        term = padded[tap : tap + 40] * weights[:, tap]
        expected += term
        size += np.abs(term)
    error = np.abs(got[:, COLUMN : COLUMN + CHANNELS] - expected)
    assert (error <= (taps + 2) * EPS * size).all()
    rest = np.r_[0:COLUMN, COLUMN + CHANNELS : WIDTH]
    np.testing.assert_array_equal(got[:, rest], x[:, rest])


def test_a_residual_takes_the_result(isa: str, rng: np.random.Generator) -> None:
    x, weights = random_case(rng, 9)
    residual = rng.standard_normal((9, CHANNELS)).astype(np.float32)
    alone = convolve(make_cache(), x, make_conv(weights), [9])[:, COLUMN : COLUMN + CHANNELS]
    added = convolve(make_cache(), x, make_conv(weights), [4, 5], residual)
    np.testing.assert_array_equal(added, residual + alone)


@pytest.mark.parametrize("chunks", [[1] * 50, [2, 3, 45], [7] * 7 + [1], [48, 2]])
def test_chunks_and_threads_change_no_bit(
    isa: str, rng: np.random.Generator, chunks: list[int]
) -> None:
    x, weights = random_case(rng, 50)
    whole = convolve(make_cache(), x, make_conv(weights), [50])
    np.testing.assert_array_equal(convolve(make_cache(), x, make_conv(weights), chunks), whole)
    kernels.set_num_threads(1)
    np.testing.assert_array_equal(convolve(make_cache(), x, make_conv(weights), chunks), whole)


def test_sequences_of_one_step_do_not_meet(isa: str, rng: np.random.Generator) -> None:
    first, weights = random_case(rng, 12)
    second, _ = random_case(rng, 20)
    conv = make_conv(weights)
    alone = [convolve(make_cache(), x, conv, [len(x)]) for x in (first, second)]
    caches, batch = [make_cache(), make_cache()], Batch()
    together: list[list[F32]] = [[], []]
    for begin in range(0, 12, 3):
        sizes = [1 if begin else 3, 3]
        steps = zip((first, second), caches, sizes, strict=True)
        parts = [x[c.length : c.length + n] for x, c, n in steps]
        batch.set([(c, c.length, n) for c, n in zip(caches, sizes, strict=True)])
        rows = rows_of(np.concatenate(parts))
        kernels.short_conv(rows, conv, batch, 1)
        batch.commit()
        together[0].append(rows.array[: sizes[0]].copy())
        together[1].append(rows.array[sizes[0] :].copy())
    for want, got in zip(alone, together, strict=True):
        done = np.concatenate(got)
        np.testing.assert_array_equal(done, want[: len(done)])


def test_a_step_that_is_not_committed_leaves_no_trace(isa: str, rng: np.random.Generator) -> None:
    x, weights = random_case(rng, 20)
    conv, cache, batch = make_conv(weights), make_cache(), Batch()
    whole = convolve(make_cache(), x, conv, [20])
    convolve(cache, x[:10], conv, [10])
    batch.set([(cache, 10, 5)])
    kernels.short_conv(rows_of(np.full((5, WIDTH), 9.0)), conv, batch, 1)
    np.testing.assert_array_equal(convolve(cache, x[10:], conv, [10]), whole[10:])


def test_a_snapshot_brings_the_state_back(isa: str, rng: np.random.Generator) -> None:
    x, weights = random_case(rng, 30)
    conv, cache = make_conv(weights), make_cache()
    whole = convolve(cache, x[:20], conv, [20])
    cache.snapshot()
    first = convolve(cache, x[20:], conv, [10])
    assert cache.restorable(25) == 20
    cache.truncate(20)
    np.testing.assert_array_equal(convolve(cache, x[20:], conv, [1] * 10), first)
    assert len(whole) == 20


REFUSALS = {
    "no channels": (np.zeros((0, 4)), {}, "at least one channel"),
    "no taps": (np.zeros((4, 0)), {}, r"1\.\.16 taps"),
    "many taps": (np.zeros((4, 17)), {}, r"1\.\.16 taps"),
    "a negative column": (np.zeros((4, 4)), {"column": -1}, "negative"),
    "a negative place of the state": (np.zeros((4, 4)), {"state_offset": -1}, "negative"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_impossible_convolutions_are_refused(name: str) -> None:
    weights, places, text = REFUSALS[name]
    with pytest.raises(ValueError, match=text):
        ShortConv(weights.astype(np.float32), **places)


def run(conv: ShortConv, *, width: int = WIDTH, residual: int | None = None) -> None:
    cache, batch = make_cache(), Batch()
    batch.set([(cache, 0, 1)])
    onto = None if residual is None else rows_of(np.zeros((1, residual)))
    kernels.short_conv(rows_of(np.zeros((1, width))), conv, batch, 1, onto)


MISFITS: dict[str, tuple[tuple[int, int], dict[str, int], dict[str, int], str]] = {
    "a narrow row": ((CHANNELS, 4), {"column": COLUMN}, {"width": 536}, "outside the row"),
    "a column far away": ((4, 4), {"column": 2**62}, {}, "outside the row"),
    "another residual": ((CHANNELS, 4), {}, {"residual": 531}, "another width"),
    "a small state": ((600, 16), {}, {"width": 600}, "no room for the state"),
    "a place far away": ((4, 4), {"state_offset": 2**62}, {}, "no room for the state"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    shape, places, sizes, text = MISFITS[name]
    conv = ShortConv(np.zeros(shape, np.float32), **places)
    with pytest.raises(ValueError, match=text):
        run(conv, **sizes)
