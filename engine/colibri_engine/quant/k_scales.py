"""The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minimums.

Bytes 0..3 hold scales 0..3 in their low six bits, bytes 4..7 minimums 0..3; the two top bits of
each belong to entries 4..7, whose low four bits are the nibbles of bytes 8..11 (scale low).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def unpack_scales(
    packed: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return (N, 12) packed bytes as scales (N, 8) and minimums (N, 8), each below 64."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.empty((packed.shape[0], 8), np.uint8)
    mins = np.empty_like(scales)
    scales[:, :4] = first & 0x3F
    mins[:, :4] = second & 0x3F
    scales[:, 4:] = (third & 0x0F) | ((first >> 2) & 0x30)
    mins[:, 4:] = (third >> 4) | ((second >> 2) & 0x30)
    return scales, mins
