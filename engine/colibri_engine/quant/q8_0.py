"""Q8_0: w = d * q, q signed. Blocks of 32 in 34 bytes: d f16, 32 signed bytes.

Held as unsigned codes with zero point 128.
Source: the GGUF format description, type 8.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, IntTensor, QuantFormat, unpack_stored

_BLOCK: Final = np.dtype([("d", "<f2"), ("q", "V16", 2)])
_SIGN_BITS: Final = np.uint64(0x8080808080808080)


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G)
    R = blocks.shape[0]
    codes = blocks["q"].copy()  # (R, G, 2) items of 16 bytes
    words = codes.view(np.uint64)
    words ^= _SIGN_BITS  # two's complement + 128
    return IntTensor(
        codes=codes.view(np.uint8).reshape(R, -1),
        scales=np.ascontiguousarray(blocks["d"]),
        zero=128,
        mins=None,
        bits=8,
        group=32,
    )


def _pack(values: Floats) -> Bytes:
    R = values.shape[0]
    groups = values.reshape(-1, 32)
    d = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    scaled = groups * inverse
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero
    blocks = np.empty(groups.shape[0], _BLOCK)
    blocks["d"] = d[:, 0].astype(np.float16)
    blocks["q"] = np.ascontiguousarray(rounded.astype(np.int8)).view("V16")
    return blocks.view(np.uint8).reshape(R, -1)


FORMAT: Final = QuantFormat("q8_0", 32, 34, unpack_stored(_to_codes), _to_codes, _pack)
