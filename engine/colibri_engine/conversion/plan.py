"""The whole result before a byte of it is written: every tensor, every file, every size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.conversion.file_contents import pair_file, stream_file
from colibri_engine.conversion.options import Layout
from colibri_engine.conversion.targets import (
    How,
    Target,
    bits_for,
    check_pairs,
    e8_target,
    kept_target,
    raw_target,
    rounded_target,
)
from colibri_engine.conversion.tensor_classes import (
    ClassifiedTensor,
    TensorClass,
    classify_all,
)
from colibri_engine.errors import BadChoice, CheckpointError
from colibri_engine.loader.base import RawCheckpoint
from colibri_engine.loader.matrix_shapes import matrix_shape
from colibri_engine.loader.stream_layout import PARTS
from colibri_engine.quant import e8, fp8_b128
from colibri_engine.quant.base import IntTensor
from colibri_engine.quant.tiles import PackedTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from colibri_engine.conversion.options import ConvertOptions
    from colibri_engine.loader.base import Checkpoint

_PLAIN: Final = frozenset({"F32", "F16", "BF16"})
_FP8: Final = "F8_E4M3"  # of published checkpoints: rounded unless its bytes are asked for
_FLOAT_FORMATS: Final = frozenset({*_PLAIN, _FP8})
_RAW_FORMATS: Final = frozenset({e8.FORMAT.name, *fp8_b128.NAMES})


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of the source and what becomes of it."""

    source: ClassifiedTensor
    target: Target


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """What must stand in one file: an expert, or a tensor of its own.

    Args:
        name: Of the tensor in the streaming layout.
        tensors: One, or an expert's matrices in the order of a record.
    """

    name: str
    tensors: tuple[PlannedTensor, ...]

    @property
    def kind(self) -> TensorClass:
        """The class of its tensors."""
        return self.tensors[0].source.kind


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the result.

    Args:
        name: Its name.
        items: In order.
        nbytes: Its exact size.
    """

    name: str
    items: tuple[PlannedItem, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Everything that will be written.

    Args:
        files: In the order of writing.
        left_out: Tensors of the source that the result does not hold.
        source_bytes: Bytes of the source's weight files.
    """

    files: tuple[PlannedFile, ...]
    left_out: tuple[str, ...]
    source_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.nbytes for file in self.files)

    def tensors(self) -> Iterator[PlannedTensor]:
        """Yield all tensors."""
        for file in self.files:
            for item in file.items:
                yield from item.tensors


def make_plan(checkpoint: Checkpoint, options: ConvertOptions) -> ConversionPlan:
    """Plan a conversion.

    Raises:
        CheckpointError: the source holds a tensor that no rule knows, or an expert lacks a matrix.
        BadChoice: a choice does not fit the source.
    """
    num_layers = _num_layers(checkpoint)
    found, left_out = classify_all(checkpoint.names(), num_layers, checkpoint.path)
    if not options.with_mtp:
        left_out += [tensor.name for tensor in found if tensor.is_draft]
        found = [tensor for tensor in found if not tensor.is_draft]
    targets = _Targets(checkpoint, options)
    planned = [PlannedTensor(tensor, targets.of(tensor)) for tensor in found]
    if options.layout is Layout.PAIRS:
        _check_shapes(planned, checkpoint)
    items = list(_items(planned, checkpoint))
    if options.layout is Layout.STREAM:
        files = _stream_files(items, options)
    else:
        files = _pair_files(items, options)
    return ConversionPlan(tuple(files), tuple(left_out), checkpoint.nbytes)


