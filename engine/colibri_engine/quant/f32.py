"""F32: plain little-endian float32."""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, FloatTensor, QuantFormat, unpack_stored


def _to_stored(raw: Bytes) -> FloatTensor:
    return FloatTensor(raw.view("<f4"))


def _pack(values: Floats) -> Bytes:
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


FORMAT: Final = QuantFormat("f32", 1, 4, unpack_stored(_to_stored), _to_stored, _pack)
