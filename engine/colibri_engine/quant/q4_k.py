"""Q4_K: w = (d * scale) * q - dmin * minimum, groups of 32. Blocks of 256 in 144 bytes.

d f16, dmin f16, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles: 32 bytes hold two
consecutive groups, the first in the low nibbles. Scales and minimums become float32, exactly
(11 bits times 6).
Source: the GGUF format description, type 12.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.k_scales import unpack_scales
from colibri_engine.quant.nibbles import split_nibbles

_BLOCK: Final = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("s", "u1", 12), ("q", "V16", 8)])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK).reshape(-1)
    R = raw.shape[0]
    halves = split_nibbles(blocks["q"].reshape(-1)).reshape(-1, 2, 2, 16)
    # (pair, half of 32 bytes, low | high, 16) -> (pair, low | high, half, 16)
    codes = np.ascontiguousarray(halves.transpose(0, 2, 1, 3))
    scales, mins = unpack_scales(blocks["s"])
    d, dmin = (blocks[field].astype(np.float32)[:, None] for field in ("d", "dmin"))
    return IntTensor(
        codes=codes.reshape(R, -1),
        scales=(d * scales).reshape(R, -1),
        zero=None,
        mins=(-(dmin * mins)).reshape(R, -1),
        bits=4,
        group=32,
    )


FORMAT: Final = QuantFormat("q4_k", 256, 144, unpack_stored(_to_codes), _to_codes)
