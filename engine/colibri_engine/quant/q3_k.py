"""Q3_K: w = (d * (scale - 32)) * (q - 4), groups of 16. Blocks of 256 in 110 bytes.

32 bytes of high bits, 64 bytes of low bit pairs, 12 bytes of 6-bit scales, d f16. The pairs lie as
in Q2_K; bit 4 h + k of high byte i belongs to pair k of byte i in half h. Scales become float32,
exactly. Held as 4-bit codes.
Source: the GGUF format description, type 11.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.bit_pairs import split_bit_pairs

_BLOCK: Final = np.dtype([("high", "u1", 32), ("q", "u1", (2, 32)), ("s", "u1", 12), ("d", "<f2")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK).reshape(-1)
    R = raw.shape[0]
    codes = split_bit_pairs(blocks["q"])  # (N, half, pair, 32)
    high = blocks["high"]
    for half in range(2):
        for pair in range(4):
            bit = (high >> np.uint8(4 * half + pair)) & np.uint8(1)
            codes[:, half, pair] |= bit << np.uint8(2)
    d = blocks["d"].astype(np.float32)[:, None]
    return IntTensor(
        codes=codes.reshape(R, -1),
        scales=(d * _scales(blocks["s"])).reshape(R, -1),
        zero=4,
        mins=None,
        bits=4,
        group=16,
    )


def _scales(packed: Bytes) -> npt.NDArray[np.int8]:
    """Return (N, 12) packed bytes as (N, 16) scales, -32 to 31.

    Bytes 0..7 hold the low nibbles of scales 0..7 (low) and 8..15 (high); bit pair k of bytes
    8..11 the high bits of scales 4 k to 4 k + 3.
    """
    scales = np.empty((packed.shape[0], 16), np.uint8)
    scales[:, :8] = packed[:, :8] & np.uint8(0x0F)
    scales[:, 8:] = packed[:, :8] >> np.uint8(4)
    for pair in range(4):
        high = (packed[:, 8:] >> np.uint8(2 * pair)) & np.uint8(3)
        scales[:, 4 * pair : 4 * pair + 4] |= high << np.uint8(4)
    return scales.view(np.int8) - np.int8(32)


FORMAT: Final = QuantFormat("q3_k", 256, 110, unpack_stored(_to_codes), _to_codes)
