"""Gated blocks and mixtures are exactly what their steps give one by one."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Choices, Expert, ExpertTable, Linear, Matrix, Router, Rows
from tests.engine.kernels.conftest import apply, rows_of
from tests.engine.kernels.reference import (
    F32,
    clamped_unit,
    exact_weighted_sum,
    linear,
    random_int_weights,
    silu,
)

NUMERICS = ["default", "fast", "float"]
C, F, E = 96, 80, 7


def random_expert(rng: np.random.Generator, numerics: str, *, kind: str = "q4") -> Expert:
    if kind == "f16":
        gate, up, down = (
            Matrix.from_float((rng.standard_normal(shape) / 8).astype(np.float16))
            for shape in ((F, C), (F, C), (C, F))
        )
    else:
        gate = random_int_weights(rng, F, C).pack()
        up = random_int_weights(rng, F, C, bits=8).pack()
        down = random_int_weights(rng, C, F, with_mins=True).pack()
    return Expert(Linear([gate, up], None, numerics), Linear([down], None, numerics))


def run_expert(expert: Expert, x: F32) -> F32:
    out = Rows(max(1, len(x)), C)
    kernels.mlp(rows_of(x), expert, out, add=False)
    return out.array.copy()


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_a_gated_block_is_its_three_steps(
    isa: str, rng: np.random.Generator, numerics: str, rows: int
) -> None:
    gate = random_int_weights(rng, F, C).pack()
    up = random_int_weights(rng, F, C, bits=8).pack()
    gate_up = Linear([gate, up], rng.standard_normal(2 * F).astype(np.float32), numerics)
    down = Linear([random_int_weights(rng, C, F).pack()], None, numerics)
    x = rng.standard_normal((rows, C)).astype(np.float32)
    hidden = Rows(rows, F)
    kernels.swiglu(rows_of(apply(gate_up, x)), hidden)
    expected = apply(down, hidden.array)
    expert = Expert(gate_up, down)
    np.testing.assert_array_equal(run_expert(expert, x), expected)
    held = rng.standard_normal((rows, C)).astype(np.float32)
    out = rows_of(held)
    kernels.mlp(rows_of(x), expert, out)
    np.testing.assert_array_equal(out.array, held + expected)


def test_a_gated_block_against_float64(isa: str, rng: np.random.Generator) -> None:
    gate, up = (random_int_weights(rng, F, C) for _ in range(2))
    down = random_int_weights(rng, C, F)
    expert = Expert(
        Linear([gate.pack(), up.pack()], None, "float"), Linear([down.pack()], None, "float")
    )
    x = rng.standard_normal((6, C)).astype(np.float32)
    hidden = silu(linear(x, gate.unpack())[0]) * linear(x, up.unpack())[0]
    expected = hidden @ down.unpack().T.astype(np.float64)
    np.testing.assert_allclose(run_expert(expert, x), expected, atol=2e-6, rtol=0)


CLAMP = (1.5, 1.702)


def clamped_expert(rng: np.random.Generator, numerics: str) -> Expert:
    def layer(outputs: int, inputs: int) -> Linear:
        bias = rng.standard_normal(outputs).astype(np.float32)
        return Linear([random_int_weights(rng, outputs, inputs).pack()], bias, numerics)

    return Expert(layer(2 * F, C), layer(C, F), CLAMP)


def test_a_clamped_block_with_biases_against_float64(isa: str, rng: np.random.Generator) -> None:
    gate_up, down = random_int_weights(rng, 2 * F, C), random_int_weights(rng, C, F)
    gate_up_bias = rng.standard_normal(2 * F).astype(np.float32)
    down_bias = rng.standard_normal(C).astype(np.float32)
    expert = Expert(
        Linear([gate_up.pack()], gate_up_bias, "float"),
        Linear([down.pack()], down_bias, "float"),
        CLAMP,
    )
    x = (3 * rng.standard_normal((6, C))).astype(np.float32)
    both = linear(x, gate_up.unpack())[0] + gate_up_bias
    assert (both[:, :F] > CLAMP[0]).any()
    assert (np.abs(both[:, F:]) > CLAMP[0]).any()
    hidden = clamped_unit(both[:, :F], both[:, F:], *CLAMP)
    expected = hidden @ down.unpack().T.astype(np.float64) + down_bias
    np.testing.assert_allclose(run_expert(expert, x), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_clamped_mixture_is_the_sum_of_its_experts(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    experts = [clamped_expert(rng, numerics) for _ in range(E)]
    x = rng.standard_normal((9, C)).astype(np.float32)
    start = rng.standard_normal((9, C)).astype(np.float32)
    choices = random_choices(rng, 9, 3)
    out = rows_of(start)
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    np.testing.assert_array_equal(out.array, sum_of_experts(experts, x, choices, start))


def random_choices(
    rng: np.random.Generator, rows: int, num_choices: int, num_experts: int = E
) -> Choices:
    """Return choices whose ids and weights are random, as if a router had made them."""
    choices = Choices()
    rule = Router(num_choices, scoring="sigmoid", normalize=True, scale=1.0, bias=None)
    logits = rng.standard_normal((rows, num_experts)).astype(np.float32)
    kernels.route(rows_of(logits), rule, choices)
    for row in choices.ids:
        row[:] = rng.permutation(num_experts)[:num_choices]
    choices.weights[:] = rng.standard_normal((rows, num_choices))
    return choices


def sum_of_experts(experts: list[Expert], x: F32, choices: Choices, start: F32) -> F32:
    """Return start + each row's weighted experts, every expert run on one row at a time."""
    out = start.copy()
    for row in range(len(x)):
        parts = [run_expert(experts[e], x[row : row + 1])[0] for e in choices.ids[row]]
        out[row] = exact_weighted_sum(start[row], choices.weights[row], parts)
    return out


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize(("rows", "num_choices"), [(1, 1), (1, 7), (3, 2), (40, 3), (65, 7)])
def test_a_mixture_is_the_sum_of_its_experts(
    isa: str, rng: np.random.Generator, numerics: str, rows: int, num_choices: int
) -> None:
    experts = [random_expert(rng, numerics) for _ in range(E)]
    x = rng.standard_normal((rows, C)).astype(np.float32)
    start = rng.standard_normal((rows, C)).astype(np.float32)
    choices = random_choices(rng, rows, num_choices)
    out = rows_of(start)
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    np.testing.assert_array_equal(out.array, sum_of_experts(experts, x, choices, start))


