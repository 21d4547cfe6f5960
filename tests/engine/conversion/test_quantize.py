"""Rounding follows its formula to the bit, block by block as well as at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.conversion.quantize import quantize
from colibri_engine.conversion.targets import rounded_target
from colibri_engine.quant.base import FloatTensor
from colibri_engine.quant.registry import MATRIX_FORMATS

F32 = npt.NDArray[np.float32]

SHAPES = [(1, 16), (3, 64), (17, 96), (5, 100), (33, 257)]


def by_formula(values: F32, bits: int, step: int) -> tuple[npt.NDArray[np.int64], F32]:
    """Return signed codes and scales, one group at a time."""
    rows, columns = values.shape
    highest = 2 ** (bits - 1) - 1
    codes = np.empty(values.shape, np.int64)
    scales = np.empty((rows, -(-columns // step)), np.float32)
    for row in range(rows):
        for place, first in enumerate(range(0, columns, step)):
            group = values[row, first : first + step]
            scale = np.float32(max(np.abs(group).max() / np.float32(highest), np.float32(1e-8)))
            scales[row, place] = scale
            for column, value in enumerate(group):
                code = round(float(np.float32(value / scale)))  # Python rounds halves to even
                codes[row, first + column] = min(max(code, -highest - 1), highest)
    return codes, scales


def random_values(shape: tuple[int, int], seed: int = 0) -> F32:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 3, (shape[0], 1))
    return values.astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("bits", "group", "zero"),
    [
        (8, None, 128),
        (6, None, 128),
        (4, None, 8),
        (4, 32, 8),
        (4, 64, 8),
        (3, 64, 4),
        (2, None, 2),
    ],
)
def test_codes_and_scales_are_those_of_the_formula(
    shape: tuple[int, int], bits: int, group: int | None, zero: int
) -> None:
    values = random_values(shape)
    found = quantize(FloatTensor(values), bits, group, zero)
    codes, scales = by_formula(values, bits, group or shape[1])
    np.testing.assert_array_equal(found.codes.astype(np.int64) - zero, codes)
    np.testing.assert_array_equal(found.scales, scales)
    assert found.zero == zero
    assert found.group % 16 == 0


def test_halves_go_to_the_even_neighbour() -> None:
    values = np.array([[7, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -7]], np.float32)
    found = quantize(FloatTensor(values), 4, None, 8)
    np.testing.assert_array_equal(found.codes - 8.0, [[7, 0, 2, 2, 0, -2, -2, -7]])


def test_zeros_and_the_smallest_numbers_have_the_smallest_scale() -> None:
    values = np.array([[0, 0, 0, 0], [1e-12, -1e-12, 0, 0], [1e-38, 0, 0, 1e-45]], np.float32)
    found = quantize(FloatTensor(values), 8, None, 128)
    np.testing.assert_array_equal(found.scales, np.full((3, 1), 1e-8, np.float32))
    np.testing.assert_array_equal(found.codes, np.full((3, 4), 128))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_every_float_type_is_widened_exactly(kind: str) -> None:
    wide = random_values((9, 128))
    array: npt.NDArray[np.float32 | np.float16 | np.uint16] = wide
    if kind == "f16":
        array = wide.astype(np.float16)
    elif kind == "bf16":
        array = (wide.view(np.uint32) >> 16).astype(np.uint16)
    tensor = FloatTensor(array)  # type: ignore[arg-type]
    found = quantize(tensor, 4, 64, 8)
    wanted = quantize(FloatTensor(tensor.unpack()), 4, 64, 8)
    np.testing.assert_array_equal(found.codes, wanted.codes)
    np.testing.assert_array_equal(found.scales, wanted.scales)


@pytest.mark.parametrize("rows", [1, 7, 128, 400])
def test_blocks_of_rows_give_the_bits_of_the_whole(rows: int) -> None:
    values = random_values((1000, 768))
    whole = quantize(FloatTensor(values), 4, 64, 8)
    for first in range(0, 1000, rows):
        part = quantize(FloatTensor(values[first : first + rows]), 4, 64, 8)
        np.testing.assert_array_equal(part.codes, whole.codes[first : first + rows])
        np.testing.assert_array_equal(part.scales, whole.scales[first : first + rows])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (39, 99), (20, 63)])
@pytest.mark.parametrize("group", [None, 64, 48])
def test_what_is_no_number_is_refused(
    bad: float, place: tuple[int, int], group: int | None
) -> None:
    values = random_values((40, 100))
    values[place] = bad
    with pytest.raises(ValueError, match="not finite"):
        quantize(FloatTensor(values), 4, group, 8)


@pytest.mark.parametrize(
    ("bits", "group_size", "values", "stored"),
    [
        (4, 0, [-7, 7], b"\xf1"),
        (8, None, [-127, 1, 127, 0], b"\x81\x01\x7f\x00"),
        (2, None, [-1, 0, 1, 1], b"\xf9"),
    ],
)
def test_bytes_in_rows_of_the_format(
    bits: int, group_size: int | None, values: list[float], stored: bytes
) -> None:
    rows = np.array([values], np.float32)
    target = rounded_target(bits, (1, len(values)), group_size)
    assert target.layout is not None
    assert target.layout.zero is not None
    found = quantize(FloatTensor(rows), bits, target.group, target.layout.zero)
    join = MATRIX_FORMATS[target.format].join
    assert join is not None
    assert join(found.codes).tobytes() == stored
    np.testing.assert_array_equal(found.unpack(), rows)


def test_three_bits_have_two_planes() -> None:
    values = np.zeros((1, 64), np.float32)
    values[0, :8] = [3, -3, -2, -1, 0, 1, 2, 3]
    target = rounded_target(3, (1, 64), None)
    found = quantize(FloatTensor(values), 3, target.group, 4)
    join = MATRIX_FORMATS["int3-g64"].join
    assert join is not None
    stored = join(found.codes)[0]
    # codes 7 1 2 3 4 5 6 7: low pairs 3 1 2 3 | 0 1 2 3, high bits 1 0 0 0 1 1 1 1
    assert stored[:2].tolist() == [0b11100111, 0b11100100]
    assert stored[16] == 0b11110001


@pytest.mark.parametrize(
    ("num_inputs", "asked", "group"),
    [
        (6144, 64, 64), (6144, 128, 128), (96, 64, 48), (64, 64, None), (64, 128, None),
        (100, 64, 64), (80, 48, 48), (6144, 0, None), (130, 256, None), (192, 96, 96),
    ],
)  # fmt: skip
def test_the_group_size_is_the_one_a_reader_finds(
    num_inputs: int, asked: int, group: int | None
) -> None:
    target = rounded_target(4, (8, num_inputs), asked)
    assert target.group == group
    assert target.format == ("int4-row" if group is None else "int4-grouped")
