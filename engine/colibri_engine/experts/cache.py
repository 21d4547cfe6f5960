"""Which experts of a layer stay in memory: an index of slots, and the rule by which they change.

An expert's score is what its next use is guessed from: how often it was chosen lately, once over a
long time (about a thousand rows) and once over the last row or two, which in decoding repeats much
of the row before; for those that a row nearly chose, how near. One that has just been read takes
the place of the lowest score only if its own is higher, so what passes by once, as most experts do
in a long prompt, pushes nothing out. A step of many rows counts for each expert by the share of
rows that chose it: a prompt that touches every expert tells them apart no better than the rows
themselves do. Pinned experts are never given up.

Knows numbers of experts and of slots; reads nothing. Engine thread only.
Source: admission by frequency as in TinyLFU, arXiv 1512.00727; rates over two times as in LRFU,
IEEE Trans. Computers 50 (12), 2001; measured in docs/measurements.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Floats = npt.NDArray[np.float64]

_LONG_ROWS: Final = 1000.0  # half-life of the long rate
_SHORT_ROWS: Final = 0.7  # of the short one
_SHORT_WEIGHT: Final = 0.35  # how much the short rate says about the next use
_NEAREST: Final = 0.7  # what the first one not chosen counts for in it; the last one nothing


class LayerCache:
    """The experts of one layer that are in memory.

    Args:
        num_experts: Routed experts of the layer.
        capacity: Slots it may hold, at least 1.
        rates: (num_experts,) how often a row chose each, from history; None: nothing is known.
    """

    def __init__(self, num_experts: int, capacity: int, rates: Floats | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"a layer needs at least one slot, not {capacity}")
        self.capacity = capacity
        self._slots: dict[int, int] = {}
        self._is_held = np.zeros(num_experts, np.bool_)
        self._is_pinned = np.zeros(num_experts, np.bool_)
        self._long = np.zeros(num_experts) if rates is None else rates.astype(np.float64)
        self._short = np.zeros(num_experts)
        self._score = self._long.copy()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, expert: int) -> bool:
        return expert in self._slots

    @property
    def experts(self) -> Iterable[int]:
        """The experts in memory, in no order."""
        return self._slots.keys()

    @property
    def is_held(self) -> npt.NDArray[np.bool_]:
        """(num_experts,) whether each is in memory; not to be written."""
        return self._is_held

    @property
    def pinned(self) -> list[int]:
        """The experts that stay whatever happens, ascending."""
        return np.flatnonzero(self._is_pinned).tolist()

    @property
    def scores(self) -> Floats:
        """(num_experts,) what is expected of each; not to be written."""
        return self._score

    def slot(self, expert: int) -> int | None:
        """Return where an expert is, or None."""
        return self._slots.get(expert)

    def note(
        self,
        experts: Sequence[int],
        counts: npt.ArrayLike,
        num_rows: int,
        near: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Record one step.

        Args:
            experts: Those that were chosen, each once.
            counts: How many rows chose each.
            num_rows: Rows of the step.
            near: (num_rows, M) those that each row came nearest to choosing, the nearest first.
        """
        share = np.asarray(counts, np.float64) / num_rows
        chosen = np.asarray(experts, np.intp)
        for rates, half_life in ((self._long, _LONG_ROWS), (self._short, _SHORT_ROWS)):
            kept = 2.0 ** (-num_rows / half_life)
            np.multiply(rates, kept, out=rates)
            rates[chosen] += (1 - kept) * share
        if near is not None:
            credit = np.linspace(_NEAREST, 0, near.shape[1], endpoint=False)
            credit *= (1 - 2.0 ** (-num_rows / _SHORT_ROWS)) / num_rows
            for row in near:
                self._short[row] += credit
        np.multiply(self._short, _SHORT_WEIGHT, out=self._score)
        self._score += self._long

    def offer(self, expert: int, slot: int, keep: Collection[int] = ()) -> int | None:
        """Take in an expert that was read into `slot`, if it is worth more than another.

        Args:
            expert: One that is not held.
            slot: Where it is.
            keep: Experts that may not be given up now.

        Returns:
            The slot that is free in exchange: that of the expert it replaced, its own where it was
            not taken in, None where there was room.
        """
        assert expert not in self._slots
        if len(self._slots) < self.capacity:
            self._put(expert, slot)
            return None
        victim = self._least(keep)
        if victim is None or self._score[expert] <= self._score[victim]:
            return slot
        freed = self._drop(victim)
        self._put(expert, slot)
        return freed

    def give_up(self, keep: Collection[int] = ()) -> int | None:
        """Drop the expert least worth keeping; return its slot, or None where none may go."""
        victim = self._least(keep)
        return None if victim is None else self._drop(victim)

    def shrink(self) -> int | None:
        """Hold one expert less from now on, a pinned one last; return the slot that is free."""
        slot = self.give_up()
        if slot is None and self._slots:
            pinned = np.flatnonzero(self._is_pinned & self._is_held)
            coldest = int(pinned[self._score[pinned].argmin()])
            self._is_pinned[coldest] = False
            slot = self._drop(coldest)
        if slot is not None:
            self.capacity -= 1
        return slot

    def recency(self, unit: int) -> npt.NDArray[np.int64]:
        """Return (num_experts,) how lately each was chosen, 0 to unit - 1."""
        most = self._short.max()
        if most <= 0:
            return np.zeros(len(self._short), np.int64)
        found: npt.NDArray[np.int64] = (self._short * ((unit - 1) / most)).astype(np.int64)
        return found

    def pin(self, experts: Iterable[int]) -> None:
        """Keep these, once they are in memory, until they are unpinned."""
        self._is_pinned[list(experts)] = True

    def unpin(self, experts: Iterable[int]) -> None:
        """Let these go when others are worth more."""
        self._is_pinned[list(experts)] = False

    def _least(self, keep: Collection[int]) -> int | None:
        free = self._is_held & ~self._is_pinned
        if keep:
            free[list(keep)] = False
        scores = np.where(free, self._score, np.inf)
        victim = int(scores.argmin())
        return victim if free[victim] else None

    def _put(self, expert: int, slot: int) -> None:
        self._slots[expert] = slot
        self._is_held[expert] = True

    def _drop(self, expert: int) -> int:
        self._is_held[expert] = False
        return self._slots.pop(expert)
