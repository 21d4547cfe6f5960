"""What every number format offers, and the shapes weights take in memory.

A weight matrix is held as plain floats, as floats of eight bits with one scale per group of inputs,
or as grouped integers: unsigned codes, one scale per group and either one zero point for the whole
matrix or one minimum per group. The latter may come in the packed order of the kernels
(`quant.tiles`).
Knows bytes and arrays; knows no files and no tensor names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from colibri_engine.quant.e4m3 import E4M3
from colibri_engine.quant.rotation import rotate_back
from colibri_engine.quant.ue8m0 import powers_of_two

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_engine.quant.tiles import PackedTensor

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Scales = npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.uint8]

POWERS: Final = powers_of_two(128)  # what scales of one byte mean
MAX_FP8_SCALE: Final = 2.0**110  # as `kernels.Matrix.from_fp8` demands

_NOT_A_POWER: Final = 255
_FP8_MAGNITUDE: Final = np.uint8(0x7F)  # of a code; all bits set is a NaN
_INFINITE_HALF: Final = np.uint16(0x7C00)


@dataclass(frozen=True, slots=True, eq=False)
class FloatTensor:
    """Weights stored as floats.

    Args:
        array: float32, float16, or uint16 holding the bits of bfloat16.
    """

    array: npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.uint16]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, outermost first."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.array.nbytes

    def unpack(self) -> Floats:
        """Return the values as float32, exactly; a copy unless they already are."""
        if self.array.dtype == np.uint16:
            return bf16_to_f32(self.array.view(np.uint16))
        return self.array.astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class IntTensor:
    """Weights stored as grouped integers: w = scale * (code - zero), or scale * code + minimum.

    Args:
        codes: (O, I) uint8, below 2**bits.
        scales: (O, ceil(I / group)) float16 or float32; the last group may be short. Beside
            levels also uint8, s for 2^(s - 128), 255 for NaN.
        zero: The zero point of a symmetric format, else None.
        mins: As scales, for a format with a minimum, else None.
        bits: 4 or 8.
        group: Inputs that share one scale; a multiple of 16.
        rotated: Whether the values are those of the rotated matrix; see `quant.rotation`.
        levels: The 16 unsigned numbers, a byte each, that codes of 4 bits stand for; None where
            codes are the numbers themselves.
    """

    codes: Bytes
    scales: Scales
    zero: int | None
    mins: Scales | None
    bits: int
    group: int
    rotated: bool = False
    levels: bytes | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(O, I)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and minimums as they stand here."""
        return (
            self.codes.nbytes + self.scales.nbytes + (0 if self.mins is None else self.mins.nbytes)
        )

    @property
    def numbers(self) -> Bytes:
        """The numbers that codes stand for, (O, I) uint8: the codes themselves, or levels."""
        if self.levels is None:
            return self.codes
        return np.frombuffer(self.levels, np.uint8)[self.codes]

    @property
    def scale_values(self) -> Floats:
        """The scales as float32."""
        if self.scales.dtype == np.uint8:
            return POWERS[self.scales]
        return self.scales.astype(np.float32, copy=False)

    @property
    def is_finite(self) -> bool:
        """Whether every scale and minimum is a number."""
        return all_finite(self.scales) and (self.mins is None or all_finite(self.mins))

    def widened(self) -> IntTensor:
        """Return the same matrix without levels: their numbers as codes of 8 bits."""
        if self.levels is None:
            return self
        return replace(self, codes=self.numbers, scales=self.scale_values, bits=8, levels=None)

    def unpack(self) -> Floats:
        """Return the values as (O, I) float32, exactly: every product fits 24 bits.

        Those of a rotated matrix are rotated back, which rounds.
        """
        values = self.stored_values()
        return rotate_back(values) if self.rotated else values

    def stored_values(self) -> Floats:
        """Return the values as they stand, rotated where the matrix is."""
        num_outputs, num_inputs = self.codes.shape
        values = self.numbers.astype(np.float32)
        if self.zero is not None:
            values -= np.float32(self.zero)
        if num_inputs % self.group:
            values *= self._per_input(self.scale_values)
            if self.mins is not None:
                values += self._per_input(self.mins)
            return values
        groups = values.reshape(num_outputs, -1, self.group)
        groups *= self.scale_values[:, :, None]
        if self.mins is not None:
            groups += self.mins.astype(np.float32)[:, :, None]
        return values

    def _per_input(self, values: Scales) -> Floats:
        """Return (O, groups) as (O, I) float32."""
        num_inputs = self.codes.shape[1]
        repeated = np.repeat(values.astype(np.float32), min(self.group, num_inputs), axis=1)
        return repeated[:, :num_inputs]


