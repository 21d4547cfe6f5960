"""Packing loses nothing: every kind gives its values back exactly, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine.kernels import Matrix
from colibri_engine.quant.e4m3 import E4M3
from tests.engine.kernels.reference import random_int_weights

SHAPES = [(1, 1), (1, 64), (15, 63), (16, 64), (17, 65), (33, 16), (48, 96), (70, 200), (130, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("group", [16, 32, 48, 256])
@pytest.mark.parametrize("with_mins", [False, True], ids=["zero", "mins"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bits", [4, 8])
def test_integer_weights_come_back_exactly(
    rng: np.random.Generator,
    shape: tuple[int, int],
    bits: int,
    group: int,
    with_mins: bool,
    dtype: type[np.floating],
) -> None:
    w = random_int_weights(rng, *shape, bits=bits, group=group, with_mins=with_mins, dtype=dtype)
    matrix = w.pack()
    assert matrix.kind == f"q{bits}"
    assert (matrix.num_outputs, matrix.num_inputs) == shape
    np.testing.assert_array_equal(matrix.unpack(), w.unpack())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["lowest", "highest"])
def test_every_code_and_zero_point_at_the_edges(bits: int, zero: str) -> None:
    codes = np.arange(2**bits, dtype=np.uint8).reshape(1, -1)
    scales = np.ones((1, -(-codes.size // 16)), np.float32)
    point = 0 if zero == "lowest" else 2**bits - 1
    matrix = Matrix.from_codes(codes, scales, point, None, bits=bits, group=16)
    np.testing.assert_array_equal(matrix.unpack()[0], np.arange(2**bits) - point)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float_weights_come_back_exactly(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    values = rng.standard_normal(shape).astype(np.float32)
    wide = Matrix.from_float(values)
    assert wide.kind == "f32"
    np.testing.assert_array_equal(wide.unpack(), values)
    half = Matrix.from_float(values.astype(np.float16))
    assert half.kind == "f16"
    np.testing.assert_array_equal(half.unpack(), values.astype(np.float16).astype(np.float32))
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    brain = Matrix.from_float(bits, bf16=True)
    assert brain.kind == "bf16"
    np.testing.assert_array_equal(brain.unpack(), (bits.astype(np.uint32) << 16).view(np.float32))


def test_every_half_and_bfloat16_pattern() -> None:
    patterns = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    half = Matrix.from_float(patterns.view(np.float16)).unpack()
    np.testing.assert_array_equal(half, patterns.view(np.float16).astype(np.float32))
    brain = Matrix.from_float(patterns, bf16=True).unpack()
    expected = (patterns.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(brain.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("group", [16, 48, 256])
def test_fp8_weights_come_back_exactly(
    rng: np.random.Generator, shape: tuple[int, int], group: int
) -> None:
    codes = rng.integers(0, 127, shape, dtype=np.uint8) | rng.choice([0, 128], shape)
    codes = codes.astype(np.uint8)
    scales = rng.random((shape[0], -(-shape[1] // group)), np.float32)
    matrix = Matrix.from_fp8(codes, scales, group=group)
    assert matrix.kind == "fp8"
    assert (matrix.num_outputs, matrix.num_inputs) == shape
    per_input = np.repeat(scales, group, axis=1)[:, : shape[1]]
    np.testing.assert_array_equal(matrix.unpack(), E4M3[codes] * per_input)


def test_every_fp8_code_at_the_edges_of_scales() -> None:
    codes = np.delete(np.arange(256), [127, 255]).astype(np.uint8)[None]
    for scale in (0.0, 2.0**-149, 2.0**-120, 1e-30, 1.0, 2.0**110):
        scales = np.full((1, 1), scale, np.float32)
        values = Matrix.from_fp8(codes, scales, group=256).unpack()
        np.testing.assert_array_equal(values, E4M3[codes] * scales)


def test_any_rows_can_be_unpacked_alone(rng: np.random.Generator) -> None:
    w = random_int_weights(rng, 50, 80, with_mins=True)
    matrix, expected = w.pack(), w.unpack()
    for first in (0, 1, 15, 16, 49, 50):
        np.testing.assert_array_equal(matrix.unpack(first), expected[first:])
        count = min(3, 50 - first)
        np.testing.assert_array_equal(matrix.unpack(first, count), expected[first : first + count])
    assert matrix.unpack(7, 0).shape == (0, 80)


def test_packed_size_is_that_of_the_numbers(rng: np.random.Generator) -> None:
    assert random_int_weights(rng, 64, 256).pack().nbytes == 64 * 256 // 2 + 64 * 8 * 2
    eight = random_int_weights(rng, 64, 256, bits=8, with_mins=True, dtype=np.float32)
    assert eight.pack().nbytes == 64 * 256 + 2 * 64 * 8 * 4
    assert Matrix.from_float(np.zeros((64, 256), np.float16)).nbytes == 64 * 256 * 2
    fp8 = Matrix.from_fp8(np.zeros((64, 256), np.uint8), np.zeros((64, 2), np.float32), group=128)
    assert fp8.nbytes == 64 * 256 + 64 * 2 * 4


def test_a_packed_matrix_does_not_follow_its_source(rng: np.random.Generator) -> None:
    w = random_int_weights(rng, 20, 64)
    matrix, before = w.pack(), w.unpack()
    w.codes[:] = 0
    w.scales[:] = 0
    np.testing.assert_array_equal(matrix.unpack(), before)
