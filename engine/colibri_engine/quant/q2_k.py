"""Q2_K: w = (d * scale) * q - dmin * minimum, groups of 16. Blocks of 256 in 84 bytes.

16 bytes with a 4-bit scale (low) and a 4-bit minimum (high) per group, 64 bytes of codes, d f16,
dmin f16. Each half of 128 values has 32 bytes of codes: bit pair k of byte i is value 32 k + i.
Scales and minimums become float32, exactly. Held as 4-bit codes.
Source: the GGUF format description, type 10.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.bit_pairs import split_bit_pairs

_BLOCK: Final = np.dtype([("s", "u1", 16), ("q", "u1", (2, 32)), ("d", "<f2"), ("dmin", "<f2")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK).reshape(-1)
    R = raw.shape[0]
    d, dmin = (blocks[field].astype(np.float32)[:, None] for field in ("d", "dmin"))
    packed = blocks["s"]
    return IntTensor(
        codes=split_bit_pairs(blocks["q"]).reshape(R, -1),
        scales=(d * (packed & np.uint8(0x0F))).reshape(R, -1),
        zero=None,
        mins=(-(dmin * (packed >> np.uint8(4)))).reshape(R, -1),
        bits=4,
        group=16,
    )


FORMAT: Final = QuantFormat("q2_k", 256, 84, unpack_stored(_to_codes), _to_codes)
