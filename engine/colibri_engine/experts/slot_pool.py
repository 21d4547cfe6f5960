"""Slots of one size: which are free, and which hold what was read too early.

A slot belongs to a layer's cache, to a read, to an expert that has arrived and is wanted, or to
this pool: empty, or spare, which holds an expert that nobody has asked for yet.
"""

from __future__ import annotations

from collections import OrderedDict

from colibri_engine.kernels import SlotArena


class SlotPool:
    """All slots of one size.

    Args:
        num_slots: How many.
        slot_bytes: Bytes of each.
    """

    def __init__(self, num_slots: int, slot_bytes: int) -> None:
        self.arena = SlotArena(num_slots, slot_bytes)
        self._empty = list(range(num_slots - 1, -1, -1))
        self._spare: OrderedDict[tuple[int, int], int] = OrderedDict()

    def take(self) -> int | None:
        """Take a slot; the oldest spare one where none is empty, None where there is none."""
        if self._empty:
            return self._empty.pop()
        if self._spare:
            return self._spare.popitem(last=False)[1]
        return None

    def take_empty(self) -> int | None:
        """Take an empty slot, if there is one."""
        return self._empty.pop() if self._empty else None

    def give(self, slot: int) -> None:
        """Give back a slot; what it holds is not wanted."""
        self._empty.append(slot)

    def keep_spare(self, layer: int, expert: int, slot: int) -> None:
        """Give back a slot whose expert may be asked for."""
        self._spare[layer, expert] = slot

    def take_spare(self, layer: int, expert: int) -> int | None:
        """Take the slot that holds an expert, if one does."""
        return self._spare.pop((layer, expert), None)

    def take_spare_of(self, layer: int) -> list[tuple[int, int]]:
        """Take all spare slots of a layer: experts and slots."""
        found = [key for key in self._spare if key[0] == layer]
        return [(expert, self._spare.pop((layer, expert))) for _, expert in found]

    def has_spare(self, layer: int, expert: int) -> bool:
        """Return whether a spare slot holds an expert."""
        return (layer, expert) in self._spare

    def release(self, slot: int) -> None:
        """Give a slot's memory back to the system for good."""
        self.arena.release(slot)
