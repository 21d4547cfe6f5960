"""Matrix products: within the error bound of float64, and to the bit as docs/numerics.md says."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Linear, Matrix, Rows
from tests.engine.kernels import reference
from tests.engine.kernels.conftest import apply, rows_of
from tests.engine.kernels.reference import EPS, IntWeights, fp8_matrix, random_int_weights

# One value, a vector, one more and one less, three vectors and a tail, real sizes.
SIZES = [(1, 1), (15, 16), (16, 63), (17, 64), (33, 65), (49, 100), (80, 200), (96, 576)]
ROWS = [1, 3, 9]


def activations(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Return rows of very different sizes, with zeros, among them a group of zeros only."""
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    x *= np.float32(10) ** rng.integers(-4, 5, (rows, 1)).astype(np.float32)
    x[rng.random((rows, inputs)) < 0.1] = 0
    x[-1, :64] = 0
    return x


# ---- float weights ------------------------------------------------------------------------------


def float_matrix(values: np.ndarray, kind: str) -> Matrix:
    if kind == "fp8":
        return fp8_matrix(values, group=32)
    if kind == "bf16":
        return Matrix.from_float((values.view(np.uint32) >> 16).astype(np.uint16), bf16=True)
    return Matrix.from_float(values.astype({"f32": np.float32, "f16": np.float16}[kind]))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "fp8"])
def test_float_weights_meet_the_definition(
    isa: str, rng: np.random.Generator, kind: str, size: tuple[int, int]
) -> None:
    matrix = float_matrix(rng.standard_normal(size).astype(np.float32), kind)
    w = matrix.unpack()
    for rows in ROWS:
        x = activations(rng, rows, size[1])
        got = apply(Linear([matrix]), x)
        wide, magnitudes = reference.linear(x, w)
        assert (np.abs(got - wide) <= size[1] * EPS * magnitudes).all()
        np.testing.assert_array_equal(got, reference.exact_float_linear(x, w))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("group", [16, 48, 128, 4096])
def test_fp8_weights_are_those_of_their_float32_product(
    isa: str, rng: np.random.Generator, size: tuple[int, int], group: int
) -> None:
    matrix = fp8_matrix(rng.standard_normal(size).astype(np.float32), group)
    product = Matrix.from_float(matrix.unpack())
    for rows in ROWS:
        x = activations(rng, rows, size[1])
        np.testing.assert_array_equal(apply(Linear([matrix]), x), apply(Linear([product]), x))


# ---- integer weights ----------------------------------------------------------------------------