class _Targets:
    """Decides about each tensor; what holds for one expert of a layer holds for all."""

    def __init__(self, checkpoint: Checkpoint, options: ConvertOptions) -> None:
        self._checkpoint = checkpoint
        self._options = options
        self._samples: dict[tuple[str, str, tuple[int, ...]], IntTensor | None] = {}
        self._source_is_integer = any(
            checkpoint.format_name(name) not in _FLOAT_FORMATS for name in checkpoint.names()
        )

    def of(self, tensor: ClassifiedTensor) -> Target:
        name = tensor.name
        shape = self._checkpoint.shape(name)
        if tensor.kind is TensorClass.FLOATS:
            return Target(How.FLOATS, "F32", shape)
        if len(shape) != 2:
            raise CheckpointError(
                f"tensor {name} of {self._checkpoint.path} has shape {list(shape)}, not two sizes",
                path=self._checkpoint.path,
                tensor=name,
                hint="the checkpoint is damaged or of an unknown variant",
            )
        matrix = (shape[0], shape[1])
        format_name = self._checkpoint.format_name(name)
        kept = self._kept(tensor, format_name, matrix)
        bits = bits_for(
            tensor,
            self._options.precision,
            is_integer=kept is not None and self._can_keep(kept, name),
            is_left_wide=self._source_is_integer and format_name in _PLAIN,
        )
        if bits.is_float:
            return Target(How.FLOATS, format_name if format_name in _PLAIN else "F32", shape)
        if bits.fp8:
            return self._fp8(name, format_name, matrix)
        if bits.e8:
            return e8_target(name, matrix)
        if not bits.keep:
            return rounded_target(bits.width, matrix, self._options.precision.group_size)
        if kept is None:
            raise BadChoice(
                f"{name} is stored as {format_name}: there are no integers to keep",
                hint="give its class a number of bits",
            )
        if self._options.layout is Layout.PAIRS:
            check_pairs(kept, name)
        return kept

    def _can_keep(self, kept: Target, name: str) -> bool:
        """Tell whether codes are kept when the user said nothing."""
        if self._options.layout is Layout.STREAM or kept.how is How.RAW:
            return True  # or refused below by what a layout cannot hold
        try:
            check_pairs(kept, name)
        except BadChoice:
            return False
        return True

    def _kept(
        self, tensor: ClassifiedTensor, format_name: str, shape: tuple[int, int]
    ) -> Target | None:
        """Return the target that keeps the codes, or None where the source holds floats."""
        if format_name in _FLOAT_FORMATS:
            return None
        if format_name in _RAW_FORMATS and self._has_raw(tensor.name):
            return raw_target(format_name, shape)
        name = f"{tensor.prefix}.{tensor.part}" if tensor.prefix else tensor.name
        key = (name, format_name, shape)
        if key not in self._samples:
            rows = self._checkpoint.rows(tensor.name, 0, 1)
            rows = rows.to_codes() if isinstance(rows, PackedTensor) else rows
            self._samples[key] = rows if isinstance(rows, IntTensor) else None
        sample = self._samples[key]
        return None if sample is None else kept_target(format_name, sample, shape)

    def _fp8(self, name: str, format_name: str, shape: tuple[int, int]) -> Target:
        if format_name != _FP8 and format_name not in fp8_b128.NAMES:
            raise BadChoice(
                f"{name} is stored as {format_name}: there are no fp8 bytes to keep",
                hint="give its class a number of bits",
            )
        if not self._has_raw(name):
            raise BadChoice(
                f"{name} is not fp8 in blocks of {fp8_b128.BLOCK} x {fp8_b128.BLOCK}",
                hint="its bytes cannot be kept; give its class a number of bits",
            )
        target = raw_target(fp8_b128.FORMAT.name if format_name == _FP8 else format_name, shape)
        if self._options.layout is Layout.PAIRS:
            check_pairs(target, name)
        return target

    def _has_raw(self, name: str) -> bool:
        return isinstance(self._checkpoint, RawCheckpoint) and self._checkpoint.has_raw(name)


def _check_shapes(planned: Iterable[PlannedTensor], checkpoint: Checkpoint) -> None:
    """Refuse matrices whose shapes a reader of pairs would not find in the configuration."""
    for tensor in planned:
        target, name = tensor.target, tensor.source.name
        if target.how is How.FLOATS:
            continue
        try:
            found = matrix_shape(checkpoint.config, name, checkpoint.path)
        except CheckpointError:
            found = None
        if found != target.shape:
            raise BadChoice(
                f"--layout {Layout.PAIRS} is not possible: the shape of {name} does not follow "
                f"from the configuration of {checkpoint.config.get('model_type')}",
                hint="use --layout stream, which records shapes",
            )


