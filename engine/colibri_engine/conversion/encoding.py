"""From rows of the source to the bytes of the result, block by block.

A block is read, rounded and packed by whichever thread is free; blocks come back in order, and
only a few exist at a time, so memory does not grow with the model.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from colibri_engine.conversion import e8_encoding
from colibri_engine.conversion.quantize import quantize
from colibri_engine.conversion.targets import How
from colibri_engine.conversion.tensor_classes import TensorClass
from colibri_engine.errors import CheckpointError
from colibri_engine.loader.base import RawCheckpoint
from colibri_engine.quant import e8
from colibri_engine.quant.base import MAX_FP8_SCALE, FloatTensor, IntTensor, StoredTensor
from colibri_engine.quant.tiles import PackedTensor, TileLayout, pack_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

    import numpy.typing as npt

    from colibri_engine.conversion.plan import PlannedTensor
    from colibri_engine.conversion.targets import Target
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.quant.base import Bytes, Floats, Scales

_ROW_STEP: Final = 128  # no block of any format is cut at its multiples
_BLOCK_VALUES: Final = 16 << 20  # of one unit of work; a whole matrix of most experts
_LOOKAHEAD: Final = 2  # units of work per thread that may be in flight

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a tensor as the result holds them.

    Args:
        data: Bytes of codes, or of floats.
        scales: (R, groups), None for floats.
        mins: The same for formats with a minimum, else None.
        rest: What the streaming layout keeps beside, else None.
        is_last: The tensor ends with it.
        half_errors: For a draft projection, (2, 2): squared errors and squared values of the two
            halves of its inputs; else None.
    """

    data: Bytes
    scales: Scales | None = None
    mins: Scales | None = None
    rest: Bytes | None = None
    is_last: bool = True
    half_errors: npt.NDArray[np.float64] | None = None


