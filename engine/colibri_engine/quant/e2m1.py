"""E2M1, a float of four bits, as integers.

The low three bits of a code give the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6, the fourth the sign.
Doubled they are integers from -12 to 12; made unsigned with the zero point 12 they are the levels
of grouped integers, whose scale is then half of the format's.
Source: OCP Microscaling Formats (MX) specification, version 1.0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

DOUBLED: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
ZERO: Final = 12
LEVELS: Final = (DOUBLED + np.int8(ZERO)).astype(np.uint8).tobytes()
