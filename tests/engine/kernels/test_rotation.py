"""Layers over rotated matrices rotate their input, to the bit as the definition does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Expert, ExpertTable, Linear, Matrix, Rows
from colibri_engine.quant.rotation import rotate, rotate_back
from tests.engine.kernels.conftest import apply, rows_of
from tests.engine.kernels.reference import IntWeights, random_int_weights
from tests.engine.kernels.test_moe import (
    C,
    E,
    F,
    random_choices,
    random_expert,
    run_expert,
    sum_of_experts,
)

NUMERICS = ["default", "fast", "float"]


def pack_rotated(w: IntWeights) -> Matrix:
    return Matrix.from_codes(
        w.codes, w.scales, w.zero, w.mins, bits=w.bits, group=w.group, rotated=True
    )


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("width", [16, 96, 320, 4096 + 2048])
def test_a_layer_is_the_plain_one_on_rotated_input(
    isa: str, rng: np.random.Generator, numerics: str, width: int
) -> None:
    weights = random_int_weights(rng, 20, width, bits=8)
    x = rng.standard_normal((3, width)).astype(np.float32)
    found = apply(Linear([pack_rotated(weights)], None, numerics), x)
    wanted = apply(Linear([weights.pack()], None, numerics), rotate(x))
    np.testing.assert_array_equal(found, wanted)


def test_the_plain_matrix_is_what_unpacking_gives(rng: np.random.Generator) -> None:
    weights = random_int_weights(rng, 18, 96)
    matrix = pack_rotated(weights)
    assert matrix.rotated
    assert not weights.pack().rotated
    np.testing.assert_array_equal(matrix.unpack(), rotate_back(weights.unpack()))
    out = Rows(1, 96)
    kernels.embed(matrix, np.array([17], np.int32), out)
    np.testing.assert_array_equal(out.array, matrix.unpack(17, 1))


def test_products_are_those_of_the_plain_matrix(isa: str, rng: np.random.Generator) -> None:
    matrix = pack_rotated(random_int_weights(rng, 20, 192))
    x = rng.standard_normal((5, 192)).astype(np.float32)
    found = apply(Linear([matrix], None, "float"), x)
    wanted = x.astype(np.float64) @ matrix.unpack().T.astype(np.float64)
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())


def rotated_expert(rng: np.random.Generator, numerics: str, parts: str) -> tuple[Expert, Expert]:
    """Return an expert with some rotated parts and the same one without rotation."""
    experts = []
    weights = [random_int_weights(rng, *shape) for shape in ((F, C), (F, C), (C, F))]
    for inside in (True, False):
        gate, up, down = (
            pack_rotated(w) if inside and part in parts else w.pack()
            for w, part in zip(weights, "ggd", strict=True)
        )
        experts.append(Expert(Linear([gate, up], None, numerics), Linear([down], None, numerics)))
    return experts[0], experts[1]


@pytest.mark.parametrize("numerics", NUMERICS)
def test_the_input_of_an_expert_is_rotated(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    expert, plain = rotated_expert(rng, numerics, "g")
    x = rng.standard_normal((6, C)).astype(np.float32)
    np.testing.assert_array_equal(run_expert(expert, x), run_expert(plain, rotate(x)))


@pytest.mark.parametrize("numerics", NUMERICS)
def test_what_goes_into_the_last_product_is_rotated(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    gate_up = Linear([random_int_weights(rng, 2 * F, C).pack()], None, numerics)
    weights = random_int_weights(rng, C, F)
    x = rng.standard_normal((6, C)).astype(np.float32)
    hidden = Rows(6, F)
    kernels.swiglu(rows_of(apply(gate_up, x)), hidden)
    wanted = apply(Linear([weights.pack()], None, numerics), rotate(hidden.array))
    expert = Expert(gate_up, Linear([pack_rotated(weights)], None, numerics))
    np.testing.assert_array_equal(run_expert(expert, x), wanted)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("parts", ["g", "d", "gd"])
def test_a_mixture_may_hold_rotated_and_plain_experts(
    isa: str, rng: np.random.Generator, numerics: str, parts: str
) -> None:
    experts = [
        rotated_expert(rng, numerics, parts)[0] if e % 2 else random_expert(rng, numerics)
        for e in range(E)
    ]
    x = rng.standard_normal((9, C)).astype(np.float32)
    choices = random_choices(rng, 9, 3)
    out = rows_of(np.zeros((9, C), np.float32))
    kernels.moe(rows_of(x), ExpertTable(experts), choices, out)
    start = np.zeros((9, C), np.float32)
    np.testing.assert_array_equal(out.array, sum_of_experts(experts, x, choices, start))


def test_parts_of_a_layer_agree_about_the_rotation(rng: np.random.Generator) -> None:
    weights = random_int_weights(rng, 16, 64)
    with pytest.raises(ValueError, match="only some parts of a linear layer are rotated"):
        Linear([weights.pack(), pack_rotated(weights)], None, "default")
    other = replace(weights, zero=None, mins=weights.scales)
    assert Linear([pack_rotated(other), pack_rotated(weights)], None, "fast").num_outputs == 32
