"""fp8-e4m3-b128: w = e4m3 * scale of its block of 128 x 128, held as codes and scales.

Weights O * I bytes; scales in rows of blocks, float32 or one byte UE8M0 each; blocks at the edges
may be ragged.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, MatrixFormat, MatrixShape, RowTensor
from colibri_engine.quant.fp8_blocks import fp8_matrix
from colibri_engine.quant.ue8m0 import UE8M0

if TYPE_CHECKING:
    from colibri_engine.quant.base import Fp8Tensor

BLOCK: Final = 128
_MANTISSA_BITS: Final = 23  # of a float32


def num_blocks(shape: MatrixShape) -> int:
    """Return the blocks of a matrix."""
    return -(-shape.num_outputs // BLOCK) * -(-shape.num_inputs // BLOCK)


def _scaled(weights: Bytes, scales: Floats, shape: MatrixShape) -> RowTensor:
    columns = -(-shape.num_inputs // BLOCK)
    return fp8_matrix(weights, scales.reshape(-1, columns), (BLOCK, BLOCK))


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> RowTensor:
    return _scaled(weights, scales.view("<f4"), shape)


def _to_stored_ue8m0(weights: Bytes, scales: Bytes, shape: MatrixShape) -> RowTensor:
    return _scaled(weights, UE8M0[scales], shape)


def block_scales(stored: Fp8Tensor) -> Floats:
    """Return the scales of blocks, (blocks below each other, beside each other).

    Raises:
        ValueError: the rows of a block differ in scale, or blocks are not as wide.
    """
    num_outputs, num_inputs = stored.shape
    scales = np.ascontiguousarray(stored.scales[::BLOCK])
    if scales.shape[1] != -(-num_inputs // BLOCK) or not np.array_equal(
        np.repeat(scales, BLOCK, axis=0)[:num_outputs], stored.scales
    ):
        raise ValueError("scales that are not those of blocks")
    return scales


def powers(scales: Floats) -> Bytes:
    """Return scales as bytes UE8M0.

    Raises:
        ValueError: one is no power of two.
    """
    found = (scales.view(np.uint32) >> np.uint32(_MANTISSA_BITS) & np.uint32(255)).astype(np.uint8)
    if not np.array_equal(UE8M0[found], scales):
        raise ValueError("a scale that is no power of two")
    return found


FORMAT: Final = MatrixFormat(
    "fp8-e4m3-b128",
    row_bytes=lambda num_inputs: num_inputs,
    scale_bytes=lambda shape: 4 * num_blocks(shape),
    to_stored=_to_stored,
)
FORMAT_UE8M0: Final = MatrixFormat(  # stamps call it as they call the other
    "fp8-e4m3-b128-ue8m0",
    row_bytes=lambda num_inputs: num_inputs,
    scale_bytes=num_blocks,
    to_stored=_to_stored_ue8m0,
)
NAMES: Final = frozenset({FORMAT.name, FORMAT_UE8M0.name})
