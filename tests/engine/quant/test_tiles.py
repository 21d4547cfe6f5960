"""The packed order in numpy is the one the kernels make and read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from colibri_engine.kernels import Matrix
from colibri_engine.layers.weights import pack
from colibri_engine.quant.base import Fp8Tensor, IntTensor, Scales
from colibri_engine.quant.tiles import (
    TILE,
    PackedTensor,
    TileLayout,
    pack_codes,
    pack_matrix,
    packed_chunks,
    unpack_codes,
    unpack_matrix,
)

LEVELS = bytes(range(255, 239, -1))
SHAPES = [(1, 16), (15, 63), (16, 64), (17, 65), (33, 16), (48, 96), (70, 200), (130, 3)]


def random_tensor(
    shape: tuple[int, int],
    *,
    bits: int = 4,
    group: int = 64,
    with_mins: bool = False,
    dtype: type[np.float16 | np.float32] = np.float32,
) -> IntTensor:
    rng = np.random.default_rng(shape[0] * 1000 + shape[1] + bits + group)
    num_outputs, num_inputs = shape
    groups = (num_outputs, -(-num_inputs // group))

    def values() -> Scales:
        drawn = rng.standard_normal(groups)
        return drawn.astype(np.float16) if dtype is np.float16 else drawn.astype(np.float32)

    return IntTensor(
        codes=rng.integers(0, 1 << bits, shape, dtype=np.uint8),
        scales=values(),
        zero=None if with_mins else 1 << (bits - 1),
        mins=values() if with_mins else None,
        bits=bits,
        group=group,
    )


def test_a_group_may_be_wider_than_the_row_at_no_cost() -> None:
    tensor = random_tensor((3, 80), bits=4, group=128)
    wide = replace(tensor, group=1 << 40)  # as a damaged header may have it
    np.testing.assert_array_equal(wide.unpack(), tensor.unpack())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("group", [16, 48, 64, 256])
@pytest.mark.parametrize("with_mins", [False, True], ids=["zero", "mins"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bits", [4, 8])
def test_bytes_are_those_of_the_native_packer_and_come_back(
    shape: tuple[int, int],
    bits: int,
    group: int,
    with_mins: bool,
    dtype: type[np.float16 | np.float32],
) -> None:
    tensor = random_tensor(shape, bits=bits, group=group, with_mins=with_mins, dtype=dtype)
    layout = TileLayout.of(tensor)
    packed = pack_matrix(tensor)
    assert packed.size == layout.nbytes
    np.testing.assert_array_equal(packed, pack(tensor).packed())

    taken = Matrix.from_packed(
        packed,
        shape,
        tensor.zero,
        bits=bits,
        group=group,
        scale_bytes=2 if dtype is np.float16 else 4,
    )
    np.testing.assert_array_equal(taken.packed(), packed)
    np.testing.assert_array_equal(taken.unpack(), pack(tensor).unpack())

    back = unpack_matrix(packed, layout)
    assert isinstance(back, IntTensor)
    np.testing.assert_array_equal(back.codes, tensor.codes)
    np.testing.assert_array_equal(back.scales, tensor.scales)
    assert (back.zero, back.bits, back.group) == (tensor.zero, bits, group)
    if tensor.mins is not None:
        np.testing.assert_array_equal(back.mins, tensor.mins)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale_type", [np.uint8, np.float16, np.float32])
def test_levels_go_with_the_bytes_and_come_back(
    shape: tuple[int, int], scale_type: type[np.uint8 | np.float16 | np.float32]
) -> None:
    plain = random_tensor(shape, group=32)
    scales: Scales = plain.scales
    if scale_type is np.uint8:
        scales = np.random.default_rng(1).integers(0, 240, scales.shape).astype(np.uint8)
    elif scale_type is np.float16:
        scales = scales.astype(np.float16)
    tensor = replace(plain, scales=scales, levels=LEVELS, zero=250)
    layout = TileLayout.of(tensor)
    packed = pack_matrix(tensor)
    assert packed.size == layout.nbytes
    np.testing.assert_array_equal(packed, pack(tensor).packed())
    taken = Matrix.from_packed(
        packed,
        shape,
        250,
        bits=4,
        group=32,
        scale_bytes=layout.scale_bytes,
        levels=LEVELS,
    )
    np.testing.assert_array_equal(taken.unpack(), tensor.unpack())
    assert taken.has_finite_scales()
    back = unpack_matrix(packed, layout)
    assert isinstance(back, IntTensor)
    np.testing.assert_array_equal(back.codes, tensor.codes)
    np.testing.assert_array_equal(back.scales, tensor.scales)
    assert (back.levels, back.zero) == (LEVELS, 250)


def test_a_scale_of_one_byte_that_is_no_number_is_noticed() -> None:
    tensor = replace(
        random_tensor((16, 64), group=32), scales=np.full((16, 2), 254, np.uint8), levels=LEVELS
    )
    packed = pack_matrix(tensor)
    layout = TileLayout.of(tensor)
    assert PackedTensor(packed, layout).has_finite_scales()
    packed[layout.codes_nbytes + 5] = 255
    assert not PackedTensor(packed, layout).has_finite_scales()
    bad = Matrix.from_packed(packed, (16, 64), 8, bits=4, group=32, scale_bytes=1, levels=LEVELS)
    assert not bad.has_finite_scales()


def random_fp8(shape: tuple[int, int], group: int) -> Fp8Tensor:
    rng = np.random.default_rng(shape[0] * 1000 + shape[1] + group)
    codes = rng.integers(0, 255, shape, dtype=np.uint8)
    codes[(codes & 127) == 127] = 3
    scales = np.exp2(rng.integers(-149, 110, (shape[0], -(-shape[1] // group))))
    return Fp8Tensor(codes, scales.astype(np.float32), group)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("group", [16, 48, 128])
def test_floats_of_eight_bits_go_with_the_bytes_and_come_back(
    shape: tuple[int, int], group: int
) -> None:
    tensor = random_fp8(shape, group)
    layout = TileLayout.of(tensor)
    packed = pack_matrix(tensor)
    assert packed.size == layout.nbytes
    np.testing.assert_array_equal(packed, pack(tensor).packed())
    held = PackedTensor(packed, layout)
    taken = pack(held)
    assert taken.kind == "fp8"
    np.testing.assert_array_equal(taken.packed(), packed)
    np.testing.assert_array_equal(taken.unpack(), tensor.unpack())
    assert held.has_finite_scales()
    assert taken.has_finite_scales()
    back = unpack_matrix(packed, layout)
    assert isinstance(back, Fp8Tensor)
    np.testing.assert_array_equal(back.codes, tensor.codes)
    np.testing.assert_array_equal(back.scales, tensor.scales)


@pytest.mark.parametrize("bad", ["code", "scale", "negative", "large"])
def test_floats_of_eight_bits_that_are_none_are_noticed(bad: str) -> None:
    layout = TileLayout.of(tensor := random_fp8((20, 64), 32))
    packed = pack_matrix(tensor)
    scales = packed[layout.codes_nbytes :].view(np.float32)
    if bad == "code":
        packed[5] = 0xFF
    else:
        scales[3] = {"scale": np.nan, "negative": -1.0, "large": 2.0**119}[bad]
    assert not PackedTensor(packed, layout).has_finite_scales()
    with pytest.raises(ValueError, match="E4M3"):
        pack(PackedTensor(packed, layout))


@pytest.mark.parametrize(
    "wrong", [{"bits": 4}, {"zero": 128}, {"scale_bytes": 2}, {"rotated": True}, {"group": 24}]
)
def test_a_description_that_floats_of_eight_bits_cannot_have_is_refused(
    wrong: dict[str, Any],
) -> None:
    packed = pack_matrix(random_fp8((16, 64), 32))
    zero = wrong.pop("zero", 0)
    described = {"bits": 8, "group": 32, "scale_bytes": 4} | wrong
    with pytest.raises(ValueError, match=r"E4M3|multiple of 16"):
        Matrix.from_packed(packed, (16, 64), zero, fp8=True, **described)
    with pytest.raises(ValueError, match="do not fit the shape"):
        Matrix.from_packed(packed[:-4], (16, 64), 0, bits=8, group=32, scale_bytes=4, fp8=True)


@pytest.mark.parametrize("bits", [4, 8])
def test_tiles_can_be_packed_and_unpacked_a_few_rows_at_a_time(bits: int) -> None:
    tensor = random_tensor((70, 200), bits=bits)
    layout = TileLayout.of(tensor)
    pieces = [
        pack_codes(tensor.codes[first : first + 2 * TILE], layout)
        for first in range(0, 70, 2 * TILE)
    ]
    codes = np.concatenate(pieces)
    np.testing.assert_array_equal(codes, pack_matrix(tensor)[: layout.codes_nbytes])
    np.testing.assert_array_equal(unpack_codes(codes, layout), tensor.codes)


def test_a_large_matrix_comes_in_chunks_of_bounded_size() -> None:
    tensor = random_tensor((5000, 4096), bits=8, group=4096)
    chunks = list(packed_chunks(tensor))
    assert max(chunk.nbytes for chunk in chunks) <= 4 << 20
    np.testing.assert_array_equal(np.concatenate(chunks), pack(tensor).packed())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"packed": np.zeros(10, np.uint8)}, "do not fit the shape"),
        ({"shape": (32, 256)}, "do not fit the shape"),
        ({"shape": (1 << 30, 1 << 30)}, "do not fit the shape"),
        ({"shape": (0, 64)}, "num_outputs out of range"),
        ({"bits": 3}, "bits must be 4 or 8"),
        ({"group": 24}, "multiple of 16"),
        ({"group": 0}, "multiple of 16"),
        ({"zero": 16}, "zero must be a code"),
        ({"zero": None}, "do not fit the shape"),
        ({"scale_bytes": 2}, "do not fit the shape"),
        ({"scale_bytes": 3}, "1, 2 or 4 bytes"),
        ({"scale_bytes": 1}, "need levels and no mins"),
        ({"scale_bytes": 1, "levels": LEVELS, "zero": None}, "need levels and no mins"),
        ({"scale_bytes": 1, "levels": LEVELS}, "do not fit the shape"),
        ({"levels": LEVELS[:15]}, "must be 16 bytes"),
        ({"levels": LEVELS, "bits": 8}, "only codes of 4 bits"),
        ({"levels": LEVELS, "zero": 256}, "zero must be a code"),
    ],
)
def test_packed_bytes_that_do_not_fit_are_refused(changes: dict[str, object], problem: str) -> None:
    tensor = random_tensor((16, 128))
    arguments: dict[str, object] = {
        "packed": pack_matrix(tensor),
        "shape": (16, 128),
        "zero": 8,
        "bits": 4,
        "group": 64,
        "scale_bytes": 4,
    }
    with pytest.raises(ValueError, match=problem):
        Matrix.from_packed(**(arguments | changes))  # type: ignore[arg-type]
