"""The tables of number formats by name: of blocks, and of matrices with separate scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_engine.quant import (
    bf16,
    e8,
    f16,
    f32,
    fp8_b128,
    fp8_e4m3,
    int2_row,
    int3_g64,
    int4_grouped,
    int4_row,
    int8_row,
    iq4_nl,
    iq4_xs,
    mxfp4,
    nvfp4,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
)

if TYPE_CHECKING:
    from colibri_engine.quant.base import MatrixFormat, QuantFormat

FORMATS: Final[dict[str, QuantFormat]] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        f32, f16, bf16, fp8_e4m3, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k,
        iq4_nl, iq4_xs, mxfp4,
    )
}  # fmt: skip

MATRIX_FORMATS: Final[dict[str, MatrixFormat]] = {
    number_format.name: number_format
    for number_format in (
        int8_row.FORMAT, int4_row.FORMAT, int4_grouped.FORMAT, int2_row.FORMAT, int3_g64.FORMAT,
        e8.FORMAT, mxfp4.ROWS, nvfp4.FORMAT, fp8_b128.FORMAT,
    )
}  # fmt: skip
