"""The tables of number formats by name: of blocks, and of matrices with separate scales."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import UnsupportedQuantFormat
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
from colibri_engine.quant.base import QuantFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.quant.base import MatrixFormat

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
        e8.FORMAT, mxfp4.ROWS, nvfp4.FORMAT, fp8_b128.FORMAT, fp8_b128.FORMAT_UE8M0,
    )
}  # fmt: skip


def add_formats(modules: Mapping[str, str]) -> None:
    """Let this process read further formats of blocks.

    Args:
        modules: By the format's name in lower case, the module whose `FORMAT` it is.

    Raises:
        UnsupportedQuantFormat: one is here already, or its module does not offer it.
    """
    for name, module in modules.items():
        hint = f"repair or disable the plugin that adds {module}"
        try:
            number_format = getattr(import_module(module), "FORMAT", None)
        except ImportError as exc:
            raise UnsupportedQuantFormat(f"the format {name!r}: {exc}", hint=hint) from exc
        if not isinstance(number_format, QuantFormat) or number_format.name != name:
            raise UnsupportedQuantFormat(f"{module} has no FORMAT named {name!r}", hint=hint)
        if FORMATS.setdefault(name, number_format) is not number_format:
            raise UnsupportedQuantFormat(f"the format {name!r} is here already", hint=hint)
