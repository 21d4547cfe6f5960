"""int3-g64: w = (u - 4) * s in groups of 64 inputs. Held as 4-bit codes.

A group has 24 bytes: 16 with the two low bits of each value (as in int2-row), 8 with the high bit
(value k at bit k mod 8 of byte k / 8). The last group of a row is padded with u = 4. Scales
float32, one per group.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape
from colibri_engine.quant.nibbles import join_quarters, split_quarters

_GROUP: Final = 64
_GROUP_BYTES: Final = 24
_LOW_BYTES: Final = 16
_ZERO: Final = 4


def _num_groups(num_inputs: int) -> int:
    return -(-num_inputs // _GROUP)


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    planes = weights.reshape(-1, _GROUP_BYTES)
    codes = split_quarters(planes[:, :_LOW_BYTES], _GROUP)  # (groups, 64)
    codes |= np.unpackbits(planes[:, _LOW_BYTES:], axis=1, bitorder="little") << np.uint8(2)
    rows = codes.reshape(shape.num_outputs, -1)
    return IntTensor(
        codes=np.ascontiguousarray(rows[:, : shape.num_inputs]),
        scales=scales.view("<f4").reshape(shape.num_outputs, -1),
        zero=_ZERO,
        mins=None,
        bits=4,
        group=_GROUP,
    )


def _join(codes: Bytes) -> Bytes:
    R, num_inputs = codes.shape
    padded = np.full((R, _num_groups(num_inputs) * _GROUP), _ZERO, np.uint8)
    padded[:, :num_inputs] = codes
    groups = padded.reshape(-1, _GROUP)
    planes = np.empty((groups.shape[0], _GROUP_BYTES), np.uint8)
    planes[:, :_LOW_BYTES] = join_quarters(groups & np.uint8(3))
    planes[:, _LOW_BYTES:] = np.packbits(groups >> np.uint8(2), axis=1, bitorder="little")
    return planes.reshape(R, -1)


FORMAT: Final = MatrixFormat(
    "int3-g64",
    row_bytes=lambda num_inputs: _num_groups(num_inputs) * _GROUP_BYTES,
    scale_bytes=lambda shape: 4 * shape.num_outputs * _num_groups(shape.num_inputs),
    to_stored=_to_stored,
    join=_join,
)
