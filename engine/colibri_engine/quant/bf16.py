"""BF16: the upper half of a float32; held as its 16 bits, since numpy has no such type."""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, FloatTensor, QuantFormat, unpack_stored


def _to_stored(raw: Bytes) -> FloatTensor:
    return FloatTensor(raw.view("<u2"))


def _pack(values: Floats) -> Bytes:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # ties to even
    nan = (bits & 0x7FFFFFFF) > 0x7F800000  # keep NaN a NaN
    halves = np.where(nan, (bits >> 16) | 0x40, rounded).astype("<u2")
    return np.ascontiguousarray(halves).view(np.uint8)


FORMAT: Final = QuantFormat("bf16", 1, 2, unpack_stored(_to_stored), _to_stored, _pack)
