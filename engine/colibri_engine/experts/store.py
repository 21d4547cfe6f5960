"""The experts of a model that do not all fit: slots, reads and what each layer keeps.

A step asks each layer for the experts its rows chose, every one once (`demand`), computes those in
memory while the others are read, then each as it arrives. What was read takes a place in the
layer's cache or leaves its slot to the next. Reads that nobody waits for come last, and may be
taken back. Where an expert lies changes no result. Engine thread only.
"""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import ExpertReadFailed
from colibri_engine.experts.cache import LayerCache
from colibri_engine.experts.counters import ExpertCounters
from colibri_engine.experts.slot_experts import SlotExperts
from colibri_engine.experts.slot_pool import SlotPool
from colibri_engine.kernels import MoeStep, ReadPriority

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.experts.budget import Placement
    from colibri_engine.experts.record_reader import RecordReader
    from colibri_engine.experts.records import LayerRecords, RecordTable
    from colibri_engine.experts.slot_experts import ExpertForm
    from colibri_engine.kernels import ReadCompletion

MAX_GUESSED_ROWS: Final = 8  # a step of more rows asks for too much to be guessed
_LONGEST_WAIT: Final = 1.0  # seconds in one call; the loop around it goes on


@dataclass(slots=True)
class _Read:
    """One read under way."""

    layer: StreamedLayer
    expert: int
    slot: int
    is_wanted: bool
    is_old: bool  # begun, or left over, while nobody waited for it


@dataclass(slots=True)
class StreamedLayer:
    """One layer: where its records are, how they are computed, what of them is in memory.

    Args:
        number: Its place among the streamed layers.
        records: Where its experts lie.
        views: Its experts in slots.
    """

    number: int
    records: LayerRecords
    views: SlotExperts
    pool: SlotPool = field(init=False)
    cache: LayerCache = field(init=False)
    reads: dict[int, int] = field(default_factory=dict)  # expert -> tag
    arrived: dict[int, int] = field(default_factory=dict)  # wanted expert -> slot
    failed: dict[int, ReadCompletion] = field(default_factory=dict)
    checked: set[int] = field(default_factory=set)  # whose scales were found finite

    @property
    def num_experts(self) -> int:
        """Routed experts of the layer."""
        return len(self.records.places)

    @property
    def model_layer(self) -> int:
        """The number of the layer in the model."""
        return _layer_number(self.records.prefix)


