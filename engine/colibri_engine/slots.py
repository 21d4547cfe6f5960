"""KV slots: which tokens each one holds, who uses it, and which one serves a prompt best.

A slot is a cache and the exact ids its rows were computed from, so what can be reused is found by
comparing ids and never by counters. Engine thread only; knows no requests beyond their ids.

A prompt without a slot of its own goes to the free slot whose whole content it continues; else to
an empty one; else to the one with the longest common prefix, if that is at least half of what the
slot holds; else to the one unused for longest. So two conversations that merely open alike keep
apart. Wherever it goes, rows another slot has in common with it are copied, which is exact.

Recurrent state belongs to one length and cannot be cut back: a cache with state is reused up to the
longest length it can be restored to. So that there is one near the end of a conversation, the state
is kept where a prompt ends and where a reply ends.

A keeper may save what slots hold. It is told when a reply has ended and now and then while
it goes on, and asked before rows are taken back, because it may still be reading them.

Caches take memory as they fill. Before one grows, what is free is looked up: a page that cannot be
had would end the process, so idle slots give theirs up first, and then the request is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from colibri_engine import machine
from colibri_engine.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]

ANY_SLOT: Final = -1
_SPARE_BYTES: Final = 64_000_000  # left for everything else
_SAVE_EVERY_S: Final = 30.0
_WORTH_COPYING: Final = 16  # rows; fewer are computed about as fast as they are copied


class KvCache(Protocol):
    """The keys and values of one sequence; see `colibri_engine.kernels.KvCache`."""

    @property
    def length(self) -> int:
        """Positions that hold rows."""
        ...

    @property
    def capacity(self) -> int:
        """Positions there is memory for."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of that memory."""
        ...

    @property
    def has_state(self) -> bool:
        """Whether it cannot be cut back at any length."""
        ...

    def reserve(self, positions: int, /) -> None:
        """Make room; raises MemoryError and changes nothing if there is none."""
        ...

    def restorable(self, length: int, /) -> int:
        """Return the largest length up to `length` that can be truncated to or copied."""
        ...

    def snapshot(self) -> None:
        """Let the current length stay restorable."""
        ...

    def truncate(self, length: int, /) -> None:
        """Forget the positions from `length` on, which is restorable."""
        ...

    def copy_prefix(self, other: Any, length: int, /) -> None:  # noqa: ANN401 - its own class
        """Become a copy of the first `length` positions of `other`, restorable there."""
        ...


class Keeper(Protocol):
    """Saves what slots hold; see `colibri_engine.kv_files.conversations`."""

    def save(self, slot: Slot, /) -> None:
        """Let what a slot holds be saved; its rows are read later."""
        ...

    def cut(self, slot_idx: int, length: int, /) -> None:
        """Return when rows from `length` on may be overwritten."""
        ...

    def close(self) -> None:
        """Save what is left to save."""
        ...