def _num_layers(checkpoint: Checkpoint) -> int:
    config = checkpoint.config
    value: Any = config.get("text_config", config).get("num_hidden_layers")
    if type(value) is not int or value < 1:
        raise CheckpointError(
            f"the configuration of {checkpoint.path} does not give num_hidden_layers",
            path=checkpoint.path,
            hint="the configuration is damaged",
        )
    return value


def _items(planned: Iterable[PlannedTensor], checkpoint: Checkpoint) -> Iterator[PlannedItem]:
    """Yield the tensors in order, those of one expert together."""
    parts: dict[str, dict[str, PlannedTensor]] = {}
    for tensor in planned:
        source = tensor.source
        if source.kind is not TensorClass.EXPERT:
            yield PlannedItem(source.name, (tensor,))
            continue
        name = f"{source.prefix}.{source.expert}"
        found = parts.setdefault(name, {})
        found[source.part] = tensor
        if len(found) == len(PARTS):
            _check_lattice(found)
            yield PlannedItem(name, tuple(found[part] for part in PARTS))
            del parts[name]
    for name, found in parts.items():
        missing = next(part for part in PARTS if part not in found)
        raise CheckpointError(
            f"{name} of {checkpoint.path} has no {missing}: it looks incomplete",
            path=checkpoint.path,
            tensor=f"{name}.{missing}.weight",
            hint="pull the model again",
        )


def _check_lattice(expert: dict[str, PlannedTensor]) -> None:
    """Refuse an expert whose matrices are only partly e8: they share their rotated input."""
    others = [t for t in expert.values() if t.target.format != e8.FORMAT.name]
    if 0 < len(others) < len(expert):
        raise BadChoice(
            f"{others[0].source.name} would be {others[0].target.format} beside matrices in e8",
            hint="use --xbits e8 for all three matrices of an expert, or for none",
        )


def _stream_files(items: list[PlannedItem], options: ConvertOptions) -> list[PlannedFile]:
    groups = list(_cut(items, options.shard_bytes))
    return [
        PlannedFile(
            f"model-{place:05d}-of-{len(groups):05d}.safetensors",
            group,
            stream_file(group).nbytes(),
        )
        for place, group in enumerate(groups, 1)
    ]


def _stream_name(place: int, count: int) -> str:
    return f"model-{place:05d}-of-{count:05d}.safetensors"


def _pair_files(items: list[PlannedItem], options: ConvertOptions) -> list[PlannedFile]:
    """Cut into main files, those of the draft layers, and those of the indexer."""
    kinds: dict[str, list[PlannedItem]] = {"out": [], "out-mtp": [], "out-idx": []}
    for item in items:
        source = item.tensors[0].source
        is_indexer = ".self_attn.indexer." in source.name
        kinds["out-mtp" if source.is_draft else "out-idx" if is_indexer else "out"].append(item)
    return [
        PlannedFile(f"{stem}-{place:05d}.safetensors", group, pair_file(group).nbytes)
        for stem, members in kinds.items()
        for place, group in enumerate(_cut(members, options.shard_bytes))
    ]


def _cut(items: list[PlannedItem], shard_bytes: int) -> Iterator[tuple[PlannedItem, ...]]:
    """Yield runs of items of about `shard_bytes`; no item is torn apart."""
    run: list[PlannedItem] = []
    size = 0
    for item in items:
        nbytes = sum(_stored_bytes(tensor.target) for tensor in item.tensors)
        if run and size + nbytes > shard_bytes:
            yield tuple(run)
            run, size = [], 0
        run.append(item)
        size += nbytes
    if run:
        yield tuple(run)


def _stored_bytes(target: Target) -> int:
    """Return about how many bytes a tensor takes, the same for every layout and source.

    Files are cut by this, so that the way over another layout leads to the same files.
    """
    count = 1
    for size in target.shape:
        count *= size
    return 4 * count if target.layout is None else target.layout.nbytes
