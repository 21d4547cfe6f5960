"""NVFP4: w = e2m1 * e4m3 scale per 16 inputs * one float32 for the matrix. Held in 4 bits.

The global factor is in none of the two tensors a `MatrixFormat` knows; `with_factor` applies it to
the scales, where it is rounded once.
Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, section 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape
from colibri_engine.quant.e2m1 import LEVELS, ZERO
from colibri_engine.quant.e4m3 import E4M3
from colibri_engine.quant.nibbles import split_pairs

GROUP: Final = 16

_HALF: Final = np.float32(0.5)  # levels are doubled values


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return IntTensor(
        codes=split_pairs(weights, shape.num_inputs),
        scales=(E4M3[scales] * _HALF).reshape(shape.num_outputs, -1),
        zero=ZERO,
        mins=None,
        bits=4,
        group=GROUP,
        levels=LEVELS,
    )


def with_factor(stored: IntTensor, factor: np.float32) -> IntTensor:
    """Return the matrix times the factor that all of its groups share."""
    with np.errstate(over="ignore", invalid="ignore"):  # whoever reads files refuses the result
        return replace(stored, scales=stored.scale_values * factor)


FORMAT: Final = MatrixFormat(
    "nvfp4",
    row_bytes=lambda num_inputs: -(-num_inputs // 2),
    scale_bytes=lambda shape: shape.num_outputs * -(-shape.num_inputs // GROUP),
    to_stored=_to_stored,
)
