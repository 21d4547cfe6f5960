"""Operators on rows: embedding, norms, gated unit."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Matrix, Rows, Vector
from tests.engine.kernels import reference
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import EPS, random_int_weights

WIDTHS = [1, 3, 15, 16, 17, 31, 33, 51, 64, 576, 1536]


# ---- embedding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["q4", "q8", "f16", "f32"])
def test_embedding_gives_the_exact_rows(rng: np.random.Generator, kind: str) -> None:
    if kind.startswith("q"):
        table = random_int_weights(rng, 50, 70, bits=int(kind[1]), with_mins=True).pack()
    else:
        dtype = np.float16 if kind == "f16" else np.float32
        table = Matrix.from_float(rng.standard_normal((50, 70)).astype(dtype))
    ids = np.array([49, 0, 17, 17, 16, 15], np.int32)
    out = Rows(8, 70)
    kernels.embed(table, ids, out)
    np.testing.assert_array_equal(out.array, table.unpack()[ids])
    kernels.embed(table, ids[:0], out)
    assert out.rows == 0


# ---- norms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("magnitude", [1e-20, 1.0, 1e15])
def test_rms_norm(isa: str, rng: np.random.Generator, width: int, magnitude: float) -> None:
    x = (rng.standard_normal((5, width)) * magnitude).astype(np.float32)
    weight = rng.standard_normal(width).astype(np.float32)
    out = Rows(5, width)
    kernels.rms_norm(rows_of(x), Vector(weight), 1e-5, out)
    expected = reference.rms_norm(x, weight, 1e-5)
    # The factor, its product with x and that with the weight are rounded once each; an underflow
    # loses at most the least float, which the weight then scales.
    lost = np.finfo(np.float32).smallest_subnormal * (1 + np.abs(weight))
    assert (np.abs(out.array - expected) <= 2 * EPS * np.abs(expected) + lost).all()


def test_rms_norm_of_zeros_is_zero(isa: str) -> None:
    out = rows_of(np.ones((2, 33)))
    kernels.rms_norm(rows_of(np.zeros((2, 33))), Vector(np.ones(33, np.float32)), 1e-6, out)
    assert (out.array == 0).all()


def test_rms_norm_in_place(isa: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 50)).astype(np.float32)
    weight = Vector(rng.standard_normal(50).astype(np.float32))
    out, same = Rows(4, 50), rows_of(x)
    kernels.rms_norm(rows_of(x), weight, 1e-5, out)
    kernels.rms_norm(same, weight, 1e-5, same)
    np.testing.assert_array_equal(same.array, out.array)


@pytest.mark.parametrize("head_dim", [16, 33, 64])
def test_rms_norm_of_heads(isa: str, rng: np.random.Generator, head_dim: int) -> None:
    heads, offset = 3, 5
    x = rng.standard_normal((4, offset + heads * head_dim + 7)).astype(np.float32)
    weight = rng.standard_normal(head_dim).astype(np.float32)
    rows = rows_of(x)
    kernels.rms_norm_heads(rows, offset, heads, Vector(weight), 1e-5)
    end = offset + heads * head_dim
    expected = x.astype(np.float64)
    normed = reference.rms_norm(x[:, offset:end].reshape(4, heads, head_dim), weight, 1e-5)
    expected[:, offset:end] = normed.reshape(4, -1)
    assert (np.abs(rows.array - expected) <= 2 * EPS * np.abs(expected)).all()
    np.testing.assert_array_equal(rows.array[:, :offset], x[:, :offset])
    np.testing.assert_array_equal(rows.array[:, end:], x[:, end:])


def test_rms_norm_of_no_heads_changes_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 32)).astype(np.float32)
    rows = rows_of(x)
    kernels.rms_norm_heads(rows, 32, 0, Vector(np.ones(16, np.float32)), 1e-5)
    np.testing.assert_array_equal(rows.array, x)


# ---- gated unit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_swiglu(isa: str, rng: np.random.Generator, width: int) -> None:
    gate_up = (rng.standard_normal((4, 2 * width)) * 8).astype(np.float32)
    out = Rows(4, width)
    kernels.swiglu(rows_of(gate_up), out)
    gate, up = gate_up[:, :width], gate_up[:, width:]
    expected = reference.silu(gate) * up
    # exp within 2 ulp; sum, quotient and product are rounded once each.
    assert (np.abs(out.array - expected) <= 5 * EPS * np.abs(expected)).all()


def test_swiglu_at_the_ends_of_the_range(isa: str) -> None:
    gate = np.array([[-3e38, -1000, -89, -88, -0.0, 0.0, 88, 89, 1000, 3e38, np.inf]], np.float32)
    out = Rows(1, gate.shape[1])
    kernels.swiglu(rows_of(np.concatenate([gate, np.ones_like(gate)], axis=1)), out)
    expected = reference.silu(gate)
    assert (np.abs(out.array[0, :10] - expected[0, :10]) <= 1e-6 * np.abs(gate[0, :10])).all()
    assert out.array[0, 10] == np.inf
    assert np.abs(out.array[0, :3]).max() <= 1e-36
    gate[0, 0] = np.nan
    kernels.swiglu(rows_of(np.concatenate([gate, np.ones_like(gate)], axis=1)), out)
    assert np.isnan(out.array[0, 0])


def test_no_rows_are_no_work(isa: str) -> None:
    out = Rows(3, 16)
    out.rows = 3
    kernels.rms_norm(Rows(2, 16), Vector(np.ones(16, np.float32)), 1e-5, out)
    assert out.rows == 0
    out.rows = 3
    kernels.swiglu(Rows(2, 32), out)
    assert out.rows == 0
