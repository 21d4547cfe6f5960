"""Q4_0: w = d * (q - 8). Blocks of 32 in 18 bytes: d f16, 16 bytes of nibbles.

Byte i holds value i in its low nibble and value i + 16 in its high one.
Source: the GGUF format description, type 2.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.nibbles import join_nibbles, split_nibbles

_BLOCK: Final = np.dtype([("d", "<f2"), ("q", "V16")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G)
    R = blocks.shape[0]
    return IntTensor(
        codes=split_nibbles(blocks["q"].reshape(-1)).reshape(R, -1),
        scales=np.ascontiguousarray(blocks["d"]),
        zero=8,
        mins=None,
        bits=4,
        group=32,
    )


def _pack(values: Floats) -> Bytes:
    R = values.shape[0]
    groups = values.reshape(-1, 32)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)
    d = largest / np.float32(-8)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    codes = np.clip(np.trunc(groups * inverse + np.float32(8.5)), 0, 15).astype(np.uint8)
    blocks = np.empty(groups.shape[0], _BLOCK)
    blocks["d"] = d[:, 0].astype(np.float16)
    blocks["q"] = join_nibbles(codes).view("V16")[:, 0]
    return blocks.view(np.uint8).reshape(R, -1)


FORMAT: Final = QuantFormat("q4_0", 32, 18, unpack_stored(_to_codes), _to_codes, _pack)
