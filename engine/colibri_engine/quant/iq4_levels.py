"""The 16 uneven levels to which IQ4_NL and IQ4_XS round: finer near zero."""

from __future__ import annotations

from typing import Final

import numpy as np

ZERO: Final = 128  # makes the levels unsigned

_SIGNED: Final = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16
)
LEVELS: Final = (_SIGNED + np.int16(ZERO)).astype(np.uint8).tobytes()
