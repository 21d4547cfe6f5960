"""UE8M0: a scale of eight bits that is a power of two, 2^(byte - 127); 255 is NaN.

Source: OCP Microscaling Formats (MX) specification, version 1.0, section 5.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from colibri_engine.quant.base import Floats


def powers_of_two(bias: int) -> Floats:
    """Return the 256 values 2^(byte - bias) as float32, the last one NaN.

    Args:
        bias: 127 for the scale itself; 128 for its half. Both are exact in float32.
    """
    powers = np.ldexp(1.0, np.arange(255) - bias)
    return np.append(powers, np.nan).astype(np.float32)


UE8M0: Final = powers_of_two(127)
