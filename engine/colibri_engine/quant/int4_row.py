"""int4-row: w = (n - 8) * s, one scale per output.

Two values per byte, the even input in the low nibble; an odd row ends with a nibble of padding.
Scales O float32.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import Final

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape, row_group
from colibri_engine.quant.nibbles import join_pairs, split_pairs


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return IntTensor(
        codes=split_pairs(weights, shape.num_inputs),
        scales=scales.view("<f4").reshape(shape.num_outputs, 1),
        zero=8,
        mins=None,
        bits=4,
        group=row_group(shape.num_inputs),
    )


FORMAT: Final = MatrixFormat(
    "int4-row",
    row_bytes=lambda num_inputs: -(-num_inputs // 2),
    scale_bytes=lambda shape: 4 * shape.num_outputs,
    to_stored=_to_stored,
    join=join_pairs,
)