class Encoder:
    """Makes blocks of planned tensors.

    Args:
        checkpoint: The source.
        packed: Codes in the packed order of the streaming layout, else in rows of their format.
    """

    def __init__(self, checkpoint: Checkpoint, *, packed: bool) -> None:
        self._checkpoint = checkpoint
        self._packed = packed

    def tasks(self, tensor: PlannedTensor) -> Iterator[Callable[[], Block]]:
        """Yield what must be done for a tensor, one call per block."""
        shape = tensor.target.shape
        if len(shape) != 2:
            yield partial(self._whole, tensor)
            return
        num_rows, num_inputs = shape
        step = max(_ROW_STEP, _BLOCK_VALUES // num_inputs // _ROW_STEP * _ROW_STEP)
        for first in range(0, num_rows, step):
            count = min(step, num_rows - first)
            yield partial(self._rows, tensor, first, count)

    def _whole(self, tensor: PlannedTensor) -> Block:
        return self._floats(tensor, self._checkpoint.tensor(tensor.source.name))

    def _rows(self, tensor: PlannedTensor, first: int, count: int) -> Block:
        name, target = tensor.source.name, tensor.target
        is_last = first + count == target.shape[0]
        if target.how is How.RAW:
            return self._raw(tensor, first, count, is_last=is_last)
        stored = self._checkpoint.rows(name, first, count)
        if target.how is How.FLOATS:
            return self._floats(tensor, stored, is_last=is_last)
        if target.how is How.E8:
            return self._lattice(tensor, stored, is_last=is_last)
        if target.how is How.KEPT:
            rows = self._kept(tensor, stored)
            errors = None
        else:
            floats = stored if isinstance(stored, FloatTensor) else FloatTensor(stored.unpack())
            rows = self._rounded(tensor, floats)
            is_projection = tensor.source.kind is TensorClass.DRAFT_PROJECTION
            errors = _half_errors(floats.unpack(), rows.unpack()) if is_projection else None
        return Block(
            self._bytes(rows, target),
            rows.scales,
            rows.mins,
            is_last=is_last,
            half_errors=errors,
        )

    def _raw(self, tensor: PlannedTensor, first: int, count: int, *, is_last: bool) -> Block:
        assert isinstance(self._checkpoint, RawCheckpoint)
        target = tensor.target
        raw = self._checkpoint.raw_rows(tensor.source.name, first, count)
        tags = np.full((int(is_last), 1), e8.TAG, np.float32)
        if not self._packed:
            scales = tags if raw.scales is None else raw.scales
            return Block(raw.weights.reshape(-1), scales, is_last=is_last)
        assert target.layout is not None
        shape = replace(target.matrix_shape, num_outputs=count)
        scales = tags.view(np.uint8) if raw.scales is None else raw.scales
        stored = target.matrix_format.to_stored(raw.weights, scales, shape)
        if isinstance(stored, FloatTensor):
            raise CheckpointError(
                f"tensor {tensor.source.name} of {self._checkpoint.path} has a scale above "
                f"{MAX_FP8_SCALE:g}, which the streaming layout cannot hold",
                path=self._checkpoint.path,
                tensor=tensor.source.name,
                hint="give its class a number of bits, so that it is rounded anew",
            )
        rest = None
        if raw.scales is None:
            rest = e8.split_rest(raw.weights, target.shape[1]).reshape(-1)
        codes = pack_codes(stored.codes, target.layout)
        return Block(codes, stored.scales, rest=rest, is_last=is_last)

    def _rounded(self, tensor: PlannedTensor, floats: FloatTensor) -> IntTensor:
        target = tensor.target
        assert target.layout is not None
        assert target.layout.zero is not None
        try:
            return quantize(floats, target.bits, target.group, target.layout.zero)
        except ValueError as error:
            raise self._not_finite(tensor) from error

    def _lattice(self, tensor: PlannedTensor, stored: StoredTensor, *, is_last: bool) -> Block:
        try:
            codes = e8_encoding.encode(stored.unpack())
        except ValueError as error:
            raise self._not_finite(tensor) from error
        tags = np.full((int(is_last), 1), e8.TAG, np.float32)  # one for the whole matrix
        return Block(codes.reshape(-1), tags, is_last=is_last)

    def _kept(self, tensor: PlannedTensor, stored: StoredTensor) -> IntTensor:
        rows = stored.to_codes() if isinstance(stored, PackedTensor) else stored
        if not isinstance(rows, IntTensor) or not _has_layout(rows, tensor.target):
            raise CheckpointError(
                f"tensor {tensor.source.name} of {self._checkpoint.path} is stored otherwise than "
                "the same matrix of the first expert of its layer",
                path=self._checkpoint.path,
                tensor=tensor.source.name,
                hint="give its class a number of bits, so that it is rounded anew",
            )
        return rows

    def _floats(
        self, tensor: PlannedTensor, stored: StoredTensor, *, is_last: bool = True
    ) -> Block:
        values = stored.unpack()
        if not np.isfinite(values).all():
            raise self._not_finite(tensor)
        is_plain = tensor.target.format != "F32" and isinstance(stored, FloatTensor)
        array = stored.array if is_plain and isinstance(stored, FloatTensor) else values
        return Block(np.ascontiguousarray(array).reshape(-1).view(np.uint8), is_last=is_last)

    def _bytes(self, rows: IntTensor, target: Target) -> Bytes:
        if self._packed:
            assert target.layout is not None
            return pack_codes(rows.codes, target.layout)
        join = target.matrix_format.join
        assert join is not None
        return np.ascontiguousarray(join(rows.codes)).reshape(-1)

    def _not_finite(self, tensor: PlannedTensor) -> CheckpointError:
        return CheckpointError(
            f"tensor {tensor.source.name} of {self._checkpoint.path} holds a value that is NaN or "
            "infinite",
            path=self._checkpoint.path,
            tensor=tensor.source.name,
            hint="the source is damaged: pull or copy it again",
        )


class OrderedWork(Generic[_Key]):
    """Runs tasks in threads and gives their results in order.

    Args:
        executor: The threads.
        num_threads: How many it has.
    """

    def __init__(self, executor: Executor, num_threads: int) -> None:
        self._executor = executor
        self._limit = _LOOKAHEAD * num_threads

    def run(
        self, tasks: Iterable[tuple[_Key, Callable[[], Block]]]
    ) -> Iterator[tuple[_Key, Block]]:
        """Yield (key, block) for each task, in order; the first error ends it."""
        waiting: deque[tuple[_Key, Future[Block]]] = deque()
        try:
            for key, task in tasks:
                waiting.append((key, self._executor.submit(task)))
                if len(waiting) >= self._limit:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _has_layout(rows: IntTensor, target: Target) -> bool:
    found, wanted = TileLayout.of(rows), target.layout
    assert wanted is not None
    fields = ("num_inputs", "bits", "group", "zero", "scale_bytes", "rotated", "levels")
    return all(getattr(found, field) == getattr(wanted, field) for field in fields)


def _half_errors(values: Floats, rounded: Floats) -> npt.NDArray[np.float64]:
    """Return [[squared error, squared value] of the first half, … of the second]."""
    half = values.shape[1] // 2
    sums = [
        [
            float(np.square(rounded[:, part] - values[:, part], dtype=np.float64).sum()),
            float(np.square(values[:, part], dtype=np.float64).sum()),
        ]
        for part in (slice(0, half), slice(half, None))
    ]
    return np.array(sums)
