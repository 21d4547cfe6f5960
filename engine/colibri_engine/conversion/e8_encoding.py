"""Rounding to e8-iq3-lattice: per 32 weights the scale, per 4 the table entry, that err least.

The matrix is rotated first. d of a block of 256 follows from its size. Each of 16 scale codes is
tried where it could still be the best: a code errs at least as much as if every magnitude of the
table could stand beside every other. The arithmetic is float32 in one order, so rows give the same
bytes however they are cut.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant import e8
from colibri_engine.quant.rotation import rotate

if TYPE_CHECKING:
    import numpy.typing as npt

    from colibri_engine.quant.base import Bytes, Floats

_GROUP: Final = e8.GROUP
_SIZE_OF_D: Final = 20  # rms of a block / d
_MAX_D: Final = 65504.0  # the largest float16
_CODES: Final = (np.arange(16, dtype=np.float32) + np.float32(0.5)) / np.float32(4)
_GRID: Final = e8.GRID.astype(np.float32)
_SQUARES: Final = np.square(_GRID).sum(axis=1)
_LEVELS: Final = np.unique(_GRID)  # 4, 12, … 52, 62
_LAST_MIDDLE: Final = np.float32(57)  # the others are at multiples of 8
_CHUNK_GROUPS: Final = 512  # their products with the table stay in a core's cache
_SMALLEST: Final = np.float32(1e-30)


def encode(values: Floats) -> Bytes:
    """Return the bytes (R, I / 256 * 98) of rows (R, I); I is a multiple of 256.

    Raises:
        ValueError: a value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite")
    R = len(values)
    rotated = rotate(values).reshape(-1, e8.BLOCK)
    size = np.sqrt(np.square(rotated, dtype=np.float64).mean(axis=1))
    d = np.minimum(size / _SIZE_OF_D, _MAX_D).astype("<f2")
    steps = np.repeat(d.astype(np.float32)[:, None] * _CODES, e8.BLOCK // _GROUP, axis=0)
    groups = np.abs(rotated).reshape(-1, _GROUP)
    codes = np.empty(len(groups), np.uint32)
    indices = np.empty((len(groups), _GROUP // 4), np.uint8)
    for first in range(0, len(groups), _CHUNK_GROUPS):
        part = slice(first, first + _CHUNK_GROUPS)
        codes[part], indices[part] = _choose(groups[part], steps[part])
    blocks = np.empty(len(rotated), e8.LAYOUT)
    blocks["index"] = indices.reshape(-1, e8.BLOCK // 4)
    blocks["words"] = (_signs(rotated) | codes << np.uint32(28)).reshape(-1, e8.BLOCK // _GROUP)
    blocks["d"] = d
    return blocks.view(np.uint8).reshape(R, -1)


def _choose(groups: Floats, steps: Floats) -> tuple[npt.NDArray[np.uint32], Bytes]:
    """Return the scale code (N,) and the table entries (N, 8) of magnitudes (N, 32).

    Args:
        groups: The magnitudes.
        steps: (N, 16): what each code multiplies the table with.
    """
    quads = groups.reshape(-1, 4)
    products = quads[:, 0, None] * _GRID[:, 0]  # (8 N, 256)
    for place in range(1, 4):
        products += quads[:, place, None] * _GRID[:, place]
    products = products.reshape(len(groups), -1, len(_GRID)) * np.float32(2)
    bounds = _bounds(groups, steps)
    order = np.argsort(bounds, axis=1, kind="stable")
    least = np.full(len(groups), np.inf, np.float32)
    codes = np.zeros(len(groups), np.uint32)
    indices = np.zeros((len(groups), _GROUP // 4), np.uint8)
    for tried in order.T:
        rows = np.flatnonzero(np.take_along_axis(bounds, tried[:, None], 1)[:, 0] < least)
        if not rows.size:
            break
        step = steps[rows, tried[rows]]
        # Times the step, and with the square of the magnitudes: the squared error.
        found = (step[:, None, None] * _SQUARES - products[rows]).argmin(axis=2)
        rounded = _GRID[found].reshape(-1, _GROUP) * step[:, None]
        errors = np.square(groups[rows] - rounded).sum(axis=1)
        better = errors < least[rows]
        rows, found, errors = rows[better], found[better], errors[better]
        least[rows], codes[rows], indices[rows] = errors, tried[rows], found
    return codes, indices


def _bounds(groups: Floats, steps: Floats) -> Floats:
    """Return for each code (N, 16) what it errs at least."""
    bounds = np.empty_like(steps)
    for code in range(steps.shape[1]):
        step = steps[:, code, None]
        levels = np.minimum(groups / np.maximum(step, _SMALLEST), np.float32(63))
        places = (levels * np.float32(0.125)).astype(np.int8)
        places -= (places == len(_LEVELS) - 1) & (levels < _LAST_MIDDLE)
        bounds[:, code] = np.square(groups - _LEVELS[places] * step).sum(axis=1)
    return bounds * np.float32(1 - 2**-18)  # sums round, and a bound may not exceed the error


def _signs(rotated: Floats) -> npt.NDArray[np.uint32]:
    """Return the words with the signs of every 32 weights; where they are odd the least flips."""
    eights = rotated.reshape(-1, 8)
    negative = eights < 0
    odd = np.flatnonzero(negative.sum(axis=1) & 1)
    negative[odd, np.abs(eights[odd]).argmin(axis=1)] ^= True
    seven = np.packbits(negative[:, :7], axis=1, bitorder="little")[:, 0].astype(np.uint32)
    words: npt.NDArray[np.uint32] = np.bitwise_or.reduce(
        seven.reshape(-1, 4) << np.arange(0, 28, 7, dtype=np.uint32), axis=1
    )
    return words
