"""E2M1, a float of four bits, as integers.

The low three bits of a code give the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6, the fourth the sign.
Doubled they are the integers -12..12; made unsigned with the zero point 12 they are codes for
grouped integers, whose scale is then half of the format's.
Source: OCP Microscaling Formats (MX) specification, version 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant.nibbles import split_pairs

if TYPE_CHECKING:
    from colibri_engine.quant.base import Bytes

DOUBLED: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
ZERO: Final = 12
CODES: Final = (DOUBLED + np.int8(ZERO)).astype(np.uint8)


def e2m1_codes(packed: Bytes, num_inputs: int) -> Bytes:
    """Return the codes of rows of nibbles, the even input in the low one.

    Args:
        packed: (R, ceil(I / 2)) uint8.
        num_inputs: I.

    Returns:
        (R, I) uint8: twice the value, plus ZERO.
    """
    return CODES[split_pairs(packed, num_inputs)]
