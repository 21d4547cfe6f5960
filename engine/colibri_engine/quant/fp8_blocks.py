"""E4M3 matrices whose blocks share a scale, as what the kernels take.

Codes and scales stay apart where the kernels can multiply them in passing; otherwise the matrix
becomes the float32 product. Both are the same values, each product rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant.base import (
    FloatTensor,
    Fp8Tensor,
    is_held_scale,
    is_number,
    row_group,
)
from colibri_engine.quant.e4m3 import E4M3, scale_blocks

if TYPE_CHECKING:
    from colibri_engine.quant.base import Bytes, Floats

_GROUP_STEP: Final = 16  # what a group of the kernels is a multiple of


def fp8_matrix(codes: Bytes, scales: Floats, block: tuple[int, int]) -> Fp8Tensor | FloatTensor:
    """Return a matrix; a product that is no number stays one, for the caller to refuse.

    Args:
        codes: (O, I) E4M3.
        scales: (ceil(O / block[0]), ceil(I / block[1])), not negative.
        block: Rows and columns of one block; those at the edges may be ragged.
    """
    num_outputs, num_inputs = codes.shape
    group = row_group(num_inputs) if scales.shape[1] == 1 else block[1]
    if group % _GROUP_STEP == 0 and is_held_scale(scales) and is_number(codes):
        rows = np.repeat(scales, block[0], axis=0)[:num_outputs]
        return Fp8Tensor(codes, np.ascontiguousarray(rows), group)
    with np.errstate(over="ignore", invalid="ignore"):
        return FloatTensor(scale_blocks(E4M3[codes], scales, block))


def transposed(matrix: Fp8Tensor) -> Fp8Tensor | FloatTensor:
    """Return the transposed matrix: in its own format where its rows share scales in runs."""
    num_outputs, num_inputs = matrix.shape
    for run in (128, 64, 32, _GROUP_STEP):
        firsts = matrix.scales[::run]
        if np.array_equal(np.repeat(firsts, run, axis=0)[:num_outputs], matrix.scales):
            scales = np.repeat(firsts.T, matrix.group, axis=0)[:num_inputs]
            codes = np.ascontiguousarray(matrix.codes.T)
            return Fp8Tensor(codes, np.ascontiguousarray(scales), run)
    return FloatTensor(matrix.unpack().T)
