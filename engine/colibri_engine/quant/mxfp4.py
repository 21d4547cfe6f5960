"""MXFP4: w = e2m1 * 2^(e - 127), blocks of 32. Held as it is: 4 bits, a byte for each scale.

Three layouts exist: blocks of GGUF files (`FORMAT`), the separate blocks and scales of checkpoints
(`from_blocks`), and rows of nibbles with rows of scales (`ROWS`).
Source: OCP Microscaling Formats (MX) specification, version 1.0; the GGUF format description,
type 39.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from colibri_engine.quant.base import (
    POWERS,
    Bytes,
    Floats,
    IntTensor,
    MatrixFormat,
    MatrixShape,
    QuantFormat,
    unpack_stored,
)
from colibri_engine.quant.e2m1 import DOUBLED, LEVELS, ZERO
from colibri_engine.quant.nibbles import join_nibbles, join_pairs, split_nibbles, split_pairs

GROUP: Final = 32

_BLOCK: Final = np.dtype([("e", "u1"), ("q", "V16")])


def from_blocks(blocks: Bytes, scales: Bytes) -> IntTensor:
    """Return a matrix of a checkpoint that keeps blocks and scales apart (gpt_oss).

    Args:
        blocks: (R, G, 16) uint8, the even input in the low nibble.
        scales: (R, G) uint8; 255 is a scale that is NaN.
    """
    return from_rows(blocks.reshape(blocks.shape[0], -1), scales, blocks.shape[1] * GROUP)


def from_rows(packed: Bytes, scales: Bytes, num_inputs: int) -> IntTensor:
    """Return a matrix of plain rows of nibbles.

    Args:
        packed: (R, ceil(I / 2)) uint8, the even input in the low nibble.
        scales: (R, ceil(I / 32)) uint8; 255 is a scale that is NaN.
        num_inputs: I.
    """
    return _in_levels(split_pairs(packed, num_inputs), scales)


def _rows_to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    return from_rows(weights, scales.reshape(shape.num_outputs, -1), shape.num_inputs)


def _to_codes(raw: Bytes) -> IntTensor:
    blocks = raw.view(_BLOCK)  # (R, G); value i in the low nibble of byte i, i + 16 in the high
    R = blocks.shape[0]
    codes = split_nibbles(blocks["q"].reshape(-1)).reshape(R, -1)
    return _in_levels(codes, np.ascontiguousarray(blocks["e"]))


def _in_levels(codes: Bytes, scales: Bytes) -> IntTensor:
    """Return the matrix; levels are doubled values, and scales in bytes half of 2^(e - 127)."""
    return IntTensor(
        codes=codes,
        scales=scales,
        zero=ZERO,
        mins=None,
        bits=4,
        group=GROUP,
        levels=LEVELS,
    )


def _pack(values: Floats) -> Bytes:
    R = values.shape[0]
    groups = values.reshape(-1, GROUP)
    largest = np.abs(groups).max(axis=1)
    _, exponent = np.frexp(largest)  # largest = m * 2^exponent, 0.5 <= m < 1; 6 = 0.75 * 2^3
    e = np.where(largest > 0, exponent + 124, 0).astype(np.uint8)
    steps = groups / POWERS[e][:, None]
    nearest = np.abs(steps[:, :, None] - DOUBLED.astype(np.float32)).argmin(axis=2)
    blocks = np.empty(groups.shape[0], _BLOCK)
    blocks["e"] = e
    blocks["q"] = join_nibbles(nearest.astype(np.uint8)).view("V16")[:, 0]
    return blocks.view(np.uint8).reshape(R, -1)


FORMAT: Final = QuantFormat("mxfp4", GROUP, 17, unpack_stored(_to_codes), _to_codes, _pack)
ROWS: Final = MatrixFormat(
    "mxfp4",
    row_bytes=lambda num_inputs: -(-num_inputs // 2),
    scale_bytes=lambda shape: shape.num_outputs * -(-shape.num_inputs // GROUP),
    to_stored=_rows_to_stored,
    join=join_pairs,
)
