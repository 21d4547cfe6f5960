"""IQ4_NL: w = d * level(q), groups of 32. Blocks of 32 in 18 bytes: d f16, 16 bytes of nibbles.

Nibbles lie as in Q4_0 and number the 16 levels. Held as they are, in 4 bits.
Source: the GGUF format description, type 20.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, QuantFormat, unpack_stored
from colibri_engine.quant.iq4_levels import LEVELS, ZERO
from colibri_engine.quant.nibbles import split_nibbles

_BLOCK: Final = np.dtype([("d", "<f2"), ("q", "V16")])


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G)
    R = blocks.shape[0]
    return IntTensor(
        codes=split_nibbles(blocks["q"].reshape(-1)).reshape(R, -1),
        scales=np.ascontiguousarray(blocks["d"]),
        zero=ZERO,
        mins=None,
        bits=4,
        group=32,
        levels=LEVELS,
    )


FORMAT: Final = QuantFormat("iq4_nl", 32, 18, unpack_stored(_to_codes), _to_codes)
