"""FP8 E4M3: one byte per value, held as float32. Scales, where there are any, are multiplied on."""

from __future__ import annotations

from typing import Final

from colibri_engine.quant.base import Bytes, FloatTensor, QuantFormat, unpack_stored
from colibri_engine.quant.e4m3 import E4M3


def _to_stored(raw: Bytes) -> FloatTensor:
    return FloatTensor(E4M3[raw])


FORMAT: Final = QuantFormat("fp8_e4m3", 1, 1, unpack_stored(_to_stored), _to_stored)
