"""What a planned file holds: tensors, metadata and size, for both layouts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.conversion.targets import How
from colibri_engine.conversion.tensor_classes import TensorClass
from colibri_engine.loader.container import stamp_of
from colibri_engine.loader.container_writer import StreamContents
from colibri_engine.loader.format_stamps import FORMAT_KEY, GROUP_KEY
from colibri_engine.loader.shard_writer import TensorSpec, aligned_order, file_size
from colibri_engine.loader.stream_layout import ExpertRecord
from colibri_engine.quant import fp8_b128, int4_grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.conversion.plan import PlannedItem, PlannedTensor
    from colibri_engine.conversion.targets import Target
    from colibri_engine.quant.tiles import TileLayout

SCALES: Final = ".qs"


@dataclass(frozen=True, slots=True)
class PairFile:
    """A file of the layout with separate scales.

    Args:
        tensors: In file order.
        metadata: Its strings.
    """

    tensors: list[TensorSpec]
    metadata: dict[str, str]

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return file_size(self.tensors, self.metadata)


def stream_file(items: Sequence[PlannedItem]) -> StreamContents:
    """Return the contents of a file of the streaming layout."""
    contents = StreamContents()
    for item in items:
        if item.kind is TensorClass.EXPERT:
            parts = {t.source.part: (_layout(t.target), t.target.format) for t in item.tensors}
            first = item.tensors[0].source
            rests = {t.source.part: t.target.rest for t in item.tensors}
            contents.add_expert(first.prefix, first.expert, ExpertRecord.of(parts, rests))
            continue
        target = item.tensors[0].target
        if target.how is How.FLOATS:
            contents.add_floats(item.name, target.format, target.shape)
        else:
            contents.add_matrix(item.name, _layout(target), target.format, target.rest)
    return contents


def pair_file(items: Sequence[PlannedItem]) -> PairFile:
    """Return the contents of a file of the layout with separate scales.

    Every matrix is stamped with its format, experts by layer and projection.
    """
    specs: list[TensorSpec] = []
    formats: dict[str, str] = {}
    groups: dict[str, int] = {}
    for item in items:
        for tensor in item.tensors:
            name, target = tensor.source.name, tensor.target
            if target.how is How.FLOATS:
                specs.append(TensorSpec(name, target.format, target.shape))
                continue
            form, shape = target.matrix_format, target.matrix_shape
            specs.append(TensorSpec(name, "U8", (form.weight_bytes(shape),)))
            size = form.scale_bytes(shape)
            in_bytes = _layout(target).scale_bytes == 1 or form is fp8_b128.FORMAT_UE8M0
            scales = ("U8", (size,)) if in_bytes else ("F32", (size // 4,))
            specs.append(TensorSpec(name + SCALES, *scales))
            formats[_stamped_name(tensor)] = stamp_of(form)
            if target.format == int4_grouped.FORMAT.name:
                groups[_stamped_name(tensor)] = shape.group
    metadata: dict[str, str] = {}
    if formats:
        metadata[FORMAT_KEY] = json.dumps(formats, separators=(",", ":"))
    if groups:
        metadata[GROUP_KEY] = json.dumps(groups, separators=(",", ":"))
    return PairFile(aligned_order(specs), metadata)


def _stamped_name(tensor: PlannedTensor) -> str:
    source = tensor.source
    if source.kind is not TensorClass.EXPERT:
        return source.name
    return f"{source.prefix}.*.{source.part}.weight"


def _layout(target: Target) -> TileLayout:
    assert target.layout is not None
    return target.layout
