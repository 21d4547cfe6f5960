"""The packed order in which kernels read grouped integers and E4M3 codes, in numpy.

A matrix is cut into tiles of 16 outputs. Inside a tile, for every 4 inputs, 16 x 4 codes lie side
by side; at 4 bits two such blocks share 64 bytes, the even one in the low nibbles. Scales, then
minimums, follow the codes as [tile][group][16 outputs]. E4M3 codes lie as
[tile][input][16 outputs], and their scales are 2^8 times what they mean. `Matrix.from_packed` takes
these bytes as they are; a test holds them equal to what the native packer makes.
Source: docs/numerics.md, "Integer weights" and "Fp8 weights".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.quant.base import (
    Bytes,
    Floats,
    Fp8Tensor,
    IntTensor,
    Scales,
    all_finite,
    is_held_scale,
    is_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

TILE: Final = 16  # outputs of a tile
_INPUT_PAD: Final = 64  # inputs are padded to a multiple of this
_STREAM_PAD: Final = 64  # bytes: every stream begins on a cache line
_CHUNK_BYTES: Final = 4 << 20  # of unpacked codes handled at once
_SCALE_TYPES: Final[dict[int, npt.DTypeLike]] = {1: np.uint8, 2: np.float16, 4: np.float32}
_FP8_SCALE_STEP: Final = np.float32(256)


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Sizes of one packed matrix. The three streams follow each other without a gap.

    Args:
        num_outputs: Outputs, without padding.
        num_inputs: Inputs, without padding.
        bits: 4 or 8.
        group: Inputs that share a scale; a multiple of 16.
        zero: The zero point of a symmetric matrix; None where there are minimums.
        scale_bytes: 2 for float16 scales and minimums, 4 for float32, 1 for powers of two.
        rotated: Whether the values are those of the rotated matrix; see `quant.rotation`.
        levels: The numbers that codes stand for, or None; see `IntTensor`.
        fp8: Whether codes are E4M3; then there are 8 bits, a zero of 0 and scales of float32.
    """

    num_outputs: int
    num_inputs: int
    bits: int
    group: int
    zero: int | None
    scale_bytes: int
    rotated: bool = False
    levels: bytes | None = None
    fp8: bool = False

    @classmethod
    def of(cls, tensor: IntTensor | Fp8Tensor) -> TileLayout:
        """Return the layout a tensor is packed in."""
        num_outputs, num_inputs = tensor.shape
        if isinstance(tensor, Fp8Tensor):
            return cls.of_fp8(num_outputs, num_inputs, tensor.group)
        return cls(
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            bits=tensor.bits,
            group=tensor.group,
            zero=tensor.zero,
            scale_bytes=tensor.scales.dtype.itemsize,
            rotated=tensor.rotated,
            levels=tensor.levels,
        )

    @classmethod
    def of_fp8(cls, num_outputs: int, num_inputs: int, group: int) -> TileLayout:
        """Return the layout of E4M3 codes."""
        return cls(num_outputs, num_inputs, 8, group, 0, 4, fp8=True)

    @property
    def num_tiles(self) -> int:
        """Tiles, the last one perhaps partly padding."""
        return -(-self.num_outputs // TILE)

    @property
    def padded_inputs(self) -> int:
        """Inputs with padding; E4M3 codes have none."""
        return self.num_inputs if self.fp8 else -(-self.num_inputs // _INPUT_PAD) * _INPUT_PAD

    @property
    def num_groups(self) -> int:
        """Groups of one output, those of the padding included."""
        return -(-self.padded_inputs // self.group)

    @property
    def tile_nbytes(self) -> int:
        """Bytes of the codes of one tile."""
        return TILE * self.padded_inputs * self.bits // 8

    @property
    def tile_scales_nbytes(self) -> int:
        """Bytes of the scales of one tile."""
        return TILE * self.num_groups * self.scale_bytes

    @property
    def codes_nbytes(self) -> int:
        """Bytes of the codes; always a multiple of 64."""
        return -(-self.num_tiles * self.tile_nbytes // _STREAM_PAD) * _STREAM_PAD

    @property
    def codes_padding(self) -> Bytes:
        """What stands between the last tile and the scales: zeros, only behind E4M3 codes."""
        return np.zeros(self.codes_nbytes - self.num_tiles * self.tile_nbytes, np.uint8)

    @property
    def scales_nbytes(self) -> int:
        """Bytes of the scales, and of the minimums where there are some."""
        used = self.num_tiles * self.tile_scales_nbytes
        return -(-used // _STREAM_PAD) * _STREAM_PAD

    @property
    def nbytes(self) -> int:
        """Bytes of the whole matrix."""
        return self.codes_nbytes + self.scales_nbytes * (1 if self.zero is not None else 2)


@dataclass(frozen=True, slots=True, eq=False)
class PackedTensor:
    """A matrix of grouped integers, or of E4M3 codes, in the packed order.

    Args:
        packed: (layout.nbytes,) uint8.
        layout: How it lies there.
    """

    packed: Bytes
    layout: TileLayout

    @property
    def shape(self) -> tuple[int, ...]:
        """(O, I)."""
        return (self.layout.num_outputs, self.layout.num_inputs)

    @property
    def nbytes(self) -> int:
        """Bytes as they stand here."""
        return self.packed.nbytes

    def to_codes(self) -> IntTensor | Fp8Tensor:
        """Return the matrix in rows."""
        return unpack_matrix(self.packed, self.layout)

    def unpack(self) -> Floats:
        """Return the values as (O, I) float32; see `IntTensor.unpack`."""
        return self.to_codes().unpack()

    def has_finite_scales(self) -> bool:
        """Tell whether every scale and minimum, and every E4M3 code, is a number."""
        if self.layout.fp8:
            codes = self.packed[: self.layout.codes_nbytes]
            scales = self.packed[self.layout.codes_nbytes :].view(np.float32) / _FP8_SCALE_STEP
            return is_number(codes) and is_held_scale(scales)
        scales = self.packed[self.layout.codes_nbytes :].view(_SCALE_TYPES[self.layout.scale_bytes])
        return all_finite(scales)


def pack_matrix(tensor: IntTensor | Fp8Tensor) -> Bytes:
    """Return the packed bytes of a matrix, as `TileLayout.of(tensor)` describes them."""
    layout = TileLayout.of(tensor)
    packed = np.empty(layout.nbytes, np.uint8)
    done = 0
    for chunk in packed_chunks(tensor):
        packed[done : done + chunk.size] = chunk
        done += chunk.size
    return packed


def packed_chunks(tensor: IntTensor | Fp8Tensor) -> Iterator[Bytes]:
    """Yield the packed bytes of a matrix in order, a few megabytes at a time."""
    layout = TileLayout.of(tensor)
    rows = max(TILE, _CHUNK_BYTES // layout.padded_inputs // TILE * TILE)
    for first in range(0, layout.num_outputs, rows):
        yield pack_codes(tensor.codes[first : first + rows], layout)
    yield layout.codes_padding
    yield pack_group_values(tensor.scales, layout)
    if isinstance(tensor, IntTensor) and tensor.mins is not None:
        yield pack_group_values(tensor.mins, layout)


def pack_codes(codes: Bytes, layout: TileLayout) -> Bytes:
    """Return the packed bytes of whole tiles.

    Args:
        codes: (R, I) uint8; R is a multiple of 16, except at the end of the matrix.
        layout: That of the matrix.
    """
    R, inputs = codes.shape
    padded = layout.padded_inputs
    if R % TILE or inputs != padded:
        pad = (layout.zero or 0) if layout.levels is None else 0
        whole = np.full((-(-R // TILE) * TILE, padded), pad, np.uint8)
        whole[:R, :inputs] = codes
        codes = whole
    if layout.fp8:
        tiles = codes.reshape(-1, TILE, padded).swapaxes(1, 2)
        return np.ascontiguousarray(tiles).reshape(-1)
    words = np.ascontiguousarray(codes).view(np.uint32).reshape(-1, TILE, padded // 4)
    if layout.bits == 4:
        pairs = words.reshape(-1, TILE, padded // 8, 2)
        words = pairs[..., 1] << np.uint32(4)
        words |= pairs[..., 0]
    return np.ascontiguousarray(words.swapaxes(1, 2)).reshape(-1).view(np.uint8)


def pack_group_values(values: Scales, layout: TileLayout) -> Bytes:
    """Return the packed bytes of all scales or all minimums, (O, groups), of a matrix."""
    whole = np.zeros((layout.num_tiles * TILE, layout.num_groups), values.dtype)
    whole[: layout.num_outputs, : values.shape[1]] = values
    if layout.fp8:
        whole *= _FP8_SCALE_STEP
    tiles = whole.reshape(layout.num_tiles, TILE, layout.num_groups).swapaxes(1, 2)
    packed = np.zeros(layout.scales_nbytes, np.uint8)
    packed.view(values.dtype)[: whole.size] = tiles.reshape(-1)
    return packed


def unpack_matrix(packed: Bytes, layout: TileLayout) -> IntTensor | Fp8Tensor:
    """Return the matrix whose packed bytes these are; the inverse of `pack_matrix`.

    Args:
        packed: (layout.nbytes,) uint8.
        layout: How it lies there.
    """
    codes_end = layout.codes_nbytes
    scales_end = codes_end + layout.scales_nbytes
    has_mins = layout.zero is None
    codes = unpack_codes(packed[:codes_end], layout)
    scales = _unpack_group_values(packed[codes_end:scales_end], layout)
    if layout.fp8:
        return Fp8Tensor(codes, scales.astype(np.float32) / _FP8_SCALE_STEP, layout.group)
    return IntTensor(
        codes=codes,
        scales=scales,
        zero=layout.zero,
        mins=_unpack_group_values(packed[scales_end:], layout) if has_mins else None,
        bits=layout.bits,
        group=layout.group,
        rotated=layout.rotated,
        levels=layout.levels,
    )


def unpack_codes(packed: Bytes, layout: TileLayout) -> Bytes:
    """Return the codes, (O, I) uint8, of the first stream of a packed matrix."""
    if layout.fp8:
        tiles = packed[: layout.num_tiles * layout.tile_nbytes].reshape(-1, layout.num_inputs, TILE)
        outputs = np.ascontiguousarray(tiles.swapaxes(1, 2)).reshape(-1, layout.num_inputs)
        return outputs[: layout.num_outputs]
    words = np.ascontiguousarray(packed).view(np.uint32)
    if layout.bits == 4:
        blocks = words.reshape(layout.num_tiles, -1, TILE).swapaxes(1, 2)  # (T, 16, I / 8)
        pairs = np.empty((*blocks.shape, 2), np.uint32)
        np.bitwise_and(blocks, np.uint32(0x0F0F0F0F), out=pairs[..., 0])
        np.bitwise_and(blocks >> np.uint32(4), np.uint32(0x0F0F0F0F), out=pairs[..., 1])
        rows = pairs
    else:
        rows = np.ascontiguousarray(words.reshape(layout.num_tiles, -1, TILE).swapaxes(1, 2))
    codes = rows.view(np.uint8).reshape(layout.num_tiles * TILE, layout.padded_inputs)
    return np.ascontiguousarray(codes[: layout.num_outputs, : layout.num_inputs])


def _unpack_group_values(packed: Bytes, layout: TileLayout) -> Scales:
    dtype = _SCALE_TYPES[layout.scale_bytes]
    count = layout.num_tiles * TILE * layout.num_groups
    tiles = packed.view(dtype)[:count].reshape(layout.num_tiles, layout.num_groups, TILE)
    rows = tiles.swapaxes(1, 2).reshape(-1, layout.num_groups)
    used = -(-layout.num_inputs // layout.group)
    values: Scales = np.ascontiguousarray(rows[: layout.num_outputs, :used])
    return values
