"""The rotation under which some matrices are stored: signs, then a Walsh-Hadamard transform.

A row of n values is cut into blocks whose lengths are powers of two. Each block is multiplied by
fixed signs, transformed, and divided by the square root of its length. The whole is orthogonal, so
a product with a rotated matrix equals the product with the plain one when the activations are
rotated too. The arithmetic is float32 in one fixed order, the same here and in the kernels.
Source: docs/numerics.md, "Rotated matrices".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

_MAX_BLOCK: Final = 1 << 15
_SEED: Final = 417
_WORD: Final = (1 << 64) - 1
_MULTIPLIER: Final = 2685821657736338717


def block_lengths(num_values: int) -> list[int]:
    """Return the blocks a row is cut into, in order: powers of two, smallest first."""
    lengths = []
    while num_values:
        length = min(num_values & -num_values, _MAX_BLOCK)
        lengths.append(length)
        num_values -= length
    return lengths


@cache
def signs(length: int) -> Floats:
    """Return the signs of one block, +1 or -1, (length,) float32.

    Bits, lowest first, of the top bytes of a xorshift64* sequence (Vigna, arXiv 1402.6246).
    """
    state = _SEED + length
    drawn = bytearray()
    for _ in range(-(-length // 8)):
        state ^= state >> 12
        state = (state ^ state << 25) & _WORD
        state ^= state >> 27
        drawn.append((state * _MULTIPLIER & _WORD) >> 56)
    bits = np.unpackbits(np.frombuffer(drawn, np.uint8), count=length, bitorder="little")
    values = np.where(bits, np.float32(-1), np.float32(1))
    values.flags.writeable = False
    return values


def rotate(values: Floats) -> Floats:
    """Return the rows of (R, I) values rotated, as a new array."""
    rotated = np.array(values, np.float32)
    begin = 0
    for length in block_lengths(values.shape[1]):
        block = rotated[:, begin : begin + length] * signs(length)
        rotated[:, begin : begin + length] = _transform(block)
        begin += length
    return rotated


def rotate_back(values: Floats) -> Floats:
    """Return the rows that `rotate` turns into these, up to the rounding of both."""
    restored = np.array(values, np.float32)
    begin = 0
    for length in block_lengths(values.shape[1]):
        block = _transform(restored[:, begin : begin + length].copy())
        restored[:, begin : begin + length] = block * signs(length)
        begin += length
    return restored


def _transform(block: Floats) -> Floats:
    """Transform the rows of (R, length), in place: neighbours first, halves last."""
    R, length = block.shape
    step = 1
    while step < length:
        pairs = block.reshape(R, -1, 2, step)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        difference = first - second
        first += second
        second[...] = difference
        step *= 2
    block *= np.float32(1 / np.sqrt(length))
    return block
