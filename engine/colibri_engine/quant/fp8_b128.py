"""fp8-e4m3-b128: w = e4m3 * scale of its block of 128 x 128, held as codes and scales.

Weights O * I bytes; scales in rows of blocks, float32 or one byte UE8M0 each; blocks at the edges
may be ragged.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from functools import partial
from typing import Final

from colibri_engine.quant.base import Bytes, Floats, MatrixFormat, MatrixShape, RowTensor
from colibri_engine.quant.fp8_blocks import fp8_matrix
from colibri_engine.quant.ue8m0 import UE8M0

BLOCK: Final = 128


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


_one_scheme = partial(MatrixFormat, "fp8-e4m3-b128", row_bytes=lambda num_inputs: num_inputs)

FORMAT: Final = _one_scheme(scale_bytes=lambda shape: 4 * num_blocks(shape), to_stored=_to_stored)
FORMAT_UE8M0: Final = _one_scheme(scale_bytes=num_blocks, to_stored=_to_stored_ue8m0)
