"""How much of the experts stays in memory: arithmetic over sizes, nothing else.

    budget  = what was asked for, else 88 % of what is available
    fixed   = resident weights + conversations + step buffers + the process itself
    working = slots that reads arrive in, of every size of record
    cache   = budget - fixed - working, in whole slots, as many for each layer

Every layer is priced at the width of its own records. A start that cannot hold one slot for each
layer is refused with these figures. Bytes everywhere; GB are 10^9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import InsufficientMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.machine import Memory

GB: Final = 1_000_000_000
SHARE: Final = 0.88  # of what is available, where nobody says; the rest is for files and others
PROCESS_BYTES: Final = 256_000_000  # the interpreter, its libraries, what is measured nowhere

_MIN_WORKING: Final = 2  # one is computed while another arrives
_WORKING_SHARE: Final = 4  # at most one part in so many of what there is for experts


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Memory the engine may take, and who said so."""

    nbytes: int
    source: str

    @classmethod
    def of(cls, memory: Memory, ram_bytes: int | None = None) -> MemoryBudget:
        """Return the budget.

        Args:
            memory: What the machine and its control groups leave.
            ram_bytes: What was asked for, all of the process included; None: nothing.
        """
        where = f"of {gb(memory.available)} available"
        if memory.limit is not None:
            where += f", limited by {memory.limit[0]} to {gb(memory.limit[1])}"
        if ram_bytes is None:
            return cls(int(memory.available * SHARE), f"{SHARE:.0%} {where}")
        if ram_bytes > memory.available:
            return cls(memory.available, f"all {where}, less than the {gb(ram_bytes)} asked for")
        return cls(ram_bytes, f"asked for, {where}")


@dataclass(frozen=True, slots=True)
class StreamedLayers:
    """The layers whose experts need not all be in memory.

    Args:
        slot_bytes: Bytes of an expert's record, by layer.
        num_experts: Experts of every layer.
        per_token: Experts a row chooses.
    """

    slot_bytes: Sequence[int]
    num_experts: int
    per_token: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one slot for each layer."""
        return sum(self.slot_bytes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Different sizes of records, ascending."""
        return tuple(sorted(set(self.slot_bytes)))

    @property
    def nbytes(self) -> int:
        """Bytes of all experts."""
        return self.row_bytes * self.num_experts


@dataclass(frozen=True, slots=True)
class Needs:
    """What is in memory whatever is cached.

    Args:
        resident_bytes: Weights that are always used.
        kv_bytes: All conversations at their full length.
        step_bytes: Buffers of the largest step.
        process_bytes: The process without all that.
    """

    resident_bytes: int
    kv_bytes: int = 0
    step_bytes: int = 0
    process_bytes: int = PROCESS_BYTES

    @property
    def nbytes(self) -> int:
        """The sum."""
        return self.resident_bytes + self.kv_bytes + self.step_bytes + self.process_bytes


@dataclass(frozen=True, slots=True)
class Placement:
    """What the memory is for.

    Args:
        budget: All of it.
        needs: What is always there.
        capacities: Slots of each layer.
        working_slots: Further slots of each size of record, for reads.
        slot_bytes: Bytes of a slot, by layer.
    """

    budget: MemoryBudget
    needs: Needs
    capacities: tuple[int, ...]
    working_slots: int
    slot_bytes: tuple[int, ...]

    @property
    def cache_bytes(self) -> int:
        """Bytes of the layers' slots."""
        return sum(map(int.__mul__, self.capacities, self.slot_bytes))

    @property
    def working_bytes(self) -> int:
        """Bytes of the slots for reads."""
        return self.working_slots * sum(set(self.slot_bytes))

    @property
    def nbytes(self) -> int:
        """Bytes in use when everything is full."""
        return self.needs.nbytes + self.cache_bytes + self.working_bytes


def fits(budget: MemoryBudget, needs: Needs, layers: StreamedLayers) -> bool:
    """Return whether every expert can stay in memory, so that nothing need be streamed."""
    return needs.nbytes + layers.nbytes <= budget.nbytes


