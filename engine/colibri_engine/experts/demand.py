"""What one layer wants for one step: handed out as it can be computed, until all was."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import ExpertReadFailed
from colibri_engine.kernels import ReadPriority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.experts.store import ExpertStore, StreamedLayer
    from colibri_engine.kernels import Expert

# Experts in memory that are computed in one go while others wait for a slot to be read into.
_BLOCK: Final = 8


class Demand:
    """The experts of one step of one layer, each once.

    Call `ready` and compute what it gives, then `done`, until `ready` gives nothing; after any
    error, `abandon`.

    Args:
        store: Where they come from.
        layer: The layer.
        experts: The experts, each once.
    """

    def __init__(self, store: ExpertStore, layer: StreamedLayer, experts: Sequence[int]) -> None:
        self._store = store
        self._layer = layer
        self._held: deque[int] = deque()  # in the cache, not yet computed
        self._slots: dict[int, int] = {}  # arrived and handed out
        self._missing: set[int] = set()  # not yet arrived
        self._waiting: deque[int] = deque()  # of them, those whose read has not begun
        counters = store.counters
        store.collect()  # what has arrived meanwhile is there, not late
        for expert in experts:
            if expert in layer.cache:
                self._held.append(expert)
                counters.hits += 1
                continue
            spare = layer.pool.take_spare(layer.number, expert)
            self._missing.add(expert)
            if spare is not None:
                layer.arrived[expert] = spare
                counters.hits += 1
                counters.prefetched += 1
                continue
            counters.misses += 1
            if expert in layer.reads:
                store.fetch(layer, expert, ReadPriority.DEMAND)
                counters.late += 1
            else:
                self._waiting.append(expert)
        store.drop_guesses(layer, self._missing)
        self._begin_reads()

    def ready(self) -> list[tuple[int, Expert]]:
        """Return experts that can be computed now, and wait for one if there is none.

        Returns:
            Numbers and experts; empty when all were handed out.

        Raises:
            ExpertReadFailed: one could not be read.
        """
        store, layer = self._store, self._layer
        if self._missing:
            store.collect()
        while True:
            if layer.failed:
                expert, completion = next(iter(layer.failed.items()))
                raise store.error(layer, expert, completion)
            if layer.arrived:
                return self._take_arrived()
            if self._held:
                return self._take_held()
            if not self._missing:
                self._offer_spare()
                return []
            self._begin_reads()
            assert store.has_reads
            started = perf_counter()
            store.collect(wait=True)
            store.counters.wait_s += perf_counter() - started

    @property
    def is_under_way(self) -> bool:
        """Whether every expert is in memory or being read."""
        return not self._waiting

    def done(self, experts: Sequence[int]) -> None:
        """Take note that experts were computed: their slots may be used for others."""
        layer = self._layer
        for expert in experts:
            slot = self._slots.pop(expert, None)
            if slot is not None:
                freed = layer.cache.offer(expert, slot, self._held)
                if freed is not None:
                    layer.pool.give(freed)
        self._begin_reads()

    def abandon(self) -> None:
        """Let go of everything that was not computed."""
        for expert, slot in self._slots.items():
            self._layer.pool.keep_spare(self._layer.number, expert, slot)
        self._slots.clear()
        self._store.unwant(self._layer, self._missing)

    def _offer_spare(self) -> None:
        """Keep what was read in vain where it is worth it, else free its slots."""
        layer = self._layer
        for expert, slot in layer.pool.take_spare_of(layer.number):
            freed = layer.cache.offer(expert, slot)
            if freed is not None:
                layer.pool.give(freed)

    def _begin_reads(self) -> None:
        while self._waiting:
            if not self._store.fetch(self._layer, self._waiting[0], ReadPriority.DEMAND):
                return
            self._waiting.popleft()

    def _take_held(self) -> list[tuple[int, Expert]]:
        layer = self._layer
        count = len(self._held)
        if self._waiting:
            count = min(count, _BLOCK)
        found = []
        for _ in range(count):
            expert = self._held.popleft()
            slot = layer.cache.slot(expert)
            assert slot is not None
            found.append((expert, layer.views.at(layer.pool.arena, slot, expert)))
        return found

    def _take_arrived(self) -> list[tuple[int, Expert]]:
        layer = self._layer
        found = []
        while layer.arrived:
            expert, slot = layer.arrived.popitem()
            self._slots[expert] = slot
            self._missing.discard(expert)
            self._check(expert, slot)
            found.append((expert, layer.views.at(layer.pool.arena, slot, expert)))
        return found

    def _check(self, expert: int, slot: int) -> None:
        """Refuse scales that are not finite, the first time an expert is read."""
        layer = self._layer
        if expert in layer.checked:
            return
        if not layer.views.has_finite_scales(layer.pool.arena, slot):
            raise ExpertReadFailed(
                f"{self._store.file_of(layer, expert)}: {layer.records.prefix}.{expert} holds a "
                "scale that is not finite",
                hint="the file is damaged: copy or convert the model again",
            )
        layer.checked.add(expert)
