"""F16: plain little-endian float16."""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, Floats, FloatTensor, QuantFormat, unpack_stored


def _to_stored(raw: Bytes) -> FloatTensor:
    return FloatTensor(raw.view("<f2"))


def _pack(values: Floats) -> Bytes:
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8)


FORMAT: Final = QuantFormat("f16", 1, 2, unpack_stored(_to_stored), _to_stored, _pack)