@dataclass(frozen=True, slots=True, eq=False)
class Fp8Tensor:
    """Weights stored as floats of eight bits: w = scale * E4M3[code], rounded once to float32.

    Args:
        codes: (O, I) uint8, none of them a NaN.
        scales: (O, ceil(I / group)) float32, from 0 to 2^110; the last group may be short.
        group: Inputs that share one scale; a multiple of 16.
    """

    codes: Bytes
    scales: Floats
    group: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(O, I)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales as they stand here."""
        return self.codes.nbytes + self.scales.nbytes

    def unpack(self) -> Floats:
        """Return the values as (O, I) float32."""
        values = E4M3[self.codes]
        for number in range(self.scales.shape[1]):
            values[:, number * self.group :][:, : self.group] *= self.scales[:, number, None]
        return values


RowTensor: TypeAlias = FloatTensor | Fp8Tensor | IntTensor  # in rows, as number formats give it
StoredTensor: TypeAlias = "RowTensor | PackedTensor"


def stored_rows(tensor: StoredTensor, first: int, count: int) -> StoredTensor:
    """Return rows `first` to `first + count - 1` of a matrix, as views."""
    rows = slice(first, first + count)
    if isinstance(tensor, FloatTensor):
        return FloatTensor(tensor.array[rows])
    if isinstance(tensor, Fp8Tensor):
        return replace(tensor, codes=tensor.codes[rows], scales=tensor.scales[rows])
    if not isinstance(tensor, IntTensor):
        return stored_rows(tensor.to_codes(), first, count)
    return replace(
        tensor,
        codes=tensor.codes[rows],
        scales=tensor.scales[rows],
        mins=None if tensor.mins is None else tensor.mins[rows],
    )


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """One number format.

    Args:
        name: Its name in lower case ("q4_0").
        block_size: Values per block; 1 for plain floats.
        block_bytes: Bytes per block.
        unpack: (R, bytes of a row) uint8 -> (R, C) float32, exact.
        to_stored: The same bytes -> what the kernels take, exact.
        pack: (R, C) float32 -> (R, bytes of a row) uint8, rounding; None where not offered.
    """

    name: str
    block_size: int
    block_bytes: int
    unpack: Callable[[Bytes], Floats]
    to_stored: Callable[[Bytes], RowTensor]
    pack: Callable[[Floats], Bytes] | None = None

    def row_bytes(self, num_inputs: int) -> int:
        """Return the bytes of one row.

        Raises:
            ValueError: the row is not a whole number of blocks.
        """
        if num_inputs % self.block_size:
            raise ValueError(f"{num_inputs} is not a multiple of {self.block_size}")
        return num_inputs // self.block_size * self.block_bytes


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """Sizes of a matrix whose bytes do not tell them.

    Args:
        num_outputs: O.
        num_inputs: I.
        group: Inputs that share a scale, in a format that leaves it open.
    """

    num_outputs: int
    num_inputs: int
    group: int = 0

    @property
    def num_groups(self) -> int:
        """Groups of one output."""
        return -(-self.num_inputs // self.group)


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """A number format of whole matrices: weights in one tensor, scales in another.

    Args:
        name: Its name in files ("int4-grouped").
        row_bytes: Inputs -> bytes of one row of weights.
        scale_bytes: Shape -> bytes of all scales.
        to_stored: Weights (O, row_bytes) uint8, scales uint8 and shape -> what the kernels take.
        join: Codes (O, I) -> weights (O, row_bytes); the inverse of what `to_stored` does with
            codes. None for a format without codes.
        open_group: Whether the group is not part of the format.
    """

    name: str
    row_bytes: Callable[[int], int]
    scale_bytes: Callable[[MatrixShape], int]
    to_stored: Callable[[Bytes, Bytes, MatrixShape], RowTensor]
    join: Callable[[Bytes], Bytes] | None = None
    open_group: bool = False

    def weight_bytes(self, shape: MatrixShape) -> int:
        """Return the bytes of the weights."""
        return shape.num_outputs * self.row_bytes(shape.num_inputs)

    def unpack(self, weights: Bytes, scales: Bytes, shape: MatrixShape) -> Floats:
        """Return the values as (O, I) float32."""
        return self.to_stored(weights, scales, shape).unpack()


def row_group(num_inputs: int) -> int:
    """Return the group that makes one scale serve a whole row: a multiple of 64."""
    return -(-num_inputs // 64) * 64


def all_finite(values: Scales) -> bool:
    """Tell whether every scale is a number."""
    if values.dtype == np.uint8:
        return bool((values != _NOT_A_POWER).all())
    if values.dtype == np.float16:  # numpy tests these one by one; their bits go faster
        return bool(((values.view(np.uint16) & _INFINITE_HALF) != _INFINITE_HALF).all())
    return bool(np.isfinite(values).all())


def is_number(codes: Bytes) -> bool:
    """Tell whether no E4M3 code is a NaN."""
    return not bool(((codes & _FP8_MAGNITUDE) == _FP8_MAGNITUDE).any())


def is_held_scale(scales: Floats) -> bool:
    """Tell whether the kernels can multiply E4M3 codes by all of these; NaN is none."""
    return bool(((scales >= 0) & (scales <= MAX_FP8_SCALE)).all())


def bf16_to_f32(bits: npt.NDArray[np.uint16]) -> Floats:
    """Return bfloat16 bits as float32: the upper half of the same number."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def unpack_stored(to_stored: Callable[[Bytes], RowTensor]) -> Callable[[Bytes], Floats]:
    """Return the `unpack` that follows from an exact `to_stored`."""

    def unpack(raw: Bytes) -> Floats:
        return to_stored(raw).unpack()

    return unpack
