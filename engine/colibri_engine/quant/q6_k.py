"""Q6_K: w = (d * scale) * (q - 32), groups of 16. Blocks of 256 in 210 bytes.

128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, d f16. Each half of 128
values has 64 bytes of nibbles (values 0..63 low, 64..127 high) and 32 bytes of pairs (pair k of
byte i belongs to value 32 k + i). Scales become float32, exactly. Held as 8-bit codes.
Source: the GGUF format description, type 14.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.nibbles import split_nibbles

_BLOCK: Final = np.dtype([("q", "V16", 8), ("high", "u1", (2, 32)), ("s", "i1", 16), ("d", "<f2")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK).reshape(-1)
    R = raw.shape[0]
    # (N, half, 16-byte piece, low | high, 16) -> (N, half, low | high, piece, 16)
    nibbles = split_nibbles(blocks["q"].reshape(-1)).reshape(-1, 2, 4, 2, 16)
    codes = np.ascontiguousarray(nibbles.transpose(0, 1, 3, 2, 4)).reshape(-1, 2, 4, 32)
    high = blocks["high"]  # (N, half, 32)
    for pair in range(4):
        codes[:, :, pair] |= ((high >> np.uint8(2 * pair)) & np.uint8(3)) << np.uint8(4)
    return IntTensor(
        codes=codes.reshape(R, -1),
        scales=(blocks["d"].astype(np.float32)[:, None] * blocks["s"]).reshape(R, -1),
        zero=32,
        mins=None,
        bits=8,
        group=16,
    )


FORMAT: Final = QuantFormat("q6_k", 256, 210, unpack_stored(_to_codes), _to_codes)