def place(
    budget: MemoryBudget,
    needs: Needs,
    layers: StreamedLayers,
    cap: int | None = None,
    *,
    may_raise: bool = False,
) -> Placement:
    """Share out the memory.

    Args:
        budget: All of it.
        needs: What is always there.
        layers: The layers that are streamed.
        cap: Slots per layer that were asked for; None: as many as fit.
        may_raise: Take more than `cap` where they fit.

    Raises:
        InsufficientMemory: one slot per layer and two for reads do not fit.
    """
    least = layers.row_bytes + _MIN_WORKING * sum(layers.sizes)
    free = budget.nbytes - needs.nbytes
    if free < least:
        raise _refusal(budget, needs, layers, least)
    working, set_aside = _for_reads(free - layers.row_bytes, layers)
    free -= set_aside
    most = layers.num_experts
    if cap is not None and not may_raise:
        most = min(most, max(cap, 1))
    capacity = min(most, free // layers.row_bytes)
    left = free - capacity * layers.row_bytes
    capacities = [capacity] * len(layers.slot_bytes)
    if capacity < most:  # the smallest first, so that more memory never means fewer experts
        for place_of, size in sorted(enumerate(layers.slot_bytes), key=lambda each: each[1]):
            if size > left:
                break
            left -= size
            capacities[place_of] += 1
    return Placement(budget, needs, tuple(capacities), working, tuple(layers.slot_bytes))


def _for_reads(room: int, layers: StreamedLayers) -> tuple[int, int]:
    """Return slots of each size for reads, those of a layer and of the one behind it, and bytes.

    The bytes that are set aside for them grow with the room, not in steps: a further slot must not
    come at the price of an expert that a little less memory would have held.
    """
    size = sum(layers.sizes)
    wanted = min(2 * layers.per_token, layers.num_experts) + _MIN_WORKING
    nbytes = max(_MIN_WORKING * size, min(wanted * size, room // _WORKING_SHARE))
    return nbytes // size, nbytes


_LOGIT_ROWS: Final = 80  # drafts of all replies together, and a row of each reply


def step_bytes(
    num_rows: int, hidden_size: int, expert_width: int, per_token: int, vocab_size: int
) -> int:
    """Return about how large the buffers of a step are.

    Args:
        num_rows: Rows of the largest step.
        hidden_size: Width of the residual stream.
        expert_width: Inner width of a routed expert.
        per_token: Experts a row chooses.
        vocab_size: Logits of a row; few rows have them, the replies' and their drafts'.
    """
    pair = hidden_size + 4 * expert_width  # down's outputs; gate, up, their product, its codes
    row = 12 * hidden_size  # the stream, its norm, projections of attention, codes
    return 4 * (num_rows * (per_token * pair + row) + min(num_rows, _LOGIT_ROWS) * vocab_size)


def gb(nbytes: int) -> str:
    """Return a size in words: "1.25 GB", "12.5 MB"."""
    return f"{nbytes / GB:.2f} GB" if nbytes >= GB // 10 else f"{nbytes / 1e6:.1f} MB"


def _refusal(
    budget: MemoryBudget, needs: Needs, layers: StreamedLayers, least: int
) -> InsufficientMemory:
    smallest = needs.nbytes + least
    process = needs.step_bytes + needs.process_bytes
    refusal = InsufficientMemory(
        f"the least that runs is {gb(smallest)}: {gb(needs.resident_bytes)} of weights that are "
        f"always used, {gb(needs.kv_bytes)} for conversations, {gb(process)} for the process and "
        f"its steps, {gb(least)} for one expert of each of {len(layers.slot_bytes)} layers and "
        f"reads; the budget is "
        f"{gb(budget.nbytes)} ({budget.source})",
        hint="raise --ram or the limit, close other programs, or take a shorter --ctx, fewer "
        "--kv-slots or fewer bits per weight (coli convert)",
    )
    refusal.needed_bytes = smallest
    return refusal
