"""E4M3 matrices stay codes and scales where the kernels take them; either way the values agree."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine.quant.base import FloatTensor, Fp8Tensor, stored_rows
from colibri_engine.quant.e4m3 import E4M3, scale_blocks
from colibri_engine.quant.fp8_blocks import fp8_matrix, transposed


def random_codes(shape: tuple[int, int]) -> np.ndarray:
    codes = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    codes[codes & 0x7F == 0x7F] = 0
    return codes


def random_scales(shape: tuple[int, int], block: tuple[int, int]) -> np.ndarray:
    blocks = [-(-size // step) for size, step in zip(shape, block, strict=True)]
    return np.random.default_rng(4).random(blocks).astype(np.float32)


@pytest.mark.parametrize(
    ("block", "is_held"),
    [
        ((128, 128), True),
        ((48, 32), True),
        ((1, 1 << 20), True),
        ((1 << 20, 1 << 20), True),
        ((1, 16), True),
        ((24, 40), False),
        ((64, 1), False),
    ],
)
def test_values_are_the_products(block: tuple[int, int], is_held: bool) -> None:
    codes = random_codes((200, 150))
    scales = random_scales((200, 150), block)
    matrix = fp8_matrix(codes, scales, block)
    assert isinstance(matrix, Fp8Tensor) == is_held
    wanted = scale_blocks(E4M3[codes], scales, block)
    np.testing.assert_array_equal(matrix.unpack(), wanted)
    np.testing.assert_array_equal(stored_rows(matrix, 30, 7).unpack(), wanted[30:37])


@pytest.mark.parametrize("damage", ["a code", "a scale"])
def test_what_is_no_number_shows_in_the_values(damage: str) -> None:
    codes, scales = random_codes((20, 32)), random_scales((20, 32), (16, 16))
    if damage == "a code":
        codes[7, 9] = 0xFF
    else:
        scales[1, 0] = np.nan
    matrix = fp8_matrix(codes, scales, (16, 16))
    assert isinstance(matrix, FloatTensor)
    assert np.isnan(matrix.array).any()


def test_a_scale_beyond_the_kernels_reach_makes_floats() -> None:
    codes = np.full((16, 16), 1, np.uint8)  # 2^-9
    matrix = fp8_matrix(codes, np.full((1, 1), 2.0**111, np.float32), (16, 16))
    assert isinstance(matrix, FloatTensor)
    assert (matrix.array == 2.0**102).all()


@pytest.mark.parametrize(("first", "run"), [(0, 128), (64, 64), (96, 32), (16, 16), (8, None)])
def test_a_part_is_transposed_in_runs_that_share_scales(first: int, run: int | None) -> None:
    codes = random_codes((640, 300))
    whole = fp8_matrix(codes, random_scales((640, 300), (128, 128)), (128, 128))
    part = stored_rows(whole, first, 320)
    assert isinstance(part, Fp8Tensor)
    turned = transposed(part)
    np.testing.assert_array_equal(turned.unpack(), part.unpack().T)
    assert (turned.group if isinstance(turned, Fp8Tensor) else None) == run
