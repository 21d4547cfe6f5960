"""int4-grouped: w = (n - 8) * s, one scale per group of inputs of one output.

Nibbles as in int4-row; scales float32, (O, ceil(I / group)) in rows.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import Final

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape
from colibri_engine.quant.nibbles import join_pairs, split_pairs

GROUPS: Final = (16, 32, 48, 64, 96, 128, 192, 256)


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return IntTensor(
        codes=split_pairs(weights, shape.num_inputs),
        scales=scales.view("<f4").reshape(shape.num_outputs, -1),
        zero=8,
        mins=None,
        bits=4,
        group=shape.group,
    )


FORMAT: Final = MatrixFormat(
    "int4-grouped",
    row_bytes=lambda num_inputs: -(-num_inputs // 2),
    scale_bytes=lambda shape: 4 * shape.num_outputs * shape.num_groups,
    to_stored=_to_stored,
    join=join_pairs,
    open_group=True,
)