@pytest.mark.parametrize("numerics", NUMERICS)
def test_experts_may_differ_in_format(isa: str, rng: np.random.Generator, numerics: str) -> None:
    experts = [random_expert(rng, numerics, kind="f16" if e % 2 else "q4") for e in range(4)]
    x = rng.standard_normal((9, C)).astype(np.float32)
    start = np.zeros((9, C), np.float32)
    choices = random_choices(rng, 9, 3, num_experts=4)
    out = rows_of(start)
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    np.testing.assert_array_equal(out.array, sum_of_experts(experts, x, choices, start))


def test_all_rows_may_choose_one_expert(isa: str, rng: np.random.Generator) -> None:
    experts = [random_expert(rng, "default") for _ in range(E)]
    x = rng.standard_normal((33, C)).astype(np.float32)
    choices = random_choices(rng, 33, 1)
    choices.ids[:] = 4
    choices.weights[:] = 1
    out = rows_of(np.zeros((33, C)))
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    np.testing.assert_array_equal(out.array, run_expert(experts[4], x))


def test_an_expert_may_be_chosen_twice_by_a_row(isa: str, rng: np.random.Generator) -> None:
    experts = [random_expert(rng, "default") for _ in range(E)]
    x = rng.standard_normal((2, C)).astype(np.float32)
    choices = random_choices(rng, 2, 3)
    choices.ids[:] = [[1, 1, 2], [1, 2, 1]]
    start = np.zeros((2, C), np.float32)
    out = rows_of(start)
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    np.testing.assert_array_equal(out.array, sum_of_experts(experts, x, choices, start))


@pytest.mark.parametrize("numerics", NUMERICS)
def test_company_changes_no_row(isa: str, rng: np.random.Generator, numerics: str) -> None:
    """However the rows of a step are grouped by expert, each row keeps its bits."""
    table = ExpertTable([random_expert(rng, numerics) for _ in range(E)])
    x = rng.standard_normal((50, C)).astype(np.float32)
    choices = random_choices(rng, 50, 3)
    ids, weights = choices.ids.copy(), choices.weights.copy()
    out = rows_of(np.zeros((50, C)))
    kernels.moe(rows_of(x), table, choices, out)
    for part in (slice(0, 1), slice(3, 11), slice(20, 50)):
        some = random_choices(rng, len(x[part]), 3)
        some.ids[:], some.weights[:] = ids[part], weights[part]
        alone = rows_of(np.zeros_like(x[part]))
        kernels.moe(rows_of(x[part]), table, some, alone)
        np.testing.assert_array_equal(alone.array, out.array[part])


def test_no_rows_are_no_work(isa: str, rng: np.random.Generator) -> None:
    expert = random_expert(rng, "default")
    out = Rows(2, C)
    kernels.mlp(Rows(2, C), expert, out, add=False)
    assert out.rows == 0
    kernels.moe(Rows(2, C), ExpertTable([expert]), random_choices(rng, 0, 1, 1), out)
    assert out.rows == 0
