"""Latent attention, the indexer's choice, and the operators around them, against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import (
    Batch,
    HeadLinear,
    IndexHeads,
    KvCache,
    LatentHeads,
    LayerLayout,
    Matrix,
    Rope,
    Rows,
    Selection,
    Vector,
)
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import EPS, RopeRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engine.kernels.reference import F32

SCALE = 0.2


@dataclass(frozen=True)
class Shape:
    """Heads, channels of a value, channels that turn, channels of a query head that do not."""

    heads: int
    value_dim: int
    rope_dim: int
    key_dim: int

    @property
    def latent_dim(self) -> int:
        """Channels of a cached row."""
        return self.value_dim + self.rope_dim


SHAPES = [Shape(1, 16, 4, 8), Shape(5, 33, 8, 7), Shape(17, 40, 2, 3), Shape(70, 24, 8, 16)]


class Past:
    """One sequence: latents in a cache and in numpy.

    Args:
        rng: Source of the rows.
        shape: Sizes.
        length: Positions.
    """

    def __init__(self, rng: np.random.Generator, shape: Shape, length: int) -> None:
        self.shape, self.rng = shape, rng
        self.cache = KvCache([LayerLayout(latent_dim=3), LayerLayout(latent_dim=shape.latent_dim)])
        self.latents = self._draw(length, shape.latent_dim)
        batch = Batch()
        batch.set([(self.cache, 0, length)])
        kernels.store_latents(rows_of(self.latents), 0, batch, 1)
        batch.commit()

    def _draw(self, rows: int, width: int) -> F32:
        return self.rng.standard_normal((rows, width)).astype(np.float32)

    def queries(self, count: int) -> tuple[F32, F32]:
        """Return absorbed queries (count, heads * value_dim) and whole ones, side by side."""
        shape = self.shape
        absorbed = self._draw(count, shape.heads * shape.value_dim)
        return absorbed, self._draw(count, shape.heads * (shape.key_dim + shape.rope_dim))

    def attend(
        self, queries: tuple[F32, F32], start: int, selection: Selection | None = None
    ) -> F32:
        """Return the attended latents of rows from position `start` on."""
        absorbed, q = rows_of(queries[0]), rows_of(queries[1])
        batch = Batch()
        batch.set([(self.cache, start, len(queries[0]))])
        kernels.latent_attention(
            absorbed, q, batch, 1, LatentHeads(self.shape.heads, SCALE), selection
        )
        return absorbed.array.copy()

    def check(self, queries: tuple[F32, F32], start: int, got: F32, kept: np.ndarray) -> None:
        """Compare with float64; `kept` (rows, length) tells which positions a row sees."""
        shape, count = self.shape, len(got)
        turned = queries[1].reshape(count, shape.heads, -1)[:, :, shape.key_dim :]
        full = np.concatenate([queries[0].reshape(count, shape.heads, -1), turned], axis=2)
        exact = full.astype(np.float64)
        scores = SCALE * np.einsum("nhd,td->nht", exact, self.latents)
        sizes = SCALE * np.einsum("nhd,td->nht", np.abs(exact), np.abs(self.latents))
        scores[~np.broadcast_to(kept[:, None, :], scores.shape)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        values = self.latents[:, : shape.value_dim]
        want = np.einsum("nht,tc->nhc", weights, values).reshape(count, -1)
        size = np.einsum("nht,tc->nhc", weights, np.abs(values)).reshape(count, -1)
        slack = 2 * sizes.max() * (shape.latent_dim + 4) + len(self.latents) + 16
        assert (np.abs(got - want) <= EPS * slack * size).all()


def causal(start: int, count: int, length: int) -> np.ndarray:
    return np.arange(length)[None, :] <= start + np.arange(count)[:, None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("length", "start", "count"), [(1, 0, 1), (70, 0, 70), (1200, 1190, 10)])
def test_latent_attention(
    isa: str, rng: np.random.Generator, shape: Shape, length: int, start: int, count: int
) -> None:
    past = Past(rng, shape, length)
    queries = past.queries(count)
    got = past.attend(queries, start)
    past.check(queries, start, got, causal(start, count, length))


@pytest.fixture
def past(rng: np.random.Generator) -> Past:
    return Past(rng, Shape(20, 40, 8, 5), 1300)


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = kernels.num_threads()
    kernels.set_num_threads(request.param)
    yield request.param
    kernels.set_num_threads(before)


def test_rows_and_threads_change_no_bit_of_it(past: Past, threads: int) -> None:
    queries = past.queries(40)
    whole = past.attend(queries, 1260)
    kernels.set_num_threads(1)
    for row in (0, 7, 39):
        one = (queries[0][row : row + 1], queries[1][row : row + 1])
        np.testing.assert_array_equal(past.attend(one, 1260 + row)[0], whole[row])
    kernels.set_num_threads(threads)
    for row in (0, 39):  # one row is split in segments where there are threads for them
        one = (queries[0][row : row + 1], queries[1][row : row + 1])
        np.testing.assert_array_equal(past.attend(one, 1260 + row)[0], whole[row])


# ---- the indexer --------------------------------------------------------------------------------


class Index:
    """Index keys of one sequence, and a row's heads.

    Args:
        rng: Source of the rows.
        length: Positions.
    """

    HEADS, DIM, OFFSET = 6, 20, 3

    def __init__(self, rng: np.random.Generator, length: int) -> None:
        self.cache = KvCache([LayerLayout(latent_dim=48, index_dim=self.DIM)])
        self.keys = rng.standard_normal((length, self.DIM)).astype(np.float32)
        self.q = rng.standard_normal((length, self.HEADS * self.DIM)).astype(np.float32)
        self.weights = rng.standard_normal((length, self.OFFSET + self.HEADS)).astype(np.float32)
        batch = Batch()
        batch.set([(self.cache, 0, length)])
        kernels.store_index_keys(rows_of(np.pad(self.keys, ((0, 0), (2, 1)))), 2, batch, 0)
        batch.commit()

    def select(self, start: int, count: int, selection: Selection) -> None:
        batch = Batch()
        batch.set([(self.cache, start, count)])
        rows = slice(start, start + count)
        heads = IndexHeads(self.HEADS, self.OFFSET, 0.25)
        q, weights = rows_of(self.q[rows]), rows_of(self.weights[rows])
        kernels.index_select(q, weights, batch, 0, heads, selection)

    def expected(self, position: int, topk: int) -> np.ndarray:
        """Return the positions a full float64 sort chooses."""
        q = self.q[position].reshape(self.HEADS, self.DIM).astype(np.float64)
        shares = np.maximum(q @ self.keys[: position + 1].T, 0)
        scores = self.weights[position, self.OFFSET :] @ shares
        return np.sort(np.argsort(-scores, kind="stable")[:topk])


@pytest.mark.parametrize("topk", [1, 8, 64])
def test_the_positions_with_the_largest_scores_are_chosen(
    isa: str, rng: np.random.Generator, topk: int
) -> None:
    index, selection = Index(rng, 100), Selection(topk)
    index.select(0, 100, selection)
    assert selection.rows == 100
    for position in range(100):
        got = selection.positions(position)
        if position < topk:
            assert got is None
        else:
            np.testing.assert_array_equal(got, index.expected(position, topk))


def test_rows_and_threads_change_no_choice(rng: np.random.Generator, threads: int) -> None:
    index, whole, one = Index(rng, 9000), Selection(50), Selection(50)
    index.select(8900, 100, whole)
    for row in (0, 50, 99):  # one row's positions are shared among the threads
        index.select(8900 + row, 1, one)
        np.testing.assert_array_equal(one.positions(0), whole.positions(row))
        np.testing.assert_array_equal(one.positions(0), index.expected(8900 + row, 50))


def test_chosen_positions_are_attended_and_no_others(isa: str, rng: np.random.Generator) -> None:
    past, index, selection = Past(rng, SHAPES[1], 1200), Index(rng, 1200), Selection(700)
    queries = past.queries(600)
    index.select(600, 600, selection)
    kept = causal(600, 600, 1200)
    for row in range(600):
        chosen = selection.positions(row)
        if chosen is not None:
            kept[row] = np.isin(np.arange(1200), chosen)
    assert not kept.all()
    past.check(queries, 600, past.attend(queries, 600, selection), kept)


def test_choosing_everything_gives_the_bits_of_choosing_nothing(
    isa: str, rng: np.random.Generator
) -> None:
    past, index = Past(rng, SHAPES[1], 700), Index(rng, 700)
    everything = Selection(700, always_lists=True)
    index.select(600, 100, everything)
    np.testing.assert_array_equal(everything.positions(0), np.arange(601))
    queries = past.queries(100)
    dense = past.attend(queries, 600)
    np.testing.assert_array_equal(past.attend(queries, 600, everything), dense)


def test_some_rows_of_a_selection_can_be_kept(rng: np.random.Generator) -> None:
    index, selection = Index(rng, 60), Selection(55)
    index.select(50, 10, selection)
    before = [selection.positions(row) for row in range(10)]
    selection.keep([2, 6, 9])
    assert selection.rows == 3
    assert selection.positions(0) is None
    np.testing.assert_array_equal(selection.positions(1), before[6])
    np.testing.assert_array_equal(selection.positions(2), before[9])
    for rows in ([3], [-1], [1, 1], [2, 0]):
        with pytest.raises(ValueError, match="ascend"):
            selection.keep(rows)


def test_a_selection_can_be_reset_to_everything(rng: np.random.Generator) -> None:
    index, selection = Index(rng, 60), Selection(5)
    index.select(50, 10, selection)
    assert selection.positions(3) is not None
    selection.reset(4)
    assert (selection.rows, selection.positions(3)) == (4, None)


# ---- operators around them ----------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_anywhere_in_a_row_turn(
    isa: str, rng: np.random.Generator, interleaved: bool
) -> None:
    rule = RopeRule(6, interleaved=interleaved)
    rope = Rope(rule.rotated, rule.inv_freq, rule.scale, rule.interleaved)
    before = rng.standard_normal((5, 40)).astype(np.float32)
    x, batch = rows_of(before), Batch()
    batch.set([(KvCache([LayerLayout(latent_dim=1)]), 0, 5)])
    kernels.rotate(x, batch, rope, 3, 3, 11)  # columns 3..8, 14..19, 25..30
    want = before.copy()
    for offset in (3, 14, 25):
        part = before[:, None, offset : offset + 6]
        want[:, offset : offset + 6] = rule.rotate(part, np.arange(5))[:, 0]
    bound = 2 * EPS * rule.scale * np.abs(before).max()
    assert np.abs(x.array - want).max() <= bound
    untouched = np.ones(40, bool)
    for offset in (3, 14, 25):
        untouched[offset : offset + 6] = False
    np.testing.assert_array_equal(x.array[:, untouched], before[:, untouched])


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
def test_layer_norm_of_some_columns(rng: np.random.Generator, size: float) -> None:
    before = (size * rng.standard_normal((4, 30)) + size).astype(np.float32)
    weight, bias = (rng.standard_normal(16).astype(np.float32) for _ in range(2))
    x = rows_of(before)
    kernels.layer_norm(x, 9, Vector(weight), Vector(bias), 1e-6)
    part = before[:, 9:25].astype(np.float64)
    normed = (part - part.mean(1, keepdims=True)) / np.sqrt(part.var(1, keepdims=True) + 1e-6)
    want = before.copy()
    want[:, 9:25] = normed * weight + bias
    np.testing.assert_allclose(x.array, want, rtol=EPS, atol=1e-12)
    np.testing.assert_array_equal(x.array[:, :9], before[:, :9])


HEADS, OUTPUTS, INPUTS = 3, 40, 24


@pytest.mark.parametrize("rows", [1, 7, 70])
@pytest.mark.parametrize("numerics", ["default", "float"])
def test_a_matrix_for_every_head(
    isa: str, rng: np.random.Generator, rows: int, numerics: str
) -> None:
    weights = rng.standard_normal((HEADS, OUTPUTS, INPUTS)).astype(np.float32)
    layer = HeadLinear([Matrix.from_float(w) for w in weights], numerics=numerics)
    x = rng.standard_normal((rows, HEADS * 30)).astype(np.float32)
    out = Rows(rows, HEADS * OUTPUTS)
    kernels.head_linear(rows_of(x), layer, out, 4)
    used = x.reshape(rows, HEADS, 30)[:, :, 4:28].astype(np.float64)
    want = np.einsum("hoi,nhi->nho", weights, used).reshape(rows, -1)
    size = np.einsum("hoi,nhi->nho", np.abs(weights), np.abs(used)).reshape(rows, -1)
    assert (np.abs(out.array - want) <= INPUTS * EPS * size).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("numerics", ["default", "float"])
def test_scales_at_the_inputs(isa: str, rng: np.random.Generator, bits: int, numerics: str) -> None:
    zero = 1 << (bits - 1)
    codes = rng.integers(0, 2 * zero, (HEADS, OUTPUTS, INPUTS), dtype=np.uint8)
    scales = (rng.uniform(0.5, 1.0, (HEADS, 3, INPUTS)) / zero).astype(np.float32)
    ones = np.ones((OUTPUTS, 1), np.float16)
    heads = [Matrix.from_codes(c, ones, zero, None, bits=bits, group=64) for c in codes]
    layer = HeadLinear(heads, scales, 16, numerics)
    x = rng.standard_normal((5, HEADS * INPUTS)).astype(np.float32)
    out = Rows(5, HEADS * OUTPUTS)
    kernels.head_linear(rows_of(x), layer, out)
    per_output = np.repeat(scales, 16, axis=1)[:, :OUTPUTS]
    weights = (codes.astype(np.float64) - zero) * per_output
    parts = x.reshape(5, HEADS, INPUTS).astype(np.float64)
    want = np.einsum("hoi,nhi->nho", weights, parts).reshape(5, -1)
    size = np.einsum("hoi,nhi->nho", np.abs(weights), np.abs(parts)).reshape(5, -1)
    # 16-bit activations are off by at most half a step, 2^-15 of their group's largest.
    step = 0.0 if numerics == "float" else np.abs(parts).max() * 2.0**-15 * INPUTS
    assert (np.abs(out.array - want) <= INPUTS * EPS * size + step).all()


def test_rows_change_no_bit_of_a_product_by_heads(isa: str, rng: np.random.Generator) -> None:
    codes = rng.integers(0, 16, (HEADS, OUTPUTS, INPUTS), dtype=np.uint8)
    scales = rng.standard_normal((HEADS, 1, INPUTS)).astype(np.float32)
    ones = np.ones((OUTPUTS, 1), np.float16)
    heads = [Matrix.from_codes(c, ones, 8, None, bits=4, group=64) for c in codes]
    layer = HeadLinear(heads, scales, 48)
    x = rng.standard_normal((150, HEADS * INPUTS)).astype(np.float32)
    whole, one = Rows(150, HEADS * OUTPUTS), Rows(1, HEADS * OUTPUTS)
    kernels.head_linear(rows_of(x), layer, whole)
    for row in (0, 63, 64, 149):
        kernels.head_linear(rows_of(x[row : row + 1]), layer, one)
        np.testing.assert_array_equal(one.array[0], whole.array[row])
