"""The two-bit codes that Q2_K keeps alone and Q3_K together with a third bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from colibri_engine.quant.base import Bytes


def split_bit_pairs(packed: Bytes) -> Bytes:
    """Return one code per byte: pair k of byte i is code 32 k + i of its half.

    Args:
        packed: (N, 2, 32) uint8, the two halves of each block.

    Returns:
        (N, 2, 4, 32) uint8, below 4, in the order of the values.
    """
    codes = np.empty((packed.shape[0], 2, 4, 32), np.uint8)
    for pair in range(4):
        np.right_shift(packed, np.uint8(2 * pair), out=codes[:, :, pair])
    codes &= np.uint8(3)
    return codes
