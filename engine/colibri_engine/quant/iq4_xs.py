"""IQ4_XS: w = (d * (scale - 32)) * level(q), groups of 32. Blocks of 256 in 136 bytes.

d f16, 16 bits with the two high bits of eight scales, 4 bytes with their low nibbles (the even
group low), 128 bytes of nibbles, 16 for each group, which lie as in Q4_0 and number the 16 levels.
Scales become float32, exactly. Held as they are, in 4 bits.
Source: the GGUF format description, type 23.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.iq4_levels import LEVELS, ZERO
from colibri_engine.quant.nibbles import split_nibbles, split_pairs

_BLOCK: Final = np.dtype([("d", "<f2"), ("high", "<u2"), ("low", "u1", 4), ("q", "V16", 8)])
_SHIFTS: Final = np.arange(0, 16, 2, dtype=np.uint16)  # bit pair of each group


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK).reshape(-1)
    R = raw.shape[0]
    high = (blocks["high"][:, None] >> _SHIFTS) & np.uint16(3)  # (N, 8)
    scales = (split_pairs(blocks["low"], 8) | (high << np.uint16(4))).astype(np.float32)
    scales -= np.float32(32)
    scales *= blocks["d"].astype(np.float32)[:, None]
    return IntTensor(
        codes=split_nibbles(blocks["q"].reshape(-1)).reshape(R, -1),
        scales=scales.reshape(R, -1),
        zero=ZERO,
        mins=None,
        bits=4,
        group=32,
        levels=LEVELS,
    )


FORMAT: Final = QuantFormat("iq4_xs", 256, 136, unpack_stored(_to_codes), _to_codes)
