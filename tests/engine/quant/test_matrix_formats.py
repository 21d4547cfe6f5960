"""Formats with separate scales: known bytes, every code, widths that end anywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.quant import fp8_b128, nvfp4
from colibri_engine.quant.base import Fp8Tensor, IntTensor, MatrixShape
from colibri_engine.quant.e4m3 import E4M3
from colibri_engine.quant.registry import MATRIX_FORMATS

Bytes = npt.NDArray[np.uint8]

# name -> (bits, zero point, group; 0 for a whole row)
INTEGERS = {
    "int8-row": (8, 128, 0),
    "int4-row": (4, 8, 0),
    "int4-grouped": (4, 8, 48),
    "int2-row": (2, 2, 0),
    "int3-g64": (3, 4, 64),
}


def weights_of(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8).reshape(1, -1)


def scale_of(*values: float) -> Bytes:
    return np.array(values, "<f4").view(np.uint8)


@pytest.mark.parametrize(
    ("name", "data", "values"),
    [
        ("int8-row", "ff807f", [-1, -128, 127]),
        ("int4-row", "f0", [-8, 7]),
        ("int4-grouped", "f0", [-8, 7]),
        ("int2-row", "e4", [-2, -1, 0, 1]),
        ("int3-g64", "e4" * 16 + "00" * 8, [-4, -3, -2, -1] * 16),
        ("int3-g64", "e4" * 16 + "ff" * 8, [0, 1, 2, 3] * 16),
        ("mxfp4", "10325476", [0, 0.5, 1, 1.5, 2, 3, 4, 6]),
        ("nvfp4", "98badcfe", [0, -0.5, -1, -1.5, -2, -3, -4, -6]),
        ("fp8-e4m3-b128", "387e0801", [1, 448, 2.0**-6, 2.0**-9]),
    ],
)
def test_known_bytes(name: str, data: str, values: list[float]) -> None:
    number_format = MATRIX_FORMATS[name]
    shape = MatrixShape(1, len(values), 16 if number_format.open_group else 0)
    scales = scale_of(2.0)
    if name == "mxfp4":
        scales = np.array([128], np.uint8)
    if name == "nvfp4":
        scales = np.array([0x40], np.uint8)
    found = number_format.unpack(weights_of(bytes.fromhex(data)), scales, shape)
    assert found[0].tolist() == [2 * value for value in values]


def plain(name: str, raw: Bytes, scales: npt.NDArray[np.float32], shape: MatrixShape) -> object:
    """The definition, one weight at a time."""
    bits, zero, group = INTEGERS[name]
    values = np.empty((shape.num_outputs, shape.num_inputs))
    for o, i in np.ndindex(values.shape):
        if name == "int8-row":
            code = int(raw[o].view(np.int8)[i]) + zero
        elif name == "int3-g64":
            planes = raw[o, i // 64 * 24 :][:24]
            k = i % 64
            code = int(planes[k // 4]) >> 2 * (k % 4) & 3
            code |= (int(planes[16 + k // 8]) >> k % 8 & 1) << 2
        else:
            per_byte = 8 // bits
            code = int(raw[o, i // per_byte]) >> bits * (i % per_byte) & (1 << bits) - 1
        values[o, i] = (code - zero) * np.float64(scales[o, i // group if group else 0])
    return values


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 47), (2, 64), (4, 65), (3, 130)])
def test_any_bytes_mean_what_the_definition_says(name: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    group = INTEGERS[name][2]
    sizes = MatrixShape(*shape, 48 if name == "int4-grouped" else 0)
    number_format = MATRIX_FORMATS[name]
    raw = rng.integers(0, 256, (shape[0], number_format.row_bytes(shape[1])), dtype=np.uint8)
    columns = -(-shape[1] // group) if group else 1
    scales = rng.random((shape[0], columns)).astype(np.float32)
    assert number_format.weight_bytes(sizes) == raw.size
    assert number_format.scale_bytes(sizes) == scales.nbytes
    before = raw.copy()
    stored = number_format.to_stored(raw, scales.reshape(-1).view(np.uint8), sizes)
    np.testing.assert_array_equal(raw, before)
    assert isinstance(stored, IntTensor)
    assert stored.codes.flags.c_contiguous
    assert stored.shape == shape
    assert int(stored.codes.max()) < 1 << stored.bits
    np.testing.assert_array_equal(
        stored.unpack(), np.asarray(plain(name, raw, scales, sizes)).astype(np.float32)
    )


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("num_inputs", [1, 3, 64, 67])
def test_joining_is_the_inverse_of_splitting(name: str, num_inputs: int) -> None:
    bits, _, _ = INTEGERS[name]
    number_format = MATRIX_FORMATS[name]
    codes = np.random.default_rng(3).integers(0, 1 << bits, (6, num_inputs), dtype=np.uint8)
    assert number_format.join is not None
    raw = number_format.join(codes)
    assert raw.shape == (6, number_format.row_bytes(num_inputs))
    shape = MatrixShape(6, num_inputs, 48 if name == "int4-grouped" else 0)
    scales = np.ones(number_format.scale_bytes(shape) // 4, "<f4").view(np.uint8)
    stored = number_format.to_stored(raw, scales, shape)
    assert isinstance(stored, IntTensor)
    np.testing.assert_array_equal(stored.codes, codes)


def test_the_end_of_a_padded_group_is_stored_as_zero() -> None:
    join = MATRIX_FORMATS["int3-g64"].join
    assert join is not None
    raw = join(np.full((1, 3), 7, np.uint8))
    whole = MATRIX_FORMATS["int3-g64"].unpack(raw, scale_of(1.0), MatrixShape(1, 64))
    assert whole[0].tolist() == [3.0] * 3 + [0.0] * 61


# ---- floats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (129, 127), (130, 300)])
@pytest.mark.parametrize("ue8m0", [False, True])
def test_fp8_blocks_reach_ragged_edges(shape: tuple[int, int], ue8m0: bool) -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 127, shape, dtype=np.uint8)
    sizes = MatrixShape(*shape)
    blocks = (-(-shape[0] // 128), -(-shape[1] // 128))
    if ue8m0:
        number_format = fp8_b128.FORMAT_UE8M0
        raw = rng.integers(100, 150, blocks, dtype=np.uint8).reshape(-1)
        scales = np.ldexp(1.0, raw.astype(int) - 127).astype(np.float32).reshape(blocks)
    else:
        number_format = fp8_b128.FORMAT
        scales = rng.random(blocks).astype(np.float32)
        raw = scales.reshape(-1).view(np.uint8)
    assert number_format.scale_bytes(sizes) == raw.size
    stored = number_format.to_stored(codes, raw, sizes)
    assert isinstance(stored, Fp8Tensor)
    rows, columns = np.indices(shape)
    wanted = E4M3[codes] * scales[rows // 128, columns // 128]
    np.testing.assert_array_equal(stored.unpack(), wanted)


def test_nvfp4_multiplies_the_block_scale_by_the_factor_of_the_matrix() -> None:
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (3, 20), dtype=np.uint8)
    scales = rng.integers(0, 127, (3, 3), dtype=np.uint8)
    factor = np.float32(0.0037)
    stored = nvfp4.FORMAT.to_stored(raw, scales.reshape(-1), MatrixShape(3, 40))
    assert isinstance(stored, IntTensor)
    found = nvfp4.with_factor(stored, factor).unpack()
    nibbles = np.stack([raw & 15, raw >> 4], axis=2).reshape(3, 40)
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = magnitudes[nibbles & 7] * np.where(nibbles > 7, -1, 1)
    wanted = values * np.repeat(E4M3[scales].astype(np.float64), 16, axis=1)[:, :40] * factor
    np.testing.assert_allclose(found, wanted, rtol=2**-23)
