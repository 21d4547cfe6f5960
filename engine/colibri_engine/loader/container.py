"""Which format a packed matrix of a container has, told from its bytes.

The shape comes from the architecture, the number of weight bytes and of scale bytes from the file.
A stamp in the metadata is a claim to check; where several formats have exactly these sizes, it
decides between them. Knows numbers; opens no file.
Source: docs/formats.md, "Containers with separate scales".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.quant import (
    e8,
    fp8_b128,
    int2_row,
    int3_g64,
    int4_grouped,
    int4_row,
    int8_row,
    mxfp4,
)
from colibri_engine.quant.base import MatrixShape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from colibri_engine.quant.base import MatrixFormat

ENTROPY_CODED: Final = "int4-rans256-g0"  # for storage only: no reader decodes it

_IN_BYTES: Final = fp8_b128.FORMAT_UE8M0

# In the order of preference where several have the same sizes and nothing is claimed.
_FORMATS: Final = (
    e8.FORMAT,
    int8_row.FORMAT,
    fp8_b128.FORMAT,
    fp8_b128.FORMAT_UE8M0,
    int4_row.FORMAT,
    int4_grouped.FORMAT,
    int2_row.FORMAT,
    int3_g64.FORMAT,
    mxfp4.ROWS,
)
_NAMES: Final = frozenset({number_format.name for number_format in _FORMATS} - {_IN_BYTES.name})
_UNDECIDED: Final = {int8_row.FORMAT, fp8_b128.FORMAT_UE8M0}
_GROUP_STEP: Final = 16  # what the kernels take


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """What a file and the architecture say about one packed matrix.

    Args:
        name: Its tensor.
        path: The file.
        shape: (O, I), from the architecture.
        weight_bytes: Bytes of the weights.
        scale_bytes: Bytes of the scales.
        stamp: The format its metadata claims, or None.
        group: The group size its metadata claims, or None.
    """

    name: str
    path: Path
    shape: tuple[int, int]
    weight_bytes: int
    scale_bytes: int
    stamp: str | None = None
    group: int | None = None


def stamp_of(number_format: MatrixFormat) -> str:
    """Return what stamps call a format: of fp8 they do not tell the type of scales."""
    return fp8_b128.FORMAT.name if number_format is _IN_BYTES else number_format.name


def resolve(matrix: PackedMatrix) -> tuple[MatrixFormat, MatrixShape]:
    """Return the format of a matrix, and its shape with the group size where that was open.

    Raises:
        UnsupportedQuantFormat: the format is claimed to be one that is not implemented.
        CheckpointError: no format has these sizes, or the claim contradicts them, or several have
            them and nothing decides.
    """
    if matrix.stamp is not None and matrix.stamp not in _NAMES:
        raise UnsupportedQuantFormat(
            f"tensor {matrix.name} in {matrix.path} is stamped {matrix.stamp[:64]!r}, "
            "which is not supported",
            hint=_hint(matrix.stamp),
        )
    if matrix.group is not None and matrix.group % _GROUP_STEP:
        raise UnsupportedQuantFormat(
            f"tensor {matrix.name} in {matrix.path} has groups of {matrix.group}, which is not "
            "supported",
            hint=f"supported: multiples of {_GROUP_STEP}; convert the model again",
        )
    fitting = list(_fitting(matrix))
    if matrix.stamp is not None:
        agreeing = [found for found in fitting if _agrees(found[0], matrix.stamp)]
        if not agreeing:
            raise _refuse(matrix, f"is stamped {matrix.stamp!r}, but its bytes {_fits(fitting)}")
        return agreeing[0]
    candidates = [found for found in fitting if found[0] is not mxfp4.ROWS]
    formats = {number_format for number_format, _ in candidates}
    if not candidates:
        raise _refuse(matrix, f"has bytes that {_fits(candidates)}")
    if len(formats) > 1 and (e8.FORMAT in formats or formats >= _UNDECIDED):
        raise _refuse(matrix, f"has no stamp, and its bytes {_fits(candidates)}")
    return candidates[0]


def num_rows(matrix: PackedMatrix) -> int:
    """Return how many rows the bytes of a matrix are, whatever its shape says.

    Raises:
        CheckpointError: no format has such bytes, with any number of rows.
    """
    if any(_fitting(matrix)):
        return matrix.shape[0]
    for number_format in _FORMATS:
        rows, rest = divmod(matrix.weight_bytes, number_format.row_bytes(matrix.shape[1]))
        other = replace(matrix, shape=(rows, matrix.shape[1]))
        if rows and not rest and any(found is number_format for found, _ in _fitting(other)):
            return rows
    raise _refuse(matrix, f"has bytes that {_fits([])}")


def _fitting(matrix: PackedMatrix) -> Iterator[tuple[MatrixFormat, MatrixShape]]:
    """Yield the formats that have exactly these sizes, in order of preference."""
    for number_format in _FORMATS:
        for shape in _shapes(number_format, matrix):
            if number_format is int4_row.FORMAT and _has_groups(matrix):
                continue
            if (
                number_format.weight_bytes(shape) == matrix.weight_bytes
                and number_format.scale_bytes(shape) == matrix.scale_bytes
            ):
                yield number_format, shape


def _shapes(number_format: MatrixFormat, matrix: PackedMatrix) -> list[MatrixShape]:
    if not number_format.open_group:
        return [MatrixShape(*matrix.shape)]
    groups = int4_grouped.GROUPS if matrix.group is None else (matrix.group,)
    # One group to a row is int4-row.
    return [
        MatrixShape(*matrix.shape, group)
        for group in groups
        if group < matrix.shape[1] and group % _GROUP_STEP == 0
    ]


def _has_groups(matrix: PackedMatrix) -> bool:
    """Tell whether a row is claimed to have more than one group."""
    return matrix.group is not None and matrix.group < matrix.shape[1]


def _agrees(number_format: MatrixFormat, stamp: str) -> bool:
    # With one group to a row, grouped and row-wise are the same bytes and the same values.
    return stamp_of(number_format) == stamp or (
        number_format is int4_row.FORMAT and stamp == int4_grouped.FORMAT.name
    )


def _fits(found: list[tuple[MatrixFormat, MatrixShape]]) -> str:
    names = dict.fromkeys(stamp_of(number_format) for number_format, _ in found)
    return f"fit {' and '.join(names)}" if names else "fit no known format"


def _hint(stamp: str) -> str:
    if stamp == ENTROPY_CODED:
        return "it is for storage: decode it to int4-row with the tool that wrote it"
    return f"supported: {', '.join(sorted(_NAMES))}"


def _refuse(matrix: PackedMatrix, problem: str) -> CheckpointError:
    claimed = "" if matrix.group is None else f", groups of {matrix.group} claimed"
    return CheckpointError(
        f"tensor {matrix.name} in {matrix.path} {problem} (shape {list(matrix.shape)}, "
        f"{matrix.weight_bytes} bytes of weights, {matrix.scale_bytes} of scales{claimed})",
        path=matrix.path,
        tensor=matrix.name,
        hint="the configuration and the file do not belong together, or the container is damaged",
    )