INT_KINDS = [
    pytest.param({"bits": 4, "group": 32}, id="4-bit"),
    pytest.param({"bits": 4, "group": 32, "with_mins": True}, id="4-bit-mins"),
    pytest.param({"bits": 8, "group": 32}, id="8-bit"),
    pytest.param({"bits": 8, "group": 16, "dtype": np.float32}, id="8-bit-group-16"),
    pytest.param({"bits": 4, "group": 128}, id="4-bit-group-128"),
    pytest.param(
        {"bits": 8, "group": 48, "with_mins": True, "dtype": np.float32}, id="8-bit-mins-group-48"
    ),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", INT_KINDS)
def test_integer_weights_with_float_activations(
    isa: str, rng: np.random.Generator, kind: dict[str, object], size: tuple[int, int]
) -> None:
    w = random_int_weights(rng, *size, **kind)  # type: ignore[arg-type]
    layer = Linear([w.pack()], None, "float")
    for rows in ROWS:
        x = activations(rng, rows, size[1])
        got = apply(layer, x)
        wide, magnitudes = reference.linear(x, w.fused())
        assert (np.abs(got - wide) <= size[1] * EPS * magnitudes).all()
        np.testing.assert_array_equal(got, reference.exact_float_linear(x, w.fused()))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", INT_KINDS)
@pytest.mark.parametrize("numerics", ["default", "fast"])
def test_quantized_activations_meet_the_definition(
    isa: str,
    rng: np.random.Generator,
    kind: dict[str, object],
    size: tuple[int, int],
    numerics: str,
) -> None:
    w = random_int_weights(rng, *size, **kind)  # type: ignore[arg-type]
    layer = Linear([w.pack()], None, numerics)
    for rows in ROWS:
        x = activations(rng, rows, size[1])
        np.testing.assert_array_equal(
            apply(layer, x), reference.exact_int_linear(x, w, numerics), err_msg=f"{rows} rows"
        )


def identity_weights(inputs: int) -> IntWeights:
    """Return weights that give every input back, so that a product shows what was quantized."""
    codes = np.full((inputs, inputs), 128, np.uint8)
    np.fill_diagonal(codes, 129)
    return IntWeights(codes, np.ones((inputs, -(-inputs // 32)), np.float32), 128, None, 8, 32)


@pytest.mark.parametrize("numerics", ["default", "fast"])
def test_a_quantized_activation_is_its_nearest_step(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    x = activations(rng, 5, 192)
    values, scales = reference.quantize(x, numerics)
    got = apply(Linear([identity_weights(192).pack()], None, numerics), x)
    steps = np.repeat(scales, reference.ACTIVATION_GROUP[numerics], axis=1)
    np.testing.assert_array_equal(got, values.astype(np.float32) * steps)
    # Two roundings of the scale stand between the step and half a step.
    assert (np.abs(got - x) <= steps.astype(np.float64) * 0.5 + 2 * EPS * np.abs(x)).all()


@pytest.mark.parametrize("numerics", ["default", "fast"])
def test_the_largest_codes_and_activations_do_not_overflow(isa: str, numerics: str) -> None:
    for code, zero in ((255, 0), (0, 255)):
        codes = np.full((32, 512), code, np.uint8)
        w = IntWeights(codes, np.ones((32, 8), np.float32), zero, None, 8, 64)
        x = np.full((1, 512), 3, np.float32)
        for signed in (x, -x):
            got = apply(Linear([w.pack()], None, numerics), signed)
            np.testing.assert_array_equal(got, reference.exact_int_linear(signed, w, numerics))
            np.testing.assert_allclose(got, signed.sum() * (code - zero), rtol=1e-5)


@pytest.mark.parametrize("tiny", [1e-38, 1e-41, 1e-45])
@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_subnormal_activations_stay_bounded(isa: str, tiny: float, numerics: str) -> None:
    x = np.full((1, 64), tiny, np.float32)
    got = apply(Linear([identity_weights(64).pack()], None, numerics), x)
    assert (np.abs(got - x) <= np.abs(x)).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_a_broken_activation_stays_visible(
    isa: str, rng: np.random.Generator, broken: float, numerics: str
) -> None:
    w = random_int_weights(rng, 40, 128)
    x = rng.standard_normal((3, 128)).astype(np.float32)
    x[1, 70] = broken
    got = apply(Linear([w.pack()], None, numerics), x)
    assert not np.isfinite(got[1]).any()
    assert np.isfinite(got[[0, 2]]).all()


# ---- layers of several parts --------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_parts_of_different_kinds_are_joined(
    isa: str, rng: np.random.Generator, numerics: str
) -> None:
    parts = [
        random_int_weights(rng, 33, 96).pack(),
        float_matrix(rng.standard_normal((20, 96)).astype(np.float32), "bf16"),
        random_int_weights(rng, 70, 96, bits=8, with_mins=True).pack(),
    ]
    x = activations(rng, 4, 96)
    alone = [apply(Linear([part], None, numerics), x) for part in parts]
    joined = Linear(parts, None, numerics)
    assert (joined.num_outputs, joined.num_inputs) == (123, 96)
    np.testing.assert_array_equal(apply(joined, x), np.concatenate(alone, axis=1))


def test_a_matrix_may_serve_several_layers(rng: np.random.Generator) -> None:
    matrix = random_int_weights(rng, 20, 64).pack()
    x = activations(rng, 2, 64)
    twice = apply(Linear([matrix, matrix]), x)
    np.testing.assert_array_equal(twice[:, :20], twice[:, 20:])
    np.testing.assert_array_equal(twice[:, :20], apply(Linear([matrix]), x))


@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_bias_then_what_the_output_held(isa: str, rng: np.random.Generator, numerics: str) -> None:
    parts = [
        random_int_weights(rng, 20, 64, bits=8).pack(),
        float_matrix(rng.standard_normal((19, 64)).astype(np.float32), "f32"),
    ]
    bias = rng.standard_normal(39).astype(np.float32)
    held = rng.standard_normal((3, 39)).astype(np.float32)
    x = activations(rng, 3, 64)
    product = apply(Linear(parts, None, numerics), x)
    np.testing.assert_array_equal(apply(Linear(parts, bias, numerics), x), product + bias)
    out = rows_of(held)
    kernels.linear(rows_of(x), Linear(parts, bias, numerics), out, add=True)
    np.testing.assert_array_equal(out.array, held + (product + bias))


def test_no_rows_are_no_work(isa: str, rng: np.random.Generator) -> None:
    layer = Linear([random_int_weights(rng, 20, 64).pack()])
    out = Rows(4, 20)
    out.rows = 3
    kernels.linear(Rows(2, 64), layer, out)
    assert out.rows == 0


def test_rows_beyond_those_in_use_are_left_alone(isa: str, rng: np.random.Generator) -> None:
    layer = Linear([random_int_weights(rng, 33, 64).pack()])
    out = Rows(6, 33)
    out.rows = 6
    out.array[:] = 7
    kernels.linear(rows_of(activations(rng, 4, 64), capacity=5), layer, out)
    assert out.rows == 4
    out.rows = 6
    assert (out.array[4:] == 7).all()
    assert (out.array[:4] != 7).all()