class ExpertStore:
    """Owns the slots and the reads of all streamed layers.

    Args:
        table: Where every record lies.
        reader: What reads them.
        looks_ahead: Read what is likely to be asked for while the disk has nothing else to do.
    """

    def __init__(
        self, table: RecordTable, reader: RecordReader, *, looks_ahead: bool = True
    ) -> None:
        self.table = table
        self.looks_ahead = looks_ahead
        self.counters = ExpertCounters()
        self.step = MoeStep()  # one for all layers: they run one after the other
        self.layers: list[StreamedLayer] = []
        self.mixtures: list[StreamedLayer | None] = []  # of the model in order; None: resident
        self.model_layers: list[int] = []  # the number of each in the model
        self._reader = reader
        self._views: list[SlotExperts] = []
        self._pools: dict[int, SlotPool] = {}
        self._reads: dict[int, _Read] = {}
        self._next_tag = 0

    # ---- while the model is loaded ----------------------------------------------------------

    def add_layer(self, prefix: str, form: ExpertForm) -> StreamedLayer:
        """Return a further layer, whose experts can be asked for once `open` was called."""
        views = next((views for views in self._views if views.form.is_like(form)), None)
        if views is None:
            views = SlotExperts(form)
            self._views.append(views)
        layer = StreamedLayer(len(self.layers), self.table.layers[prefix], views)
        self.layers.append(layer)
        self.mixtures.append(layer)
        self.model_layers.append(layer.model_layer)
        return layer

    def skip_layer(self, prefix: str) -> None:
        """Take note of a mixture whose experts are all in memory."""
        self.mixtures.append(None)
        self.model_layers.append(_layer_number(prefix))

    def open(
        self, placement: Placement, rates: Sequence[npt.NDArray[np.float64] | None] = ()
    ) -> None:
        """Reserve the slots; once more: those of before go, and what they held.

        Args:
            placement: How many each layer gets.
            rates: By layer, how often a row chose each expert, from history.
        """
        while self._reads:
            self.collect(wait=True)
        for views in self._views:
            views.forget()
        totals: dict[int, int] = {}
        for layer, capacity in zip(self.layers, placement.capacities, strict=True):
            size = layer.records.nbytes
            totals[size] = totals.get(size, placement.working_slots) + capacity
        self._pools = {size: SlotPool(count, size) for size, count in totals.items()}
        for layer, capacity in zip(self.layers, placement.capacities, strict=True):
            layer.pool = self._pools[layer.records.nbytes]
            known = rates[layer.number] if rates else None
            layer.cache = LayerCache(layer.num_experts, capacity, known)
            layer.arrived.clear()

    def warm(self, experts: Iterable[tuple[int, int]], goes_on: Callable[[], bool]) -> None:
        """Read experts before anyone has asked for them, into caches that have room.

        Args:
            experts: Numbers of layers and of experts.
            goes_on: Asked before each whether there is time for it.
        """
        for number, expert in experts:
            layer = self.layers[number]
            if expert in layer.cache or len(layer.cache) >= layer.cache.capacity:
                continue
            if not goes_on():
                break
            while not self.fetch(layer, expert, ReadPriority.NEXT_BLOCK):
                if not self.collect(wait=True) and not self.has_reads:
                    break
                self._keep_spare()
        while self.has_reads:
            self.collect(wait=True)
        self._keep_spare()

    # ---- while it answers -------------------------------------------------------------------

    def fetch(self, layer: StreamedLayer, expert: int, priority: ReadPriority) -> bool:
        """Begin to read an expert, or raise the priority of the read under way.

        Returns:
            False where no slot is free: try again when one is given back.
        """
        is_wanted = priority == ReadPriority.DEMAND
        tag = layer.reads.get(expert)
        if tag is not None:
            self._reader.promote(tag, priority)
            self._reads[tag].is_wanted |= is_wanted
            return True
        slot = layer.pool.take() if is_wanted else layer.pool.take_empty()
        if slot is None and is_wanted:
            slot = self._take_back(layer.pool)
        if slot is None:
            return False
        place = layer.records.places[expert]
        self._next_tag += 1
        tag = layer.reads[expert] = self._next_tag
        self._reads[tag] = _Read(layer, expert, slot, is_wanted, not is_wanted)
        self._reader.submit(
            tag,
            place,
            layer.records.nbytes,
            layer.pool.arena,
            slot,
            priority=priority,
        )
        self.counters.ahead += not is_wanted
        return True

    def collect(self, *, wait: bool = False) -> bool:
        """Take in the reads that are over; return whether there were any.

        Args:
            wait: Wait for one, at most a second.
        """
        found = self._reader.wait(_LONGEST_WAIT) if wait else self._reader.poll()
        for completion in found:
            self._take_in(completion)
        return bool(found)

    def unwant(self, layer: StreamedLayer, experts: Iterable[int]) -> None:
        """Let go of experts that were asked for and are not used: a step has failed."""
        for expert in experts:
            tag = layer.reads.get(expert)
            if tag is not None:
                self._reads[tag].is_wanted = False
                self._reads[tag].is_old = True
            slot = layer.arrived.pop(expert, None)
            if slot is not None:
                layer.pool.keep_spare(layer.number, expert, slot)
        layer.failed.clear()

    def drop_guesses(self, layer: StreamedLayer, wanted: Collection[int]) -> None:
        """Take back the reads of a layer that have not begun and were not wanted after all."""
        for expert, tag in list(layer.reads.items()):
            if expert not in wanted and self._reader.cancel(tag):
                self._forget(tag)

    @property
    def has_reads(self) -> bool:
        """Whether reads are under way."""
        return bool(self._reads)

    def report(self) -> dict[str, float]:
        """Return the raw counters by name."""
        return asdict(self.counters)

    def close(self) -> None:
        """End all reads. The experts cannot be used afterwards."""
        self._reader.close()

    def error(
        self, layer: StreamedLayer, expert: int, completion: ReadCompletion
    ) -> ExpertReadFailed:
        """Return what to say of a read that failed."""
        place = layer.records.places[expert]
        name = f"{layer.records.prefix}.{expert}"
        if completion.error == errno.ENODATA:
            problem = (
                f"{layer.records.nbytes} bytes wanted at {place.offset}, {completion.bytes} found"
            )
            hint = "the file was cut: copy or convert the model again"
        else:
            problem = f"reading {layer.records.nbytes} bytes at {place.offset}: "
            problem += os.strerror(completion.error)
            hint = "check the disk and the system's log"
        return ExpertReadFailed(f"{self.file_of(layer, expert)}: {name}: {problem}", hint=hint)

    def file_of(self, layer: StreamedLayer, expert: int) -> str:
        """Return the name of the file that an expert's record is in."""
        return self.table.paths[layer.records.places[expert].file].name

    def _keep_spare(self) -> None:
        """Offer what was read without being asked for to its layer's cache."""
        for layer in self.layers:
            for expert, slot in layer.pool.take_spare_of(layer.number):
                freed = layer.cache.offer(expert, slot)
                if freed is not None:
                    layer.pool.give(freed)

    def _take_in(self, completion: ReadCompletion) -> None:
        read = self._reads.pop(completion.tag)
        layer, expert = read.layer, read.expert
        del layer.reads[expert]
        self.counters.service_s += completion.service_s
        self.counters.bytes_read += completion.bytes
        if completion.error:
            layer.pool.give(read.slot)
            if not read.is_wanted:
                return
            # What an old read met says nothing about now: once more.
            if not (read.is_old and self.fetch(layer, expert, ReadPriority.DEMAND)):
                layer.failed[expert] = completion
        elif read.is_wanted:
            layer.arrived[expert] = read.slot
        else:
            layer.pool.keep_spare(layer.number, expert, read.slot)

    def _take_back(self, pool: SlotPool) -> int | None:
        """Return the slot of a read that nobody waits for and that has not begun."""
        for tag, read in self._reads.items():
            if not read.is_wanted and read.layer.pool is pool and self._reader.cancel(tag):
                self._forget(tag)
                return pool.take_empty()
        return None

    def _forget(self, tag: int) -> None:
        """Take note that a read was taken back."""
        read = self._reads.pop(tag)
        del read.layer.reads[read.expert]
        read.layer.pool.give(read.slot)
        self.counters.cancelled += 1


def _layer_number(prefix: str) -> int:
    """Return the number of a layer in the model: 3 for "model.layers.3.mlp.experts"."""
    return int(prefix.split(".")[2])
