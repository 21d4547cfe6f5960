"""Q5_0: w = d * (q - 16). Blocks of 32 in 22 bytes: d f16, 4 bytes of high bits, nibbles.

Bit i of the little-endian high word is bit 4 of value i; nibbles as in Q4_0. Held as 8-bit codes.
Source: the GGUF format description, type 6.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.nibbles import split_nibbles, spread_bits

_BLOCK: Final = np.dtype([("d", "<f2"), ("high", "u1", 4), ("q", "V16")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G)
    R = blocks.shape[0]
    codes = split_nibbles(blocks["q"].reshape(-1))
    codes |= spread_bits(blocks["high"].reshape(-1, 4))
    return IntTensor(
        codes=codes.reshape(R, -1),
        scales=np.ascontiguousarray(blocks["d"]),
        zero=16,
        mins=None,
        bits=8,
        group=32,
    )


FORMAT: Final = QuantFormat("q5_0", 32, 22, unpack_stored(_to_codes), _to_codes)
