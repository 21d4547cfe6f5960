"""Rotary embedding, the cache it fills, and attention over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Batch, KvCache, Rope, Rows
from tests.engine.kernels import reference
from tests.engine.kernels.conftest import gqa_cache, rows_of
from tests.engine.kernels.reference import EPS, F32, RopeRule


@dataclass(frozen=True)
class Shape:
    """Query heads, KV heads, channels of a head."""

    heads: int
    kv_heads: int
    dim: int

    @property
    def width(self) -> int:
        """Columns of q, k and v side by side."""
        return (self.heads + 2 * self.kv_heads) * self.dim


def build_rope(rule: RopeRule) -> Rope:
    return Rope(rule.rotated, rule.inv_freq, rule.scale, rule.interleaved)


class Conversation:
    """One sequence fed to the kernels and remembered in numpy.

    Args:
        rng: Source of the rows.
        shape: Sizes.
        rule: Rotary embedding.
        layer: Which of two layers of the cache is used.
    """

    def __init__(
        self, rng: np.random.Generator, shape: Shape, rule: RopeRule, layer: int = 1
    ) -> None:
        self.shape, self.rule, self.layer = shape, rule, layer
        self.cache = gqa_cache(2, shape.kv_heads, shape.dim)
        self._rng = rng
        self._keys = np.empty((0, shape.kv_heads, shape.dim), np.float32)
        self._values = self._keys.copy()

    def random_rows(self, count: int) -> F32:
        """Return (count, width) rows of q, k and v."""
        return self._rng.standard_normal((count, self.shape.width)).astype(np.float32)

    def check(self, before: F32, rotated: F32, attended: F32) -> None:
        """Compare what the kernels made of the next rows with float64; remember their k and v."""
        shape, count, start = self.shape, len(before), len(self._keys)
        heads = before.reshape(count, -1, shape.dim)
        turned = rotated.reshape(count, -1, shape.dim)
        num_turned = shape.heads + shape.kv_heads
        positions = np.arange(start, start + count)
        expected = self.rule.rotate(heads[:, :num_turned], positions)
        # Cosine, sine and one product are rounded, then the sum.
        bound = 2 * EPS * self.rule.scale * np.abs(heads[:, :num_turned]).max()
        assert np.abs(turned[:, :num_turned] - expected).max() <= bound
        fixed = heads[:, :num_turned, self.rule.rotated :]
        np.testing.assert_array_equal(turned[:, :num_turned, self.rule.rotated :], fixed)
        np.testing.assert_array_equal(turned[:, num_turned:], heads[:, num_turned:])

        self._keys = np.concatenate([self._keys, turned[:, shape.heads : num_turned]])
        self._values = np.concatenate([self._values, turned[:, num_turned:]])
        queries = turned[:, : shape.heads]
        scale = shape.dim**-0.5
        wide, bound_out = reference.attention(queries, self._keys, self._values, start, scale)
        error = np.abs(attended.reshape(count, shape.heads, shape.dim) - wide)
        assert (error <= bound_out).all()


def step(conversations: list[Conversation], counts: list[int]) -> None:
    """Feed the next rows of some conversations in one batch and check them all."""
    shape, rule, layer = (conversations[0].shape, conversations[0].rule, conversations[0].layer)
    parts = [c.random_rows(n) for c, n in zip(conversations, counts, strict=True)]
    qkv = rows_of(np.concatenate(parts))
    out = Rows(qkv.capacity, shape.heads * shape.dim)
    batch = Batch()
    batch.set([(c.cache, c.cache.length, n) for c, n in zip(conversations, counts, strict=True)])
    assert batch.rows == sum(counts)
    kernels.rope_store(qkv, batch, layer, build_rope(rule), shape.heads)
    kernels.attention(qkv, batch, layer, shape.heads, shape.dim**-0.5, out)
    batch.commit()
    begin = 0
    for conversation, part in zip(conversations, parts, strict=True):
        end = begin + len(part)
        conversation.check(part, qkv.array[begin:end], out.array[begin:end])
        begin = end


SHAPES = [
    pytest.param(Shape(1, 1, 16), id="1-head"),
    pytest.param(Shape(9, 3, 64), id="9-over-3"),
    pytest.param(Shape(8, 1, 32), id="8-over-1"),
    pytest.param(Shape(4, 4, 80), id="4-over-4"),
    pytest.param(Shape(12, 1, 48), id="12-over-1"),
    pytest.param(Shape(2, 1, 256), id="widest"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_over_growing_chunks(isa: str, rng: np.random.Generator, shape: Shape) -> None:
    conversation = Conversation(rng, shape, RopeRule(shape.dim))
    for count in (1, 1, 15, 17, 31, 1, 64, 3, 200):  # crosses key blocks, softmax blocks, 256
        step([conversation], [count])


def test_decode_across_every_kind_of_block(isa: str, rng: np.random.Generator) -> None:
    conversation = Conversation(rng, Shape(4, 2, 32), RopeRule(32))
    step([conversation], [505])
    for _ in range(20):  # crosses 512, from which heads share the reading of keys
        step([conversation], [1])


def test_sequences_of_one_batch_do_not_meet(isa: str, rng: np.random.Generator) -> None:
    shape, rule = Shape(6, 2, 32), RopeRule(32)
    conversations = [Conversation(rng, shape, rule) for _ in range(4)]
    for counts in ([7, 1, 70, 300], [1, 1, 1, 1], [33, 1, 2, 1], [1, 256, 1, 1]):
        step(conversations, counts)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(RopeRule(64), id="half"),
        pytest.param(RopeRule(32), id="half-partial"),
        pytest.param(RopeRule(2), id="half-2"),
        pytest.param(RopeRule(64, interleaved=True), id="interleaved"),
        pytest.param(RopeRule(20, interleaved=True), id="interleaved-partial"),
        pytest.param(RopeRule(64, theta=500_000.0, scale=1.25), id="scaled"),
    ],
)
def test_rotary_embedding(isa: str, rng: np.random.Generator, rule: RopeRule) -> None:
    conversation = Conversation(rng, Shape(3, 1, 64), rule)
    for count in (5, 1, 300, 1):  # the tables grow
        step([conversation], [count])


def test_layers_of_a_cache_do_not_meet(isa: str, rng: np.random.Generator) -> None:
    shape, rule = Shape(2, 1, 16), RopeRule(16)
    first, second = (Conversation(rng, shape, rule, layer) for layer in (0, 1))
    second.cache = first.cache
    batch, rope = Batch(), build_rope(rule)
    for count in (3, 20):
        batch.set([(first.cache, first.cache.length, count)])
        for conversation in (first, second):
            part = conversation.random_rows(count)
            qkv, out = rows_of(part), Rows(count, 32)
            kernels.rope_store(qkv, batch, conversation.layer, rope, shape.heads)
            kernels.attention(qkv, batch, conversation.layer, shape.heads, 0.25, out)
            conversation.check(part, qkv.array, out.array)
        batch.commit()


# ---- the cache ----------------------------------------------------------------------------------


def attend_last(cache: KvCache, row: F32, position: int) -> F32:
    """Return the attention of one more row, without committing it."""
    batch, out = Batch(), Rows(1, 32)
    batch.set([(cache, position, 1)])
    qkv = rows_of(row)
    rope = build_rope(RopeRule(16))
    kernels.rope_store(qkv, batch, 0, rope, 2)
    kernels.attention(qkv, batch, 0, 2, 0.25, out)
    return out.array.copy()


def fill(cache: KvCache, rows: F32) -> None:
    batch = Batch()
    batch.set([(cache, cache.length, len(rows))])
    kernels.rope_store(rows_of(rows), batch, 0, build_rope(RopeRule(16)), 2)
    batch.commit()


@pytest.fixture
def rows(rng: np.random.Generator) -> F32:
    return rng.standard_normal((400, 64)).astype(np.float32)


def test_a_truncated_cache_is_as_if_never_longer(isa: str, rows: F32) -> None:
    cache, fresh = gqa_cache(1, 1, 16), gqa_cache(1, 1, 16)
    fill(cache, rows[:399])
    cache.truncate(130)
    fill(fresh, rows[:130])
    assert cache.length == fresh.length == 130
    want = attend_last(fresh, rows[399:], 130)
    np.testing.assert_array_equal(attend_last(cache, rows[399:], 130), want)


def test_rows_may_be_written_again(isa: str, rows: F32) -> None:
    """A step that failed is repeated from an earlier position than the end."""
    cache, fresh = gqa_cache(1, 1, 16), gqa_cache(1, 1, 16)
    fill(cache, rows[:100])
    batch = Batch()
    batch.set([(cache, 40, 30)])
    kernels.rope_store(rows_of(rows[200:230]), batch, 0, build_rope(RopeRule(16)), 2)
    batch.commit()
    assert cache.length == 70
    fill(fresh, rows[:40])
    fill(fresh, rows[200:230])
    want = attend_last(fresh, rows[399:], 70)
    np.testing.assert_array_equal(attend_last(cache, rows[399:], 70), want)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 100, 256, 257, 399])
def test_a_copied_prefix_is_as_if_computed(isa: str, rows: F32, length: int) -> None:
    cache, copy, fresh = gqa_cache(1, 1, 16), gqa_cache(1, 1, 16), gqa_cache(1, 1, 16)
    fill(cache, rows[:399])
    fill(copy, rows[5:300])  # what was there before is forgotten
    copy.copy_prefix(cache, length)
    assert copy.length == length
    if length:
        fill(fresh, rows[:length])
    want = attend_last(fresh, rows[399:], length)
    np.testing.assert_array_equal(attend_last(copy, rows[399:], length), want)


def test_room_comes_in_blocks_and_stays() -> None:
    cache = gqa_cache(3, 2, 32)
    assert (cache.length, cache.capacity, cache.nbytes) == (0, 0, 0)
    cache.reserve(1)
    assert cache.capacity == 256
    assert cache.nbytes >= 3 * 2 * 32 * 2 * 4 * 256
    cache.reserve(257)
    assert cache.capacity == 512
    cache.reserve(3)
    assert cache.capacity == 512
