"""A plan in numbers that people read and programs parse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_engine.conversion.options import Layout
from colibri_engine.conversion.targets import How, Target
from colibri_engine.conversion.tensor_classes import TensorClass
from colibri_engine.quant import e8

if TYPE_CHECKING:
    from colibri_engine.conversion.options import ConvertOptions
    from colibri_engine.conversion.plan import ConversionPlan, PlannedTensor

_SCHEMA_VERSION = 1
_MB = 1_000_000
_GB = 1_000_000_000
_ONE_SCALE_PER_ROW = frozenset({"int8-row", "int4-row", "int2-row"})


def summarize(plan: ConversionPlan, options: ConvertOptions) -> dict[str, Any]:
    """Return the plan as JSON: formats by class, sizes, what is left out, and warnings."""
    rows: dict[tuple[str, str, int | None], dict[str, Any]] = {}
    for tensor in plan.tensors():
        target = tensor.target
        key = (_class_of(tensor), target.format, _group_of(target))
        row = rows.setdefault(
            key,
            {
                "class": key[0],
                "format": key[1],
                "bits": _bits_of(target, options),
                "group_size": key[2],
                "kept": target.how in {How.KEPT, How.RAW},
                "tensors": 0,
                "bytes": 0,
            },
        )
        row["tensors"] += 1
        row["bytes"] += _bytes_of(target, options)
    return {
        "schema_version": _SCHEMA_VERSION,
        "layout": str(options.layout),
        "source_bytes": plan.source_bytes,
        "result_bytes": plan.nbytes,
        "files": len(plan.files),
        "classes": list(rows.values()),
        "left_out": list(plan.left_out),
        "warnings": _warnings(plan),
    }


def _warnings(plan: ConversionPlan) -> list[str]:
    if plan.nbytes <= plan.source_bytes:
        return []
    result, source = size_text(plan.nbytes), size_text(plan.source_bytes)
    return [f"the result is larger than the source: {result} instead of {source}"]


def size_text(nbytes: int) -> str:
    """Return bytes as people read them."""
    is_large = nbytes >= _GB
    return f"{nbytes / _GB:.1f} GB" if is_large else f"{nbytes / _MB:.1f} MB"


def _class_of(tensor: PlannedTensor) -> str:
    source = tensor.source
    is_matrix = source.kind not in {TensorClass.FLOATS, TensorClass.DRAFT_PROJECTION}
    if source.is_draft and is_matrix:
        return str(TensorClass.DRAFT)
    if source.kind is TensorClass.EXPERT:
        return f"{source.kind}, {source.part.removesuffix('_proj')}"
    return str(source.kind)


def _group_of(target: Target) -> int | None:
    """Return inputs per scale; None for floats and for one scale per row."""
    if target.layout is None or target.format in _ONE_SCALE_PER_ROW:
        return None
    return target.layout.group


def _bits_of(target: Target, options: ConvertOptions) -> int:
    if target.bits:
        return target.bits
    if target.format == e8.FORMAT.name and options.layout is Layout.PAIRS:
        return e8.BITS
    if target.layout is not None:
        return target.layout.bits
    return {"F32": 32}.get(target.format, 16)


def _bytes_of(target: Target, options: ConvertOptions) -> int:
    count = 1
    for size in target.shape:
        count *= size
    if target.how is How.FLOATS:
        return count * _bits_of(target, options) // 8
    if options.layout is Layout.PAIRS:
        shape = target.matrix_shape
        return target.matrix_format.weight_bytes(shape) + target.matrix_format.scale_bytes(shape)
    assert target.layout is not None
    return target.layout.nbytes + target.rest
