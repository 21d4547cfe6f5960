"""Writing one planned file from blocks, in either layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self, cast

import numpy as np

from colibri_engine.conversion.file_contents import SCALES, pair_file, stream_file
from colibri_engine.conversion.targets import How
from colibri_engine.conversion.tensor_classes import TensorClass
from colibri_engine.loader.container_writer import StreamShard
from colibri_engine.loader.shard_writer import ShardWriter
from colibri_engine.quant.tiles import pack_group_values

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from colibri_engine.conversion.encoding import Block
    from colibri_engine.conversion.plan import PlannedFile, PlannedItem, PlannedTensor
    from colibri_engine.loader.shard_writer import WrittenShard
    from colibri_engine.quant.base import Bytes, Scales

_STREAM_PAD: Final = 64


class FileWriter(Protocol):
    """A planned file in the making; a context manager that removes what was not finished."""

    def __enter__(self) -> Self:
        """Return the writer."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the file unless it was finished."""
        ...

    def add(self, item: PlannedItem, tensor: PlannedTensor, block: Block) -> None:
        """Write the next block of a tensor; items and tensors come in the order of the plan."""
        ...

    def finish(self) -> WrittenShard:
        """Check the file on disk and give it its name."""
        ...


class StreamFileWriter:
    """See `FileWriter`; the streaming layout.

    Args:
        directory: Where the file goes.
        planned: The file.
    """

    def __init__(self, directory: Path, planned: PlannedFile) -> None:
        self._contents = stream_file(planned.items)
        self._shard = StreamShard(directory / planned.name, self._contents)
        self._scales: list[Scales] = []
        self._mins: list[Scales] = []
        self._rests: list[Bytes] = []

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the file unless it was finished."""
        self._shard.__exit__(kind, error, trace)

    def add(self, item: PlannedItem, tensor: PlannedTensor, block: Block) -> None:
        """Write the codes; scales follow when the matrix is complete."""
        self._shard.write_chunk(item.name, block.data)
        if tensor.target.how is How.FLOATS:
            return
        assert block.scales is not None
        self._scales.append(block.scales)
        if block.mins is not None:
            self._mins.append(block.mins)
        if block.rest is not None:
            self._rests.append(block.rest)
        if block.is_last:
            self._end_matrix(item, tensor)

    def finish(self) -> WrittenShard:
        """Check the file on disk and give it its name."""
        return self._shard.finish()

    def _end_matrix(self, item: PlannedItem, tensor: PlannedTensor) -> None:
        layout = tensor.target.layout
        assert layout is not None
        self._shard.write_chunk(item.name, layout.codes_padding)
        for parts in (self._scales, self._mins):
            if parts:
                whole = cast("Scales", np.concatenate(parts))
                self._shard.write_chunk(item.name, pack_group_values(whole, layout))
                parts.clear()
        if self._rests:
            rest = np.concatenate(self._rests)
            self._rests.clear()
            self._shard.write_chunk(item.name, rest)
            self._shard.write_chunk(item.name, np.zeros(-rest.size % _STREAM_PAD, np.uint8))
        if item.kind is TensorClass.EXPERT and tensor is item.tensors[-1]:
            record = self._contents.record_of(item.name)
            padding = record.nbytes - max(place.end for place in record.parts.values())
            self._shard.write_chunk(item.name, np.zeros(padding, np.uint8))


class PairFileWriter(ShardWriter):
    """See `FileWriter`; the layout with separate scales.

    Args:
        directory: Where the file goes.
        planned: The file.
    """

    def __init__(self, directory: Path, planned: PlannedFile) -> None:
        contents = pair_file(planned.items)
        super().__init__(directory / planned.name, contents.tensors, contents.metadata)

    def add(self, item: PlannedItem, tensor: PlannedTensor, block: Block) -> None:
        """Write codes and scales, each to its tensor."""
        del item
        name = tensor.source.name
        self.write(name, block.data)
        if block.scales is not None:
            in_bytes = block.scales.dtype == np.uint8
            scales = np.ascontiguousarray(block.scales, "u1" if in_bytes else "<f4")
            self.write(name + SCALES, scales.reshape(-1).view(np.uint8))
