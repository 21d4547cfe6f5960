"""e8-iq3-lattice: magnitudes from a table of 256 quadruples, held as 8-bit codes in groups of 32.

A block of 256 weights has 98 bytes: 64 table indices, one per 4 weights; eight words, one per 32
weights, with four times seven signs and a scale code in the top four bits; a float16 d. The eighth
sign of 8 weights makes the number of negative ones even. With g the table's magnitude,
w = sign * g / 2 * (d * (code + 1/2) / 2), exact in float32.

The matrix lies under the rotation of `quant.rotation`. Its scale tensor is one float32 that only
says so, `TAG`.

Codes and scales as the kernels hold them do not tell the blocks: several d and scale codes have one
product. `split_rest` keeps what is missing, `join` makes the blocks again.
Source: docs/formats.md, "Containers with separate scales"; the table is that of IQ3_XXS in ggml
(MIT licence).
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from colibri_engine.quant.base import Bytes, IntTensor, MatrixFormat, MatrixShape

BLOCK: Final = 256
BLOCK_BYTES: Final = 98
TAG: Final = 6.0

BITS: Final = 3  # a weight takes 98 / 256 bytes
GROUP: Final = 32  # weights that share a scale

CODE_BITS: Final = 8  # as the kernels hold it
ZERO: Final = 32  # halved magnitudes reach 31

LAYOUT: Final = np.dtype([("index", "u1", 64), ("words", "<u4", 8), ("d", "<f2")])
_MAGNITUDES: Final = (4, 12, 20, 28, 36, 44, 52, 62)
_DIGITS: Final = (
    "0000200040001100310071000200220013002400370057001010301001102110121052100310231014104510"
    "0710002020204020112002202220132033207320152075205720103070300130213052300730314073404440"
    "7540374057401050705023502550536046600170417061703470167010013001010121011201320103012301"
    "4301740105010011201111110211221110213021012121211221032127210031203102311331643166311041"
    "5041054102514251645117515061227104710002200211023102020222026202130224021012301250120112"
    "2112121203123612761207120022202211227122022222227322042255221032013241320732473253423542"
    "3052725214524752107230726172547210030103210312033203050356032703001320130213131344136413"
    "1023302301235223252327231133333303437443274300536053225355534163636336633373067340047104"
    "5304730435047504471402247324042406246624703454344044154446445254345407545074017421740374"
    "2105140507050015601562155515412523252725203535350145324572452745205513550565427524754206"
    "4406640646061216161671264626033663364446505625563366307612763007500770070107230725076217"
    "04172127542725270037513733370637124714470057205742570367"
)  # places in _MAGNITUDES, four to an entry

GRID: Final = np.array(_MAGNITUDES, np.uint8)[[int(digit) for digit in _DIGITS]].reshape(256, 4)

_HALVES: Final = (GRID >> np.uint8(1)).view("<u4")[:, 0]  # index -> four halved magnitudes


def _sign_masks() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return, for seven sign bits, eight bytes that are 0xFF where a weight is negative."""
    bits = np.unpackbits(np.arange(128, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    bits[:, 7] = bits.sum(axis=1) & 1
    return (bits * np.uint8(255)).view("<u8")[:, 0]


_SIGNS: Final = _sign_masks()
_SIGN_PLACES: Final = np.array([0, 7, 14, 21], np.uint32)


def _to_stored(weights: Bytes, scales: Bytes, shape: MatrixShape) -> IntTensor:
    blocks = weights.reshape(-1, BLOCK_BYTES).view(LAYOUT)[:, 0]
    words = blocks["words"]  # (N, 8)
    codes = _HALVES[blocks["index"]].view(np.uint8)  # (N, 256)
    masks = _SIGNS[(words[:, :, None] >> _SIGN_PLACES) & np.uint32(127)].view(np.uint8)
    masks = masks.reshape(codes.shape)
    codes ^= masks  # two's complement: invert and add one
    codes -= masks
    codes += np.uint8(ZERO)
    steps = (words >> np.uint32(28)).astype(np.float32) + np.float32(0.5)
    steps *= blocks["d"].astype(np.float32)[:, None] * np.float32(0.5)
    num_inputs = shape.num_inputs
    rows = codes.reshape(shape.num_outputs, -1)[:, :num_inputs]
    groups = steps.reshape(shape.num_outputs, -1)[:, : -(-num_inputs // 32)]
    return IntTensor(
        codes=np.ascontiguousarray(rows),
        scales=np.ascontiguousarray(groups),
        zero=ZERO,
        mins=None,
        bits=CODE_BITS,
        group=GROUP,
        rotated=True,
    )


FORMAT: Final = MatrixFormat(
    "e8-iq3-lattice",
    row_bytes=lambda num_inputs: -(-num_inputs // BLOCK) * BLOCK_BYTES,
    scale_bytes=lambda shape: 4,
    to_stored=_to_stored,
)


# ---- the way back -------------------------------------------------------------------------------

_REST: Final = np.dtype([("d", "<u2"), ("steps", "<u4")])  # of a whole block: d and scale codes
_TOP: Final = np.uint32(28)
_NIBBLES: Final = np.arange(0, 32, 4, dtype=np.uint32)


def _entries() -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Return, for the four places of its magnitudes as digits to base 8, an entry's index or -1."""
    digits = np.searchsorted(np.array(_MAGNITUDES), GRID)
    entries = np.full(8**4, -1, np.int16)
    entries[digits @ _PLACES] = np.arange(len(GRID))
    return entries


_PLACES: Final = np.array([512, 64, 8, 1])
_ENTRIES: Final = _entries()


def rest_bytes(num_inputs: int) -> int:
    """Return the bytes that `split_rest` keeps of a row."""
    whole, ragged = divmod(num_inputs, BLOCK)
    return whole * _REST.itemsize + (BLOCK_BYTES if ragged else 0)


def split_rest(raw: Bytes, num_inputs: int) -> Bytes:
    """Return what the codes and scales of rows do not tell, (R, rest_bytes).

    Of a whole block d and the scale codes; of a last one that is not whole everything.

    Args:
        raw: (R, bytes of a row).
        num_inputs: I.
    """
    end = num_inputs // BLOCK * BLOCK_BYTES
    blocks = np.ascontiguousarray(raw[:, :end]).reshape(-1, BLOCK_BYTES).view(LAYOUT)[:, 0]
    rest = np.empty(len(blocks), _REST)
    rest["d"] = blocks["d"].view("<u2")
    rest["steps"] = np.bitwise_or.reduce(blocks["words"] >> _TOP << _NIBBLES, axis=1)
    kept = rest.view(np.uint8).reshape(len(raw), -1)
    return np.concatenate([kept, raw[:, end:]], axis=1)


def join(stored: IntTensor, rest: Bytes) -> Bytes:
    """Return the blocks of rows, (R, bytes of a row).

    Args:
        stored: What `to_stored` made of them.
        rest: What `split_rest` kept of them.

    Raises:
        ValueError: no blocks have these codes and scales and this rest.
    """
    R, num_inputs = stored.shape
    whole = num_inputs // BLOCK
    kept = np.ascontiguousarray(rest[:, : whole * _REST.itemsize]).view(_REST).reshape(-1)
    values = stored.codes[:, : whole * BLOCK].astype(np.int8) - np.int8(ZERO)
    blocks = np.empty(len(kept), LAYOUT)
    blocks["index"] = _indices(np.abs(values).reshape(-1, 4)).reshape(-1, BLOCK // 4)
    steps = (kept["steps"][:, None] >> _NIBBLES & np.uint32(15)) << _TOP
    negative = np.packbits(values.reshape(-1, 8) < 0, axis=1, bitorder="little")[:, 0] & 127
    signs = negative.astype(np.uint32).reshape(-1, 4) << _SIGN_PLACES
    blocks["words"] = np.bitwise_or.reduce(signs, axis=1).reshape(-1, BLOCK // GROUP) | steps
    blocks["d"] = kept["d"].view("<f2")
    joined = blocks.view(np.uint8).reshape(R, -1)
    raw = np.concatenate([joined, rest[:, whole * _REST.itemsize :]], axis=1)
    with np.errstate(invalid="ignore", over="ignore"):  # of a damaged d; then scales differ
        found = _to_stored(raw, np.empty(0, np.uint8), MatrixShape(R, num_inputs))
    if not (
        np.array_equal(found.codes, stored.codes) and np.array_equal(found.scales, stored.scales)
    ):
        raise ValueError("codes, scales and a rest that are not of the same blocks")
    return raw


def _indices(quads: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> Bytes:
    """Return the table's entries with these halved magnitudes, (N, 4)."""
    digits = np.minimum((quads + 2) // 4 - 1, 7)
    found = _ENTRIES[np.maximum(digits, 0) @ _PLACES]
    if (found < 0).any():
        raise ValueError("magnitudes that no entry of the table has")
    return cast("Bytes", found.astype(np.uint8))
