"""Which format a packed matrix has, and what is refused instead of guessed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.container import PackedMatrix, resolve

PATH = Path("out-00000.safetensors")
ROW, GROUPED, FP8 = "int4-row", "int4-grouped", "fp8-e4m3-b128"
IN_BYTES = f"{FP8}-ue8m0"  # never in a stamp


def matrix(*sizes: int, stamp: str | None = None, group: int | None = None) -> PackedMatrix:
    """Return a matrix of outputs, inputs, bytes of weights and bytes of scales."""
    num_outputs, num_inputs, weight_bytes, scale_bytes = sizes
    return PackedMatrix(
        "X", PATH, (num_outputs, num_inputs), weight_bytes, scale_bytes, stamp, group
    )


def found(*sizes: int, stamp: str | None = None, group: int | None = None) -> str:
    number_format, shape = resolve(matrix(*sizes, stamp=stamp, group=group))
    return f"{number_format.name}/{shape.group}" if shape.group else number_format.name


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((6, 100, 600, 24), "int8-row"),
        ((6, 100, 300, 24), ROW),
        ((6, 101, 306, 24), ROW),  # odd rows end with half a byte
        ((6, 128, 384, 48), "int4-grouped/64"),
        ((6, 100, 150, 24), "int2-row"),
        ((6, 101, 156, 24), "int2-row"),
        ((6, 100, 288, 48), "int3-g64"),
        ((6, 512, 1176, 4), "e8-iq3-lattice"),
        ((300, 200, 60000, 24), FP8),  # 3 x 2 blocks of float32
        ((300, 200, 60000, 6), IN_BYTES),  # the same, one byte each
    ],
)
def test_sizes_tell_the_format(sizes: tuple[int, ...], name: str) -> None:
    assert found(*sizes) == name
    stamp = FP8 if name == IN_BYTES else name.split("/", maxsplit=1)[0]
    assert found(*sizes, stamp=stamp) == name


@pytest.mark.parametrize("group", [16, 32, 48, 64, 96, 128, 192, 256])
def test_the_number_of_scales_tells_the_group(group: int) -> None:
    num_inputs = 768
    sizes = (4, num_inputs, 4 * num_inputs // 2, 16 * (num_inputs // group))
    assert found(*sizes) == f"int4-grouped/{group}"


def test_of_two_groups_with_as_many_scales_the_finer_is_taken() -> None:
    assert found(2, 96, 96, 16) == "int4-grouped/48"  # 48 and 64 both make two groups


def test_a_stamped_group_decides() -> None:
    assert found(2, 96, 96, 16, group=64) == "int4-grouped/64"
    assert found(2, 96, 96, 16, stamp=GROUPED, group=64) == "int4-grouped/64"
    assert found(2, 1600, 1600, 40, group=320) == "int4-grouped/320"  # not in the list
    assert found(2, 96, 96, 8, stamp=GROUPED, group=128) == ROW  # one group to a row


@pytest.mark.parametrize(
    ("sizes", "group"), [((2, 96, 96, 16), 32), ((2, 96, 96, 8), 48), ((2, 96, 96, 16), 96)]
)
def test_a_stamped_group_that_does_not_fit_is_refused(sizes: tuple[int, ...], group: int) -> None:
    with pytest.raises(CheckpointError, match=rf"X in .*groups of {group} claimed"):
        resolve(matrix(*sizes, stamp=GROUPED, group=group))


def test_a_group_the_kernels_do_not_take_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedQuantFormat, match="groups of 24"):
        resolve(matrix(2, 96, 96, 32, group=24))


def test_no_listed_group_fits() -> None:
    with pytest.raises(CheckpointError, match="fit no known format"):
        resolve(matrix(2, 1600, 1600, 40))  # five groups of 320


# ---- shapes at which two formats have the same sizes --------------------------------------------


def test_as_many_blocks_as_rows_means_rows_unless_stamped() -> None:
    # A real one: an output projection of 6144 x 16384 has 48 x 128 = 6144 blocks.
    sizes = (6144, 16384, 6144 * 16384, 4 * 6144)
    assert found(*sizes) == "int8-row"
    assert found(*sizes, stamp="int8-row") == "int8-row"
    assert found(*sizes, stamp=FP8) == FP8
    with pytest.raises(CheckpointError, match=r"stamped 'int2-row', but its bytes fit int8-row"):
        resolve(matrix(*sizes, stamp="int2-row"))


def test_one_byte_scales_beside_rows_are_refused_without_a_stamp() -> None:
    sizes = (1, 512, 512, 4)  # one row, or four blocks
    with pytest.raises(CheckpointError, match=r"no stamp.*int8-row and fp8-e4m3-b128"):
        resolve(matrix(*sizes))
    assert found(*sizes, stamp="int8-row") == "int8-row"
    assert found(*sizes, stamp=FP8) == IN_BYTES
    with pytest.raises(UnsupportedQuantFormat, match="which is not supported"):
        resolve(matrix(*sizes, stamp=IN_BYTES))


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((5, 98), FP8),  # one float32 block
        ((400, 98), IN_BYTES),  # four blocks of one byte
        ((1, 98), "int8-row"),
        ((1, 196), ROW),
        ((1, 195), ROW),
    ],
)
def test_small_shapes_that_could_be_a_lattice_need_a_stamp(
    shape: tuple[int, int], other: str
) -> None:
    sizes = (*shape, shape[0] * 98, 4)
    stamp = FP8 if other == IN_BYTES else other
    with pytest.raises(CheckpointError, match=rf"no stamp.*e8-iq3-lattice and .*{stamp}"):
        resolve(matrix(*sizes))
    assert found(*sizes, stamp="e8-iq3-lattice") == "e8-iq3-lattice"
    assert found(*sizes, stamp=stamp) == other


def test_short_rows_of_three_bits_look_like_four() -> None:
    assert found(3, 48, 72, 12) == ROW
    assert found(3, 48, 72, 12, stamp="int3-g64") == "int3-g64"
    assert found(2, 96, 96, 16) == "int4-grouped/48"
    assert found(2, 96, 96, 16, stamp="int3-g64") == "int3-g64"


@pytest.mark.parametrize("num_inputs", [1, 2])
def test_rows_of_one_or_two_values(num_inputs: int) -> None:
    assert found(5, num_inputs, 5, 20) == ("int8-row" if num_inputs == 1 else ROW)
    assert found(5, num_inputs, 5, 20, stamp="int2-row") == "int2-row"


def test_mxfp4_is_taken_only_when_stamped() -> None:
    assert found(4, 256, 512, 32, stamp="mxfp4") == "mxfp4"
    assert found(4, 256, 512, 32) == "int4-grouped/128"  # the same sizes
    with pytest.raises(CheckpointError, match="fit no known format"):
        resolve(matrix(4, 64, 128, 8))


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes",
    [
        (6, 100, 599, 24),
        (6, 100, 600, 23),
        (6, 100, 600, 28),
        (6, 100, 300, 20),
        (6, 100, 300, 0),
        (6, 100, 0, 0),
        (6, 512, 1176, 8),
        (300, 200, 60000, 20),
    ],
)
def test_sizes_of_no_format_are_refused_with_all_numbers(sizes: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve(matrix(*sizes))
    message = str(caught.value)
    for part in ("tensor X", PATH.name, f"[{sizes[0]}, {sizes[1]}]", *map(str, sizes[2:])):
        assert part in message


@pytest.mark.parametrize("stamp", [GROUPED, "int8-row", "e8-iq3-lattice", "mxfp4"])
def test_a_stamp_that_contradicts_the_bytes_is_refused_naming_both(stamp: str) -> None:
    with pytest.raises(CheckpointError, match=rf"stamped '{stamp}'.*fit int2-row"):
        resolve(matrix(6, 100, 150, 24, stamp=stamp))


@pytest.mark.parametrize("stamp", ["int5-row", "", "nvfp4", "INT4-ROW"])
def test_an_unknown_stamp_is_refused_by_name(stamp: str) -> None:
    with pytest.raises(UnsupportedQuantFormat, match=f"stamped '{stamp}'"):
        resolve(matrix(6, 100, 300, 24, stamp=stamp))


def test_the_entropy_coded_form_is_refused_with_its_remedy() -> None:
    with pytest.raises(UnsupportedQuantFormat) as caught:
        resolve(matrix(6, 100, 300, 24, stamp="int4-rans256-g0"))
    assert "decode it" in (caught.value.hint or "")


def test_sizes_do_not_overflow() -> None:
    huge = matrix((1 << 31) - 1, (1 << 31) - 1, 1 << 62, 4)
    with pytest.raises(CheckpointError):
        resolve(huge)
    with pytest.raises(CheckpointError):
        resolve(dataclasses.replace(huge, weight_bytes=(1 << 31) - 1))
