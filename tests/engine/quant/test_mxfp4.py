"""MXFP4 in its three layouts: every code, every scale, both nibble orders, odd widths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.layers.weights import pack
from colibri_engine.quant import mxfp4, nvfp4
from colibri_engine.quant.base import IntTensor, MatrixShape
from colibri_engine.quant.nibbles import join_pairs, split_pairs
from colibri_engine.quant.ue8m0 import UE8M0

VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def plain(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """The definition, in float64."""
    powers = np.ldexp(1.0, scales.astype(np.int64) - 127)
    values: npt.NDArray[np.float64] = np.array(VALUES)[codes]
    values *= np.repeat(powers, 32, axis=1)[:, : codes.shape[1]]
    return values


def test_every_code_of_a_checkpoint_block_has_its_value() -> None:
    codes = np.concatenate([np.arange(16), np.arange(16)[::-1]]).astype(np.uint8)
    block = codes[0::2] | codes[1::2] << np.uint8(4)  # even input in the low nibble
    stored = mxfp4.from_blocks(block.reshape(1, 1, 16), np.array([[127]], np.uint8))
    assert stored.unpack()[0].tolist() == VALUES + VALUES[::-1]


def test_a_gguf_block_has_its_first_half_in_the_low_nibbles() -> None:
    raw = np.array([[128] + [0x72] * 16], np.uint8)
    assert mxfp4.FORMAT.unpack(raw)[0].tolist() == [2.0] * 16 + [12.0] * 16


@pytest.mark.parametrize("scale", [0, 1, 2, 100, 127, 200, 251])
def test_scales_are_exact_powers_of_two(scale: int) -> None:
    rng = np.random.default_rng(scale)
    codes = rng.integers(0, 16, (3, 64), dtype=np.uint8)
    scales = np.full((3, 2), scale, np.uint8)
    found = mxfp4.from_blocks(join_pairs(codes).reshape(3, 2, 16), scales).unpack()
    np.testing.assert_array_equal(found.astype(np.float64), plain(codes, scales))


@pytest.mark.parametrize("num_inputs", [1, 31, 32, 33, 70])
def test_plain_rows_may_end_inside_a_block_and_a_byte(num_inputs: int) -> None:
    rng = np.random.default_rng(num_inputs)
    codes = rng.integers(0, 16, (5, num_inputs), dtype=np.uint8)
    scales = rng.integers(120, 130, (5, -(-num_inputs // 32)), dtype=np.uint8)
    stored = mxfp4.from_rows(join_pairs(codes), scales, num_inputs)
    assert stored.shape == (5, num_inputs)
    np.testing.assert_array_equal(stored.unpack(), plain(codes, scales))


def test_a_scale_that_is_not_a_number_stays_none() -> None:
    stored = mxfp4.from_blocks(np.zeros((1, 1, 16), np.uint8), np.array([[255]], np.uint8))
    assert not stored.is_finite
    assert np.isnan(stored.scale_values).all()
    assert np.isnan(stored.unpack()).any()
    assert UE8M0[127] == 1
    assert np.isnan(UE8M0[255])
    assert np.isfinite(UE8M0[:255]).all()


def draw(num_outputs: int, num_inputs: int) -> IntTensor:
    rng = np.random.default_rng(num_inputs)
    packed = rng.integers(0, 256, (num_outputs, -(-num_inputs // 2)), dtype=np.uint8)
    scales = rng.integers(0, 240, (num_outputs, -(-num_inputs // 32)), dtype=np.uint8)
    return mxfp4.from_rows(packed, scales, num_inputs)


def test_in_memory_it_takes_what_it_takes_in_files() -> None:
    stored = draw(64, 2048)
    in_files = stored.codes.size / 2 + stored.scales.size
    assert pack(stored).nbytes == in_files
    assert pack(stored.widened()).nbytes > 2 * in_files


def test_nvfp4_is_held_in_four_bits_too() -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 256, (16, 64), dtype=np.uint8)
    scales = rng.integers(0x20, 0x60, 16 * 8, dtype=np.uint8)
    stored = nvfp4.FORMAT.to_stored(weights, scales, MatrixShape(16, 128))
    assert isinstance(stored, IntTensor)
    matrix = pack(stored)
    assert matrix.nbytes == 16 * 128 // 2 + 16 * 8 * 4
    np.testing.assert_array_equal(matrix.unpack(), stored.unpack())


@pytest.mark.parametrize("num_inputs", [1, 31, 64, 100, 320])
def test_the_kernels_hold_the_same_values_with_levels_and_without(num_inputs: int) -> None:
    stored = draw(21, num_inputs)
    np.testing.assert_array_equal(pack(stored).unpack(), stored.unpack())
    np.testing.assert_array_equal(pack(stored.widened()).unpack(), stored.unpack())


@pytest.mark.parametrize("num_inputs", [0, 1, 2, 33])
def test_pairs_of_nibbles_split_and_join(num_inputs: int) -> None:
    codes = np.random.default_rng(1).integers(0, 16, (4, num_inputs), dtype=np.uint8)
    np.testing.assert_array_equal(split_pairs(join_pairs(codes), num_inputs), codes)
