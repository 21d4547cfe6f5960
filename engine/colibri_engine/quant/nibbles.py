"""Splitting packed bits into one byte per code, at memory speed.

Strided copies of 16-byte items and arithmetic on 64-bit words do the work, a few thousand blocks
at a time so that the intermediate stays in the core's own cache.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_ITEM: Final = np.dtype("V16")
_CHUNK: Final = 8192  # items of 16 bytes: 128 KiB per buffer
_LOW_NIBBLES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTE: Final = np.arange(256, dtype=np.uint32)
_QUARTERS: Final = (
    (_BYTE & 3) | (_BYTE << 6 & 0x300) | (_BYTE << 12 & 0x30000) | (_BYTE << 18 & 0x3000000)
).astype("<u4")  # byte -> its four pairs of bits, one per byte


def split_nibbles(packed: npt.NDArray[np.void]) -> Bytes:
    """Return the low nibbles of each item, then its high nibbles, one per byte.

    Args:
        packed: (N,) items of 16 bytes (dtype V16), any stride.

    Returns:
        (N, 32) uint8.
    """
    num_items = packed.shape[0]
    out = np.empty((num_items, 2), _ITEM)
    size = min(_CHUNK, num_items)
    item, low, high = (np.empty(size, _ITEM) for _ in range(3))
    words, low_words, high_words = (buffer.view(np.uint64) for buffer in (item, low, high))
    for first in range(0, num_items, _CHUNK):
        count = min(_CHUNK, num_items - first)
        item[:count] = packed[first : first + count]
        np.bitwise_and(words, _LOW_NIBBLES, out=low_words)
        np.right_shift(words, np.uint64(4), out=high_words)
        np.bitwise_and(high_words, _LOW_NIBBLES, out=high_words)
        out[first : first + count, 0] = low[:count]
        out[first : first + count, 1] = high[:count]
    return out.view(np.uint8).reshape(num_items, 32)


def split_pairs(packed: Bytes, count: int) -> Bytes:
    """Return the low nibble of each byte, then its high one: (R, N) uint8 -> (R, count <= 2 N)."""
    words = packed.astype("<u2")
    high = words << np.uint16(4)
    words |= high
    words &= np.uint16(0x0F0F)
    return np.ascontiguousarray(words.view(np.uint8)[:, :count])


def join_pairs(codes: Bytes) -> Bytes:
    """Return the inverse of `split_pairs`: (R, I) codes below 16 -> (R, ceil(I / 2)) bytes.

    The high nibble of the last byte is 0 where I is odd.
    """
    joined: Bytes = codes[:, 0::2].copy()
    odd = codes[:, 1::2] << np.uint8(4)
    joined[:, : odd.shape[1]] |= odd
    return joined


def split_quarters(packed: Bytes, count: int) -> Bytes:
    """Return the pairs of bits of each byte, lowest first: (R, N) uint8 -> (R, count <= 4 N)."""
    return np.ascontiguousarray(_QUARTERS[packed].view(np.uint8)[:, :count])


def join_quarters(codes: Bytes) -> Bytes:
    """Return the inverse of `split_quarters`: (R, I) codes below 4 -> (R, ceil(I / 4)) bytes.

    Bits beyond the last code are 0.
    """
    R, count = codes.shape
    joined = np.zeros((R, -(-count // 4)), np.uint8)
    for place in range(4):
        part = codes[:, place::4] << np.uint8(2 * place)
        joined[:, : part.shape[1]] |= part
    return joined


def join_nibbles(codes: Bytes) -> Bytes:
    """Return the inverse of `split_nibbles`: (N, 32) codes below 16 -> (N, 16) bytes."""
    joined: Bytes = codes[:, :16] | (codes[:, 16:] << np.uint8(4))
    return joined


def spread_bits(bits: Bytes) -> Bytes:
    """Return (N, 4) bytes as (N, 32): bit i of the little-endian word, moved to 0x10."""
    spread: Bytes = np.unpackbits(bits, axis=1, bitorder="little")
    spread <<= np.uint8(4)
    return spread