class TokenHistory:
    """The ids whose rows a cache holds, in order.

    Args:
        capacity: The most it will ever hold.
    """

    __slots__ = ("_ids", "_length")

    def __init__(self, capacity: int) -> None:
        self._ids = np.empty(capacity, np.int32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def ids(self) -> Ids:
        """A read-only view of the ids."""
        view = self._ids[: self._length]
        view.flags.writeable = False
        return view

    def append(self, token_id: int) -> None:
        """Record one row."""
        self._ids[self._length] = token_id
        self._length += 1

    def extend(self, ids: Ids) -> None:
        """Record one row per id."""
        self._ids[self._length : self._length + ids.size] = ids
        self._length += ids.size

    def truncate(self, length: int) -> None:
        """Forget the ids from `length` on."""
        assert 0 <= length <= self._length
        self._length = length

    def common_prefix(self, ids: Ids) -> int:
        """Return how many leading ids are the same."""
        size = min(self._length, ids.size)
        differs = self._ids[:size] != ids[:size]
        first = int(differs.argmax()) if size else 0
        return first if size and differs[first] else size


@dataclass(slots=True, eq=False)
class Slot:
    """One cache, the ids of its rows, and the request that uses it (None: free)."""

    idx: int
    cache: KvCache
    history: TokenHistory
    request_id: int | None = None
    last_used: int = 0

    def reusable(self, ids: Ids) -> int:
        """Return how many leading ids have rows here that can be gone back to."""
        return self.cache.restorable(self.history.common_prefix(ids))

    def rewind(self, length: int) -> None:
        """Drop the rows from `length` on, and any that were written without being recorded."""
        self.history.truncate(length)
        if self.cache.length > length:
            self.cache.truncate(length)


@dataclass(slots=True)
class SlotTable:
    """All slots of the process.

    Args:
        num_slots: How many.
        context_length: Positions each may hold.
        make_cache: Makes an empty cache, which takes memory only as it fills.
        free_bytes: Returns the memory that is free now.
        shares_prefixes: Copy rows that another slot has in common with a prompt.
        keeper: Who saves what the slots hold.
        draft_position_bytes: What a draft layer's cache takes for each position beside a slot's.
    """

    num_slots: int
    context_length: int
    make_cache: Callable[[], KvCache]
    free_bytes: Callable[[], int] = lambda: machine.memory().available
    shares_prefixes: bool = True
    keeper: Keeper | None = None
    draft_position_bytes: int = 0
    slots: list[Slot] = field(init=False)
    _clock: int = field(init=False, default=0)
    _saved_at: float = field(init=False, default=0.0)
    _position_bytes: float = field(init=False)

    def __post_init__(self) -> None:
        """Make the slots, all empty and free."""
        sample = self.make_cache()
        sample.reserve(1)
        fixed_bytes, block = sample.nbytes, sample.capacity
        sample.reserve(block + 1)
        rows_bytes = (sample.nbytes - fixed_bytes) / (sample.capacity - block)
        self._position_bytes = rows_bytes + self.draft_position_bytes
        self.slots = [
            Slot(idx, self.make_cache(), TokenHistory(self.context_length))
            for idx in range(self.num_slots)
        ]

    def __getitem__(self, idx: int) -> Slot:
        return self.slots[idx]

    def acquire(self, request_id: int, wanted: int, prompt: Ids) -> tuple[Slot, int]:
        """Give a slot to a request; return it and how many rows of the prompt it now holds.

        At least the last token of the prompt is left to be fed: its row gives the logits.

        Raises:
            RequestRefused: The slot does not exist or is busy, or all are.
            MemoryError: No memory for the rows of the prompt; the slot stays free.
        """
        slot = self._choose(wanted, prompt)
        usable = prompt[:-1]
        kept = slot.reusable(usable)
        self._rewind(slot, kept)
        self._check_room(slot, prompt.size)
        donor, shared = self._longest_prefix(usable)
        if self.shares_prefixes and donor is not slot and shared >= kept + _WORTH_COPYING:
            self._rewind(slot, 0)
            slot.cache.copy_prefix(donor.cache, shared)
            slot.history.extend(usable[:shared])
            kept = shared
        self._clock += 1
        slot.last_used = self._clock
        slot.request_id = request_id
        return slot, kept

    def release(self, slot: Slot) -> None:
        """Free a slot; what it holds stays for the next request."""
        slot.cache.snapshot()
        self._clock += 1
        slot.last_used = self._clock
        slot.request_id = None
        if self.keeper is not None and len(slot.history) > 0:
            self.keeper.save(slot)

    def save_now_and_then(self, now: float) -> None:
        """Let what busy slots hold be saved, if that was long ago.

        So that a prompt that takes hours is not lost with the process.
        """
        if self.keeper is None or now - self._saved_at < _SAVE_EVERY_S:
            return
        self._saved_at = now
        for slot in self.slots:
            if slot.request_id is not None and len(slot.history) > 0:
                self.keeper.save(slot)

    def restore(self, idx: int, num_positions: int, read_into: Callable[[Any], Ids]) -> None:
        """Give an empty slot rows that were computed earlier.

        Args:
            idx: The slot.
            num_positions: How many.
            read_into: Fills an empty cache with them and returns their ids. What it raises is
                raised here, and the slot stays empty.

        Raises:
            MemoryError: There is no memory for them.
        """
        slot = self.slots[idx]
        assert len(slot.history) == 0
        self._check_room(slot, num_positions)
        cache = self.make_cache()
        ids = read_into(cache)
        assert cache.length == ids.size
        slot.cache = cache
        slot.history.extend(ids)
        self._clock += 1
        slot.last_used = self._clock

    def make_room(self, slot: Slot, positions: int) -> None:
        """Let a slot's cache hold `positions`.

        Raises:
            MemoryError: There is no memory for them; what the slot holds is untouched.
        """
        if positions > slot.cache.capacity:
            self._check_room(slot, positions)
            slot.cache.reserve(positions)

    def _rewind(self, slot: Slot, length: int) -> None:
        if self.keeper is not None:
            self.keeper.cut(slot.idx, length)
        slot.rewind(length)

    def _check_room(self, slot: Slot, positions: int) -> None:
        missing = positions - slot.cache.capacity
        if missing <= 0:
            return
        wanted = int(missing * self._position_bytes) + _SPARE_BYTES
        idle = [s for s in self.slots if s.request_id is None and s is not slot]
        idle.sort(key=lambda other: other.last_used)
        while self.free_bytes() < wanted:
            holding = [other for other in idle if other.cache.capacity > 0]
            if not holding:
                raise MemoryError(
                    f"no memory for {positions} positions of context ({wanted / 1e6:.0f} MB more "
                    "are needed); lower COLI_CTX or COLI_KV_SLOTS, or shorten the conversation"
                )
            if self.keeper is not None:
                self.keeper.cut(holding[0].idx, 0)
            holding[0].history.truncate(0)
            holding[0].cache = self.make_cache()  # the old one goes, and its memory with it

    def _choose(self, wanted: int, prompt: Ids) -> Slot:
        if wanted != ANY_SLOT:
            if not 0 <= wanted < self.num_slots:
                raise RequestRefused(
                    "BAD_REQUEST", f"slot {wanted} does not exist, there are {self.num_slots}"
                )
            if self.slots[wanted].request_id is not None:
                raise RequestRefused("SLOT_BUSY", f"slot {wanted} is in use")
            return self.slots[wanted]
        free = [slot for slot in self.slots if slot.request_id is None]
        if not free:
            raise RequestRefused("SLOT_BUSY", f"all {self.num_slots} slots are in use")
        prefixes = {slot.idx: slot.history.common_prefix(prompt) for slot in free}
        continued = [s for s in free if 0 < prefixes[s.idx] == len(s.history)]
        if not continued and any(len(slot.history) == 0 for slot in free):
            return next(slot for slot in free if len(slot.history) == 0)
        similar = [s for s in free if prefixes[s.idx] > 0 and 2 * prefixes[s.idx] >= len(s.history)]
        candidates = continued or similar
        if candidates:
            return max(candidates, key=lambda slot: (prefixes[slot.idx], -slot.last_used))
        return min(free, key=lambda slot: slot.last_used)

    def _longest_prefix(self, ids: Ids) -> tuple[Slot, int]:
        found = [(slot.reusable(ids), slot) for slot in self.slots]
        length, slot = max(found, key=lambda pair: pair[0])
        return slot, length
