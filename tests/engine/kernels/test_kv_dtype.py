"""Caches in bf16: every operator gives the bits of one in f32 whose rows were rounded before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import (
    Batch,
    IndexHeads,
    KvCache,
    KvReader,
    LatentHeads,
    LayerLayout,
    Selection,
)
from tests.engine.kernels.conftest import rows_of

F32 = npt.NDArray[np.float32]

HEADS, KV_HEADS = 6, 2


def rounded(x: F32) -> F32:
    """Return x in bf16: to the nearest, ties to even."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def drawn(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def pair(layout: LayerLayout) -> tuple[KvCache, KvCache]:
    """Return a cache in bf16 and one in f32."""
    return KvCache([layout], "bf16"), KvCache([layout])


def one_batch(cache: KvCache, start: int, count: int) -> Batch:
    batch = Batch()
    batch.set([(cache, start, count)])
    return batch


def rows_in(cache: KvCache) -> F32:
    """Return every row of a cache."""
    out = np.empty((cache.length, cache.row_dim), np.float32)
    KvReader(cache).read_rows(0, out)
    return out


@pytest.mark.parametrize("dim", [16, 48, 256])
@pytest.mark.parametrize(("length", "count"), [(1, 1), (70, 70), (300, 1), (600, 33)])
def test_attention(isa: str, rng: np.random.Generator, dim: int, length: int, count: int) -> None:
    layout = LayerLayout(num_kv_heads=KV_HEADS, head_dim=dim)
    qkv = drawn(rng, length, (HEADS + 2 * KV_HEADS) * dim)
    exact = qkv.copy()
    exact[:, HEADS * dim :] = rounded(exact[:, HEADS * dim :])
    found = []
    for cache, rows in zip(pair(layout), (qkv, exact), strict=True):
        batch = one_batch(cache, 0, length)
        kernels.store_kv(rows_of(rows), batch, 0, HEADS * dim)
        batch.commit()
        start = length - count
        out = rows_of(np.zeros((count, HEADS * dim), np.float32))
        batch = one_batch(cache, start, count)
        kernels.attention(rows_of(rows[start:]), batch, 0, HEADS, 0.3, out)
        found.append(out.array.copy())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0]).max() > 0


@pytest.mark.parametrize(("length", "count"), [(1, 1), (200, 200), (1300, 2)])
@pytest.mark.parametrize("latent_dim", [20, 72])  # one of them no multiple of a vector
def test_latent_attention(
    isa: str, rng: np.random.Generator, latent_dim: int, length: int, count: int
) -> None:
    value_dim, heads = latent_dim - 4, 5
    latents = drawn(rng, length, latent_dim)
    absorbed, q = drawn(rng, count, heads * value_dim), drawn(rng, count, heads * 9)
    found = []
    for cache, rows in zip(
        pair(LayerLayout(latent_dim=latent_dim)), (latents, rounded(latents)), strict=True
    ):
        batch = one_batch(cache, 0, length)
        kernels.store_latents(rows_of(rows), 0, batch, 0)
        batch.commit()
        out = rows_of(absorbed)
        batch = one_batch(cache, length - count, count)
        kernels.latent_attention(out, rows_of(q), batch, 0, LatentHeads(heads, 0.2), None)
        found.append(out.array.copy())
    np.testing.assert_array_equal(found[0], found[1])


def test_what_an_indexer_chooses(isa: str, rng: np.random.Generator) -> None:
    length, heads, dim = 150, 7, 20
    keys, q = drawn(rng, length, dim), drawn(rng, length, heads * dim)
    weights = drawn(rng, length, heads)
    found = []
    for cache, rows in zip(
        pair(LayerLayout(latent_dim=3, index_dim=dim)), (keys, rounded(keys)), strict=True
    ):
        batch = one_batch(cache, 0, length)
        kernels.store_index_keys(rows_of(rows), 0, batch, 0)
        batch.commit()
        selection = Selection(11)
        kernels.index_select(
            rows_of(q),
            rows_of(weights),
            one_batch(cache, 0, length),
            0,
            IndexHeads(heads, 0, 0.25),
            selection,
        )
        found.append([selection.positions(row) for row in range(11, length)])
    np.testing.assert_array_equal(found[0], found[1])


FULL = LayerLayout(num_kv_heads=2, head_dim=16, latent_dim=5, index_dim=3)


def test_rows_leave_and_come_back_as_they_are(rng: np.random.Generator) -> None:
    cache, other = KvCache([FULL] * 2, "bf16"), KvCache([FULL] * 2, "bf16")
    rows = drawn(rng, 300, cache.row_dim)
    cache.append_rows(rows)
    np.testing.assert_array_equal(rows_in(cache), rounded(rows))
    other.append_rows(rows_in(cache))
    np.testing.assert_array_equal(rows_in(other), rows_in(cache))


@pytest.mark.parametrize("length", [1, 17, 256, 300])
def test_a_copied_prefix_is_the_same_rows(rng: np.random.Generator, length: int) -> None:
    cache, other = KvCache([FULL] * 2, "bf16"), KvCache([FULL] * 2, "bf16")
    cache.append_rows(drawn(rng, 300, cache.row_dim))
    other.append_rows(drawn(rng, 40, cache.row_dim))
    other.copy_prefix(cache, length)
    np.testing.assert_array_equal(rows_in(other), rows_in(cache)[:length])


def test_ties_go_to_even_and_what_is_no_number_stays_none() -> None:
    cache = KvCache([LayerLayout(latent_dim=6)], "bf16")
    tie, above = np.float32(1 + 2**-8), np.float32(1 + 3 * 2**-8)
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    rows = np.array([[tie, above, np.inf, -0.0, np.nan, signalling]], np.float32)
    cache.append_rows(rows)
    got = rows_in(cache)[0]
    assert got[:3].tolist() == [1.0, 1 + 2**-6, np.inf]
    assert np.signbit(got[3])
    assert np.isnan(got[4:]).all()


def test_it_takes_half_the_memory() -> None:
    layout = LayerLayout(num_kv_heads=8, head_dim=128)
    half, whole = KvCache([layout] * 4, "bf16"), KvCache([layout] * 4, "f32")
    half.reserve(256)
    whole.reserve(256)
    assert 2 * half.nbytes == whole.nbytes
    assert (half.dtype, whole.dtype) == ("bf16", "f32")


def test_caches_of_different_types_share_no_rows(rng: np.random.Generator) -> None:
    half, whole = pair(FULL)
    whole.append_rows(drawn(rng, 3, whole.row_dim))
    with pytest.raises(ValueError, match="different types"):
        half.copy_prefix(whole, 2)


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="f32 or bf16, not f16"):
        KvCache([FULL], "f16")
    with pytest.raises(ValueError, match="257"):
        KvCache([LayerLayout(latent_dim=4, index_dim=257)], "bf16")
