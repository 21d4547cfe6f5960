"""How large a stored matrix is in memory, and of what kind, without reading it.

The loaders keep most formats as grouped integers in the kernels' order, which has sizes of its own
(`quant.tiles`); those that are no integers become floats. A format says which by turning a few
rows of zeros into what it would give for real ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from colibri_engine.loader.base import PackedCheckpoint
from colibri_engine.quant.base import FloatTensor, Fp8Tensor, IntTensor, MatrixShape
from colibri_engine.quant.registry import FORMATS, MATRIX_FORMATS
from colibri_engine.quant.tiles import TILE, TileLayout

if TYPE_CHECKING:
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.quant.base import RowTensor

KINDS: Final = ("int4", "int8", "fp8", "bf16", "f16", "f32")

_FLOAT_BYTES: Final = {"fp8": 1, "bf16": 2, "f16": 2, "f32": 4}
_FP8: Final = "f8_e4m3"
_FP8_BLOCK: Final = 128  # inputs per scale: what published files have
_COMPRESSED: Final = {"i32": 4, "i8": 8}  # integers with scales in a tensor of their own: bits
_COMPRESSED_GROUP: Final = 32
_USUAL_GROUP: Final = 64  # where only the file's bytes tell the group


class WeightForm(NamedTuple):
    """A tensor in memory: its kind, one of `KINDS`, its bytes and how many weights it has."""

    kind: str
    nbytes: int
    num_weights: int


def weight_form(checkpoint: Checkpoint, name: str) -> WeightForm:
    """Return what a tensor becomes when it is loaded; nothing but headers is read."""
    shape = checkpoint.shape(name)
    count = int(np.prod(shape, dtype=np.int64))
    if len(shape) < 2:
        return WeightForm("f32", 4 * count, count)
    outputs, inputs = count // shape[-1], shape[-1]
    layout = checkpoint.tile_layout(name) if isinstance(checkpoint, PackedCheckpoint) else None
    if layout is not None:
        kind = "fp8" if layout.fp8 else f"int{layout.bits}"
        return WeightForm(kind, layout.nbytes, count)
    kind, layout = _stored_as(checkpoint.format_name(name).lower(), inputs)
    if layout is not None:
        nbytes = replace(layout, num_outputs=outputs).nbytes
    else:
        nbytes = -(-outputs // TILE) * TILE * _float_row_bytes(kind, inputs)
    return WeightForm(kind, nbytes, count)


def _float_row_bytes(kind: str, inputs: int) -> int:
    scales = -(-inputs // _FP8_BLOCK) * 4 if kind == "fp8" else 0
    return inputs * _FLOAT_BYTES[kind] + scales


@cache
def _stored_as(format_name: str, inputs: int) -> tuple[str, TileLayout | None]:
    """Return the kind of a format's matrices with so many inputs, and their layout."""
    if format_name in FORMATS:
        block_format = FORMATS[format_name]
        rows = np.zeros((TILE, block_format.row_bytes(inputs)), np.uint8)
        return _kind_of(block_format.to_stored(rows))
    if format_name in MATRIX_FORMATS:
        matrix_format = MATRIX_FORMATS[format_name]
        shape = MatrixShape(TILE, inputs, _USUAL_GROUP)
        weights = np.zeros((TILE, matrix_format.row_bytes(inputs)), np.uint8)
        scales = np.zeros(matrix_format.scale_bytes(shape), np.uint8)
        return _kind_of(matrix_format.to_stored(weights, scales, shape))
    if format_name in _COMPRESSED:
        bits = _COMPRESSED[format_name]
        layout = TileLayout(TILE, inputs, bits, _COMPRESSED_GROUP, 1 << (bits - 1), 4)
        return f"int{bits}", layout
    return "fp8" if format_name == _FP8 else "f32", None


def _kind_of(stored: RowTensor) -> tuple[str, TileLayout | None]:
    if isinstance(stored, IntTensor):
        return f"int{stored.bits}", TileLayout.of(stored)
    if isinstance(stored, Fp8Tensor):
        return "fp8", None
    assert isinstance(stored, FloatTensor)
    names = {"uint16": "bf16", "float16": "f16"}
    return names.get(str(stored.array.dtype), "f32"), None
