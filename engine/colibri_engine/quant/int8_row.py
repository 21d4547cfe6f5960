"""int8-row: w = q * s, q signed, one scale per output. Held as unsigned codes, zero point 128.

Weights O * I signed bytes, scales O float32.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape, row_group

_SIGN_BIT: Final = np.uint8(0x80)


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return IntTensor(
        codes=weights ^ _SIGN_BIT,  # two's complement + 128
        scales=scales.view("<f4").reshape(shape.num_outputs, 1),
        zero=128,
        mins=None,
        bits=8,
        group=row_group(shape.num_inputs),
    )


def _join(codes: Bytes) -> Bytes:
    return codes ^ _SIGN_BIT


FORMAT: Final = MatrixFormat(
    "int8-row",
    row_bytes=lambda num_inputs: num_inputs,
    scale_bytes=lambda shape: 4 * shape.num_outputs,
    to_stored=_to_stored,
    join=_join,
)
