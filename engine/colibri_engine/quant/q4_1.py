"""Q4_1: w = d * q + m. Blocks of 32 in 20 bytes: d f16, m f16, 16 bytes of nibbles.

Byte i holds value i in its low nibble and value i + 16 in its high one.
Source: the GGUF format description, type 3.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.nibbles import join_nibbles, split_nibbles

_BLOCK: Final = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "V16")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G)
    R = blocks.shape[0]
    return IntTensor(
        codes=split_nibbles(blocks["q"].reshape(-1)).reshape(R, -1),
        scales=np.ascontiguousarray(blocks["d"]),
        zero=None,
        mins=np.ascontiguousarray(blocks["m"]),
        bits=4,
        group=32,
    )


def _pack(values: Floats) -> Bytes:
    R = values.shape[0]
    groups = values.reshape(-1, 32)
    low = groups.min(axis=1, keepdims=True)
    d = (groups.max(axis=1, keepdims=True) - low) / np.float32(15)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    codes = np.clip(np.trunc((groups - low) * inverse + np.float32(0.5)), 0, 15).astype(np.uint8)
    blocks = np.empty(groups.shape[0], _BLOCK)
    blocks["d"] = d[:, 0].astype(np.float16)
    blocks["m"] = low[:, 0].astype(np.float16)
    blocks["q"] = join_nibbles(codes).view("V16")[:, 0]
    return blocks.view(np.uint8).reshape(R, -1)


FORMAT: Final = QuantFormat("q4_1", 32, 20, unpack_stored(_to_codes), _to_codes, _pack)
