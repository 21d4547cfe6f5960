"""Number formats are exact: the same bits as the reference reader, in every form we hold them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.loader.gguf import TYPES
from colibri_engine.quant import base, fp8_b128
from colibri_engine.quant.base import FloatTensor, IntTensor
from colibri_engine.quant.e4m3 import E4M3, scale_blocks
from colibri_engine.quant.nibbles import join_nibbles, split_nibbles
from colibri_engine.quant.registry import FORMATS, MATRIX_FORMATS
from tests.fakes.tiny_gguf import SCALE_OFFSETS, random_blocks
from tests.repo.tree import QUANT_PARTS

INTEGERS = sorted(SCALE_OFFSETS)
IN_GGUF = [name for name, *_ in TYPES.values() if name.lower() in FORMATS]
PACKED = ["Q4_0", "Q4_1", "Q8_0", "MXFP4"]
HALF_SCALES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"]


def bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def valid_rows(name: str, rows: int, columns: int, seed: int) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    if name in SCALE_OFFSETS:
        return random_blocks(name, rows, columns, rng, scale=10.0 ** rng.integers(-6, 3))
    pack = FORMATS[name.lower()].pack
    assert pack is not None
    return pack(rng.standard_normal((rows, columns)).astype(np.float32))


def reference(raw: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.float32]:
    gguf = pytest.importorskip("gguf")
    from gguf.quants import dequantize

    kind = gguf.GGMLQuantizationType[name]
    return np.asarray(dequantize(raw, kind), np.float32).reshape(raw.shape[0], -1)


@pytest.mark.parametrize("name", IN_GGUF)
@pytest.mark.parametrize("shape", [(1, 256), (7, 512), (33, 1024)])
def test_unpack_gives_the_bits_of_the_reference(name: str, shape: tuple[int, int]) -> None:
    for seed in range(5):
        raw = valid_rows(name, *shape, seed)
        found = FORMATS[name.lower()].unpack(raw)
        assert found.shape == shape
        assert found.dtype == np.float32
        np.testing.assert_array_equal(bits(found), bits(reference(raw, name)))


@pytest.mark.parametrize("name", INTEGERS)
def test_codes_and_scales_give_the_same_bits_by_either_formula(name: str) -> None:
    raw = valid_rows(name, 9, 768, 1)
    stored = FORMATS[name.lower()].to_stored(raw)
    assert isinstance(stored, IntTensor)
    assert stored.codes.dtype == np.uint8
    assert stored.codes.shape == stored.shape == (9, 768)
    assert stored.codes.flags.c_contiguous
    assert int(stored.codes.max()) < 2**stored.bits
    assert stored.scales.shape == (9, 768 // stored.group)
    assert stored.scales.flags.c_contiguous
    assert (stored.zero is None) != (stored.mins is None)
    scale = np.repeat(stored.scale_values, stored.group, axis=1)
    codes = stored.numbers.astype(np.float32)
    if stored.mins is None:
        assert stored.zero is not None
        values = scale * (codes - np.float32(stored.zero))
    else:
        assert stored.mins.dtype == stored.scales.dtype
        assert stored.mins.flags.c_contiguous
        minimum = np.repeat(stored.mins.astype(np.float32), stored.group, axis=1)
        values = scale * codes + minimum
        # One rounding (fused multiply-add) and two give the same, since the product is exact.
        fused = (scale.astype(np.float64) * codes + minimum).astype(np.float32)
        np.testing.assert_array_equal(fused, values)
    np.testing.assert_array_equal(bits(values), bits(reference(raw, name)))
    np.testing.assert_array_equal(bits(stored.unpack()), bits(values))


@pytest.mark.parametrize("name", HALF_SCALES)
def test_half_precision_scales_are_the_stored_ones(name: str) -> None:
    raw = valid_rows(name, 4, 64, 2)
    stored = FORMATS[name.lower()].to_stored(raw)
    assert isinstance(stored, IntTensor)
    assert stored.scales.dtype == np.float16
    blocks = raw.reshape(4, 2, -1)
    found = np.ascontiguousarray(stored.scales).view(np.uint8).reshape(4, 2, 2)
    np.testing.assert_array_equal(found, blocks[:, :, :2])
    if stored.mins is not None:
        found = np.ascontiguousarray(stored.mins).view(np.uint8).reshape(4, 2, 2)
        np.testing.assert_array_equal(found, blocks[:, :, 2:4])


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_products_of_scales_are_held_as_float32(name: str) -> None:
    stored = FORMATS[name.lower()].to_stored(valid_rows(name, 2, 256, 3))
    assert isinstance(stored, IntTensor)
    assert stored.scales.dtype == np.float32


@pytest.mark.parametrize("name", PACKED)
def test_pack_gives_the_bytes_of_the_reference(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    from gguf.quants import quantize

    pack = FORMATS[name.lower()].pack
    assert pack is not None
    rng = np.random.default_rng(4)
    for scale in (1e-4, 1.0, 300.0):
        values = (scale * rng.standard_normal((11, 320))).astype(np.float32)
        values[3] = 0  # a group of zeros has the scale 0
        values[4, :32] = scale
        wanted = quantize(values, gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(pack(values), wanted)


@pytest.mark.parametrize(("name", "levels"), [("Q4_0", 8), ("Q4_1", 15), ("Q8_0", 127)])
def test_packing_loses_at_most_half_a_step(name: str, levels: int) -> None:
    number_format = FORMATS[name.lower()]
    assert number_format.pack is not None
    values = np.random.default_rng(5).standard_normal((64, 256)).astype(np.float32)
    found = number_format.unpack(number_format.pack(values))
    groups = values.reshape(-1, 32)
    span = np.ptp(groups, axis=1) if name == "Q4_1" else np.abs(groups).max(axis=1)
    step = span / levels * 1.01  # scales are rounded to half precision
    worst = np.abs(found - values).reshape(-1, 32).max(axis=1)
    bound = step if name == "Q4_0" else step / 2 + span * 2e-3  # Q4_0 clips at +7
    assert (worst <= bound).all()


def test_bf16_rounds_to_nearest_even_and_keeps_nan() -> None:
    pack = FORMATS["bf16"].pack
    assert pack is not None
    values = np.array([[1.0, 1.00390625, 1.01171875, -0.0, np.inf, np.nan, 3.4e38]], np.float32)
    words = pack(values).view("<u2")[0].tolist()
    assert words[:5] == [0x3F80, 0x3F80, 0x3F82, 0x8000, 0x7F80]
    assert words[5] & 0x7FFF > 0x7F80
    assert words[6] == 0x7F80


# One block by hand each: scale 1 (0x3C00) or 2 (0x4000), minimum -1 (0xBC00), nibbles 0x21.
KNOWN = {
    "Q4_0": (bytes.fromhex("003c") + b"\x21" * 16, [-7.0] * 16 + [-6.0] * 16),
    "Q4_1": (bytes.fromhex("003c00bc") + b"\x21" * 16, [0.0] * 16 + [1.0] * 16),
    "Q5_0": (
        bytes.fromhex("003c") + b"\xff\xff\0\0" + b"\x21" * 16,
        [1.0] * 16 + [-14.0] * 16,
    ),
    "Q5_1": (
        bytes.fromhex("003c00bc") + b"\0\0\xff\xff" + b"\x21" * 16,
        [0.0] * 16 + [17.0] * 16,
    ),
    "Q8_0": (bytes.fromhex("0040") + b"\xff" * 16 + b"\x03" * 16, [-2.0] * 16 + [6.0] * 16),
    "Q2_K": (
        b"\x21" * 8 + b"\x13" * 8 + b"\xe4" * 64 + bytes.fromhex("0040003c"),
        [-2.0] * 32
        + [0.0] * 32
        + [2.0] * 32
        + [4.0] * 32
        + [-1.0] * 32
        + [5.0] * 32
        + [11.0] * 32
        + [17.0] * 32,
    ),
    "Q3_K": (
        b"\x0f" * 32 + b"\xe4" * 64 + b"\x31" * 8 + b"\xaa" * 4 + bytes.fromhex("003c"),
        [0.0] * 32
        + [1.0] * 32
        + [2.0] * 32
        + [3.0] * 32
        + [-12.0] * 32
        + [-9.0] * 32
        + [-6.0] * 32
        + [-3.0] * 32,
    ),
    "IQ4_NL": (bytes.fromhex("0040") + b"\xf8" * 16, [2.0] * 16 + [226.0] * 16),
    "IQ4_XS": (
        bytes.fromhex("003caaaa") + b"\xf1" * 4 + b"\x08" * 128,
        ([1.0] * 16 + [-127.0] * 16 + [15.0] * 16 + [-1905.0] * 16) * 4,
    ),
    "Q4_K": (
        bytes.fromhex("003c003c") + b"\x01" * 4 + b"\x02" * 4 + b"\x43" * 4 + b"\x21" * 128,
        ([-1.0] * 32 + [0.0] * 32) * 2 + ([-1.0] * 32 + [2.0] * 32) * 2,
    ),
    "Q6_K": (
        b"\x21" * 128 + b"\xe4" * 64 + b"\x01" * 16 + bytes.fromhex("0040"),
        ([-62.0] * 32 + [-30.0] * 32 + [4.0] * 32 + [36.0] * 32) * 2,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_block(name: str) -> None:
    data, values = KNOWN[name]
    raw = np.frombuffer(data, np.uint8).reshape(1, -1)
    assert FORMATS[name.lower()].unpack(raw)[0].tolist() == values


@pytest.mark.parametrize("count", [0, 1, 8191, 8192, 8193, 20000])
def test_nibbles_split_and_join(count: int) -> None:
    rng = np.random.default_rng(count)
    codes = rng.integers(0, 16, (count, 32), dtype=np.uint8)
    joined = join_nibbles(codes)
    np.testing.assert_array_equal(split_nibbles(joined.view("V16").reshape(-1)), codes)


def test_inputs_are_never_changed() -> None:
    for name in IN_GGUF:
        raw = valid_rows(name, 3, 256, 6)
        before = raw.copy()
        FORMATS[name.lower()].unpack(raw)
        raw.flags.writeable = False
        FORMATS[name.lower()].to_stored(raw)
        np.testing.assert_array_equal(raw, before)


# ---- fp8 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0.0), (0x38, 1.0), (0x7E, 448.0), (0x08, 2.0**-6), (0x01, 2.0**-9),
        (0x07, 7 * 2.0**-9), (0xB8, -1.0), (0xFE, -448.0), (0x3C, 1.5),
    ],
)  # fmt: skip
def test_e4m3_values(code: int, value: float) -> None:
    assert E4M3[code] == value


def test_e4m3_has_two_nans_no_infinity_and_is_odd() -> None:
    assert np.flatnonzero(np.isnan(E4M3)).tolist() == [0x7F, 0xFF]
    assert not np.isinf(E4M3).any()
    np.testing.assert_array_equal(E4M3[:127], -E4M3[128:255])
    assert (np.diff(E4M3[:127]) > 0).all()


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (130, 127), (1, 300), (257, 1)])
def test_fp8_scales_reach_ragged_edges(rows: int, columns: int) -> None:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 127, (rows, columns), dtype=np.uint8)
    scales = rng.random((-(-rows // 128), -(-columns // 128))).astype(np.float32)
    found = scale_blocks(FORMATS["fp8_e4m3"].unpack(codes), scales, (128, 128))
    for row in range(0, rows, 13):
        for column in range(0, columns, 17):
            wanted = E4M3[codes[row, column]] * scales[row // 128, column // 128]
            assert found[row, column] == wanted


# ---- the table ----------------------------------------------------------------------------------


def test_every_format_file_is_in_the_registry_under_its_name() -> None:
    folder = Path(base.__file__).parent
    others = {"__init__", "base", "registry", *QUANT_PARTS}
    files = {path.stem for path in folder.glob("*.py")} - others
    in_files = {import_module(f"{base.__package__}.{stem}").FORMAT.name for stem in files}
    further = {fp8_b128.FORMAT_UE8M0.name}  # of a file that offers two
    assert in_files | further == set(FORMATS) | set(MATRIX_FORMATS)
    for name, number_format in (FORMATS | MATRIX_FORMATS).items():
        assert number_format.name == name


def test_block_sizes_agree_with_the_container() -> None:
    for name, block_size, block_bytes in TYPES.values():
        if name.lower() in FORMATS:
            number_format = FORMATS[name.lower()]
            assert (number_format.block_size, number_format.block_bytes) == (
                block_size,
                block_bytes,
            )


def test_a_row_is_a_whole_number_of_blocks() -> None:
    assert FORMATS["q4_0"].row_bytes(64) == 36
    with pytest.raises(ValueError, match="48 is not a multiple of 32"):
        FORMATS["q4_0"].row_bytes(48)


def test_sizes_count_every_array() -> None:
    stored = FORMATS["q4_1"].to_stored(valid_rows("Q4_1", 2, 64, 8))
    assert stored.nbytes == 2 * 64 + 2 * (2 * 2 * 2)
    plain = FORMATS["f16"].to_stored(valid_rows("F16", 2, 64, 8))
    assert isinstance(plain, FloatTensor)
    assert plain.shape == (2, 64)
    assert plain.nbytes == 256
