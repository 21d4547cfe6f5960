"""The lattice format and the rotation it is stored under."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.quant import e8, rotation
from colibri_engine.quant.base import IntTensor, MatrixShape
from colibri_engine.quant.rotation import block_lengths, rotate, rotate_back, signs

TAG = np.array([e8.TAG], "<f4").view(np.uint8)


def random_blocks(rows: int, columns: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows * columns // 256, 98), dtype=np.uint8)
    blocks[:, 96:] = (0.1 * rng.random(len(blocks))).astype("<f2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def stored_values(raw: npt.NDArray[np.uint8], num_inputs: int) -> npt.NDArray[np.float32]:
    stored = e8.FORMAT.to_stored(raw, TAG, MatrixShape(raw.shape[0], num_inputs))
    assert isinstance(stored, IntTensor)
    assert stored.rotated
    return stored.stored_values()


def test_the_smallest_block() -> None:
    raw = np.zeros((1, 98), np.uint8)
    raw[0, 96:] = (0x00, 0x3C)
    assert stored_values(raw, 256).tolist() == [[0.5] * 256]


def test_scales_that_are_subnormal_halves_are_read_exactly() -> None:
    raw = np.zeros((1, 98), np.uint8)
    raw[0, 96] = 3
    assert stored_values(raw, 256)[0, 0] == 0.5 * 3 * 2.0**-24


@pytest.mark.parametrize(("bits", "negative"), [(0, []), (1, [0, 7]), (3, [0, 1]), (127, range(8))])
def test_the_eighth_sign_makes_the_number_of_negatives_even(bits: int, negative: object) -> None:
    raw = np.zeros((1, 98), np.uint8)
    raw[0, 64] = bits
    raw[0, 96:] = (0x00, 0x3C)
    found = stored_values(raw, 256)[0, :8]
    assert np.flatnonzero(found < 0).tolist() == list(negative)  # type: ignore[call-overload]


def test_the_table_and_the_layout_are_those_of_the_reference() -> None:
    quants = pytest.importorskip("gguf.quants")
    quants.IQ3_XXS.init_grid()
    np.testing.assert_array_equal(e8.GRID, quants.IQ3_XXS.grid.reshape(256, 4))
    raw = random_blocks(5, 1024)
    blocks = raw.reshape(-1, 98)
    moved = np.concatenate([blocks[:, 96:], blocks[:, :96]], axis=1)
    wanted = quants.IQ3_XXS.dequantize_blocks(moved).reshape(5, 1024)
    np.testing.assert_array_equal(2 * stored_values(raw, 1024), wanted)  # magnitudes are doubled


def test_blocks_of_the_rotation_are_the_powers_of_two_of_the_width() -> None:
    assert block_lengths(6144) == [2048, 4096]
    assert block_lengths(2048) == [2048]
    assert block_lengths(1536) == [512, 1024]
    assert block_lengths(3 << 15) == [1 << 15] * 3
    assert block_lengths(7) == [1, 2, 4]


def test_signs_follow_the_generator() -> None:
    state, drawn = 417 + 16, []
    for _ in range(2):
        state ^= state >> 12
        state ^= state << 25 & (1 << 64) - 1
        state ^= state >> 27
        drawn.append((state * 2685821657736338717 & (1 << 64) - 1) >> 56)
    wanted = [-1.0 if drawn[i >> 3] >> (i & 7) & 1 else 1.0 for i in range(16)]
    assert signs(16).tolist() == wanted
    assert set(signs(2048).tolist()) == {-1.0, 1.0}


def test_the_transform_is_the_hadamard_matrix() -> None:
    matrix = np.ones((1, 1))
    while len(matrix) < 32:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    values = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    wanted = (values * signs(32)).astype(np.float64) @ matrix / np.sqrt(32)
    np.testing.assert_allclose(rotate(values), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [256, 768, 6144])
def test_products_survive_the_rotation_and_it_can_be_undone(width: int) -> None:
    rng = np.random.default_rng(2)
    weights, inputs = (rng.standard_normal((3, width)).astype(np.float32) for _ in range(2))
    plain = (weights.astype(np.float64) * inputs).sum(axis=1)
    rotated = (rotate(weights).astype(np.float64) * rotate(inputs)).sum(axis=1)
    np.testing.assert_allclose(rotated, plain, atol=1e-4)
    np.testing.assert_allclose(rotate_back(rotate(weights)), weights, atol=1e-5)


def test_unpacking_undoes_the_rotation() -> None:
    raw = random_blocks(2, 768)
    found = e8.FORMAT.unpack(raw, TAG, MatrixShape(2, 768))
    np.testing.assert_allclose(rotation.rotate(found), stored_values(raw, 768), atol=1e-5)


# ---- the way back -------------------------------------------------------------------------------


def rows_of_blocks(rows: int, width: int) -> npt.NDArray[np.uint8]:
    """Return random rows whose d are often equal up to a factor, zero or subnormal."""
    count = -(-width // 256)
    raw = random_blocks(rows, 256 * count, seed=width)
    d = np.array([0, 1, 3, 0x3C00, 0x4200, 0x3800, 0x7BFF, 0x8000], "<u2")  # 0, tiny, 1, 3, ½, …
    chosen = np.random.default_rng(width).choice(d, (rows, count))
    raw.reshape(rows, count, 98)[:, :, 96:] = chosen.view(np.uint8).reshape(rows, count, 2)
    return raw


def taken_apart(raw: npt.NDArray[np.uint8], width: int) -> tuple[IntTensor, npt.NDArray[np.uint8]]:
    stored = e8.FORMAT.to_stored(raw, TAG, MatrixShape(len(raw), width))
    assert isinstance(stored, IntTensor)
    rest = e8.split_rest(raw, width)
    assert rest.shape == (len(raw), e8.rest_bytes(width))
    return stored, rest


@pytest.mark.parametrize("width", [1, 64, 255, 256, 257, 512, 1000, 6144])
def test_blocks_come_back_from_codes_scales_and_rest(width: int) -> None:
    raw = rows_of_blocks(5, width)
    np.testing.assert_array_equal(e8.join(*taken_apart(raw, width)), raw)


def test_the_rest_is_small() -> None:
    assert e8.rest_bytes(6144) / 6144 == 6 / 256  # bytes for a weight, beside 9 bits


@pytest.mark.parametrize("bad", ["no number", "another d", "another code", "no entry", "odd signs"])
def test_what_does_not_belong_together_is_no_block(bad: str) -> None:
    stored, rest = taken_apart(random_blocks(3, 512), 512)
    if bad == "no number":
        rest[1, :2] = (0xFF, 0x7F)
    elif bad == "another d":
        rest[1, 0] ^= 1
    elif bad == "another code":
        rest[2, 2] ^= 0x10
    elif bad == "no entry":
        stored.codes[0, :4] = e8.ZERO + 31
        stored.codes[0, 1] = e8.ZERO + 30
    else:
        stored.codes[0, 0] = 2 * e8.ZERO - stored.codes[0, 0]
    with pytest.raises(ValueError, match=r"same blocks|no entry"):
        e8.join(stored, rest)
