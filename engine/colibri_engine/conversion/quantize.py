"""Rounding rows of weights to signed integers with one scale per row or per group of inputs.

    scale = max(max |w| / qmax, 1e-8), qmax = 2^(b-1) - 1
    code  = clip(rint(w / scale), -2^(b-1), qmax)

All in float32, halves to even. Rows do not know of each other, so blocks of rows give the same
bits as the whole matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant.base import FloatTensor, IntTensor, row_group

if TYPE_CHECKING:
    from colibri_engine.quant.base import Bytes, Floats

MIN_BITS: Final = 2
MAX_BITS: Final = 8

_SMALLEST_SCALE: Final = np.float32(1e-8)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_CHUNK_VALUES: Final = 1 << 18  # float32 values that stay in a core's cache


def quantize(tensor: FloatTensor, bits: int, group: int | None, zero: int) -> IntTensor:
    """Return rows of floats as grouped integers.

    Args:
        tensor: (R, I).
        bits: 2..8; the codes' width before the zero point.
        group: Inputs that share a scale; None for one scale per row.
        zero: What is added to make codes unsigned: 2^(bits-1), or 128 for codes stored in bytes.

    Raises:
        ValueError: a value is not finite.
    """
    array = tensor.array
    R, num_inputs = array.shape
    step = num_inputs if group is None else group
    codes = np.empty((R, num_inputs), np.uint8)
    scales = np.empty((R, -(-num_inputs // step)), np.float32)
    rows = max(1, _CHUNK_VALUES // num_inputs)
    for first in range(0, R, rows):
        part = slice(first, first + rows)
        values = FloatTensor(array[part]).unpack()
        _quantize_chunk(values, bits, step, zero, (codes[part], scales[part]))
    if not np.isfinite(scales).all():
        raise ValueError("a value is not finite")
    return IntTensor(
        codes=codes,
        scales=scales,
        zero=zero,
        mins=None,
        bits=4 if zero <= 8 else 8,
        group=row_group(num_inputs) if group is None else group,
    )


def _quantize_chunk(
    values: Floats, bits: int, step: int, zero: int, out: tuple[Bytes, Floats]
) -> None:
    codes, scales = out
    R, num_inputs = values.shape
    if num_inputs % step:  # the missing inputs of the last group count as zeros
        whole = np.zeros((R, scales.shape[1] * step), np.float32)
        whole[:, :num_inputs] = values
        values = whole
    values = np.ascontiguousarray(values)
    highest = (1 << (bits - 1)) - 1
    with np.errstate(invalid="ignore"):  # what is not finite shows in the scale
        largest = _largest_magnitudes(values, step).reshape(scales.shape)
        np.divide(largest, np.float32(highest), out=scales)
        np.maximum(scales, _SMALLEST_SCALE, out=scales)
        steps = values.reshape(R, -1, step) / scales[:, :, None]
        # The largest is highest * scale but for one rounding, so none needs to be clipped.
        np.rint(steps, out=steps)
        steps += np.float32(zero)
        unsigned = steps.astype(np.uint8)
    codes[...] = unsigned.reshape(R, -1)[:, :num_inputs]


def _largest_magnitudes(values: Floats, step: int) -> Floats:
    """Return max |w| of every `step` values; NaN or infinite where one of them is.

    Magnitudes are ordered as their bits are. Joining neighbours over the whole array is several
    times faster than reducing many short rows.
    """
    part = values.reshape(-1).view(np.uint32) & _MAGNITUDE
    while step % 2 == 0:
        part = np.maximum(part[0::2], part[1::2])
        step //= 2
    if step > 1:
        part = part.reshape(-1, step).max(axis=1)
    largest: Floats = part.view(np.float32)
    return largest
