"""How each tensor of the result is stored: from classes, options and what the source holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from colibri_engine.conversion.options import DEFAULT_GROUP, FLOAT_BITS, Bits, Layout
from colibri_engine.conversion.tensor_classes import TensorClass
from colibri_engine.errors import BadChoice
from colibri_engine.quant import e8, fp8_b128, int2_row, int3_g64, int4_grouped, int4_row, int8_row
from colibri_engine.quant.base import MatrixShape, row_group
from colibri_engine.quant.registry import MATRIX_FORMATS
from colibri_engine.quant.tiles import TileLayout

if TYPE_CHECKING:
    from colibri_engine.conversion.options import Precision
    from colibri_engine.conversion.tensor_classes import ClassifiedTensor
    from colibri_engine.quant.base import IntTensor, MatrixFormat

_BYTE_ZERO: Final = 128
_INT3_GROUP: Final = 64
_OPTION_OF: Final = {
    TensorClass.IO: "io_bits",
    TensorClass.EXPERT: "xbits",
    TensorClass.SHARED: "shared_bits",
    TensorClass.OUTPUT: "o_bits",
    TensorClass.KV_B: "kvb_bits",
    TensorClass.ATTENTION: "attn_bits",
    TensorClass.DENSE: "dmlp_bits",
}
_FIXED: Final = {TensorClass.INDEXER: 8, TensorClass.DRAFT_PROJECTION: 8, TensorClass.IO: 8}
_BASE_BITS: Final = 4
_EXPERT_BITS: Final = 8  # of experts that a source of integers holds as floats


class How(Enum):
    """Where the stored values come from."""

    FLOATS = auto()
    ROUNDED = auto()
    KEPT = auto()  # codes and scales as the kernels take them
    RAW = auto()  # bytes that do not follow from those: e8 and fp8
    E8 = auto()


@dataclass(frozen=True, slots=True)
class Target:
    """How one tensor is stored.

    Args:
        how: Where the values come from.
        format: Name of the number format ("int4-grouped", "F32").
        shape: Sizes, outermost first.
        bits: Width of rounded codes, else 0.
        group: Inputs per scale of rounded codes; None for one scale per row.
        layout: Of the matrix as the kernels hold it; None for floats.
    """

    how: How
    format: str
    shape: tuple[int, ...]
    bits: int = 0
    group: int | None = None
    layout: TileLayout | None = None

    @property
    def matrix_format(self) -> MatrixFormat:
        """The format of the layout with separate scales."""
        return MATRIX_FORMATS[self.format]

    @property
    def rest(self) -> int:
        """Bytes that the streaming layout keeps beside the matrix for the way back."""
        is_e8 = self.how is How.RAW and self.format == e8.FORMAT.name
        return self.shape[0] * e8.rest_bytes(self.shape[1]) if is_e8 else 0

    @property
    def matrix_shape(self) -> MatrixShape:
        """Sizes as that format wants them."""
        group = self.layout.group if self.layout is not None else 0
        return MatrixShape(self.shape[0], self.shape[1], group)


def bits_for(
    tensor: ClassifiedTensor, precision: Precision, *, is_integer: bool, is_left_wide: bool
) -> Bits:
    """Return the bits of a matrix: what was chosen, else what suits the source.

    Args:
        tensor: The matrix.
        precision: The user's choices.
        is_integer: The source holds it as grouped integers.
        is_left_wide: The source holds it as floats and others as integers: on purpose.
    """
    chosen = _chosen(tensor, precision)
    if chosen is not None:
        return chosen
    if is_integer:
        return Bits(0, keep=True)
    if is_left_wide:
        return Bits(_EXPERT_BITS if tensor.kind is TensorClass.EXPERT else FLOAT_BITS)
    return Bits(8 if tensor.is_draft else _FIXED.get(tensor.kind, _BASE_BITS))


def _chosen(tensor: ClassifiedTensor, precision: Precision) -> Bits | None:
    if tensor.is_draft:
        return precision.mtp_bits
    if tensor.kind is TensorClass.INDEXER:
        return None
    given = precision.chosen()
    names = [_OPTION_OF[tensor.kind]]
    if tensor.kind is TensorClass.EXPERT:
        names.insert(0, f"{tensor.part.removesuffix('_proj')}_bits")
    if tensor.kind is not TensorClass.IO:
        names.append("ebits")
    return next((given[name] for name in names if name in given), None)


def rounded_target(bits: int, shape: tuple[int, int], group_size: int | None) -> Target:
    """Return the target of a matrix that is rounded to integers.

    Args:
        bits: 2..8.
        shape: (O, I).
        group_size: Inputs per scale of 4 bits; 0 for a scale per row, None for the default.
    """
    num_outputs, num_inputs = shape
    number_format: MatrixFormat = int8_row.FORMAT
    group, zero, held_bits = None, _BYTE_ZERO, 8
    if bits == 4:
        group = _effective_group(num_inputs, DEFAULT_GROUP if group_size is None else group_size)
        number_format = int4_row.FORMAT if group is None else int4_grouped.FORMAT
        zero, held_bits = 8, 4
    elif bits == 3:
        number_format, group, zero, held_bits = int3_g64.FORMAT, _INT3_GROUP, 4, 4
    elif bits == 2:
        number_format, zero, held_bits = int2_row.FORMAT, 2, 4
    step = row_group(num_inputs) if group is None else group
    layout = TileLayout(num_outputs, num_inputs, held_bits, step, zero, scale_bytes=4)
    return Target(How.ROUNDED, number_format.name, shape, bits, group, layout)


def e8_target(name: str, shape: tuple[int, int]) -> Target:
    """Return the target of a matrix that is rounded to e8-iq3-lattice.

    Raises:
        BadChoice: its rows are not whole blocks.
    """
    if shape[1] % e8.BLOCK:
        raise BadChoice(
            f"{name} of shape {list(shape)} cannot be e8: rows must be multiples of {e8.BLOCK}",
            hint="give experts a number of bits",
        )
    layout = TileLayout(*shape, e8.CODE_BITS, e8.GROUP, e8.ZERO, scale_bytes=4, rotated=True)
    return Target(How.E8, e8.FORMAT.name, shape, e8.BITS, layout=layout)


def kept_target(format_name: str, sample: IntTensor, shape: tuple[int, int]) -> Target:
    """Return the target of a matrix whose codes stay as they are.

    Args:
        format_name: The number format in the source.
        sample: Some rows of it.
        shape: (O, I).
    """
    rows = TileLayout.of(sample)
    layout = TileLayout(
        shape[0],
        shape[1],
        rows.bits,
        rows.group,
        rows.zero,
        rows.scale_bytes,
        rows.rotated,
        rows.levels,
    )
    return Target(How.KEPT, format_name, shape, layout=layout)


def raw_target(format_name: str, shape: tuple[int, int]) -> Target:
    """Return the target of an e8 or fp8 matrix whose bytes stay as they are.

    Args:
        format_name: The number format of the layout with separate scales.
        shape: (O, I).
    """
    num_inputs = shape[1]
    if format_name == e8.FORMAT.name:
        layout = TileLayout(*shape, e8.CODE_BITS, e8.GROUP, e8.ZERO, scale_bytes=4, rotated=True)
    else:
        group = fp8_b128.BLOCK if num_inputs > fp8_b128.BLOCK else row_group(num_inputs)
        layout = TileLayout.of_fp8(*shape, group)
    return Target(How.RAW, format_name, shape, layout=layout)


def check_pairs(target: Target, name: str) -> None:
    """Refuse what the layout with separate scales cannot hold.

    Raises:
        BadChoice: naming the tensor.
    """
    is_fp8 = target.how is How.RAW and target.format in fp8_b128.NAMES
    if is_fp8 and fp8_b128.num_blocks(target.matrix_shape) == target.shape[0]:
        raise BadChoice(
            f"{name} of shape {list(target.shape)} has as many fp8 blocks as rows: readers would "
            "take it for int8-row",
            hint="give its class a number of bits instead of fp8",
        )
    if target.how is How.KEPT and (
        target.format not in MATRIX_FORMATS or MATRIX_FORMATS[target.format].join is None
    ):
        raise BadChoice(
            f"{name} is stored as {target.format}, which --layout {Layout.PAIRS} cannot keep",
            hint="give its class a number of bits, or use --layout stream",
        )


def _effective_group(num_inputs: int, group: int) -> int | None:
    """Return the group size that a reader finds from the number of scales; None for whole rows.

    Readers without a stamp take the finest group that gives as many scales. Where that is another
    one than asked for, it costs the same, so it is used.
    """
    if group == 0 or group >= num_inputs:
        return None
    num_groups = -(-num_inputs // group)
    return next(size for size in int4_grouped.GROUPS if -(-num_inputs // size) == num_groups)
