"""E4M3, a float of eight bits, and the blocks that share a scale.

Sign 1, exponent 4 (bias 7), mantissa 3, subnormals, no infinities, 0x7F and 0xFF are NaN, the
largest value is 448.
Source: OCP 8-bit Floating Point Specification (OFP8), version 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from colibri_engine.quant.base import Floats


def _table() -> Floats:
    codes = np.arange(256)
    exponent = (codes >> 3) & 15
    mantissa = codes & 7
    magnitude = np.where(
        exponent == 0,
        np.ldexp(mantissa.astype(np.float64), -9),
        np.ldexp(8.0 + mantissa, exponent - 10),
    )
    magnitude[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


E4M3: Final = _table()


def scale_blocks(values: Floats, scales: Floats, block: tuple[int, int]) -> Floats:
    """Multiply values (O, I), in place, by the scale of each block; edge blocks may be ragged.

    Args:
        values: (O, I).
        scales: (ceil(O / block[0]), ceil(I / block[1])).
        block: Rows and columns of one block.

    Returns:
        `values`.
    """
    for row in range(scales.shape[0]):
        rows = values[row * block[0] : (row + 1) * block[0]]
        rows *= np.repeat(scales[row], block[1])[: values.shape[1]]
    return values
