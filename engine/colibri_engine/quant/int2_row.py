"""int2-row: w = (c - 2) * s, one scale per output. Held as 4-bit codes.

Four values per byte, the first in the lowest bits. Scales O float32.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import Final

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape, row_group
from colibri_engine.quant.nibbles import join_quarters, split_quarters


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return IntTensor(
        codes=split_quarters(weights, shape.num_inputs),
        scales=scales.view("<f4").reshape(shape.num_outputs, 1),
        zero=2,
        mins=None,
        bits=4,
        group=row_group(shape.num_inputs),
    )


FORMAT: Final = MatrixFormat(
    "int2-row",
    row_bytes=lambda num_inputs: -(-num_inputs // 4),
    scale_bytes=lambda shape: 4 * shape.num_outputs,
    to_stored=_to_stored,
    join=join_quarters,
)
