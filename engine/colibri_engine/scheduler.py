"""What the next step carries: a row per decoding reply, those of its draft, a piece of the prompts.

Pure bookkeeping over `Sequence` objects: no arrays, no model, no clock, no wire. Between two steps
the caller may add and remove sequences at will, so a step is the longest time that STOP, CANCEL or
the end of input waits.

A step of `chunk_tokens` prompt rows at most is shared fairly: every unfinished prompt gets an
equal part, and what a short prompt leaves over goes to the others. A short prompt therefore never
waits behind a long one, and no reply waits for more than one chunk. What a step carries never
changes a token: rows are computed alike in any company.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colibri_engine.sequence import Sequence


class Segment(NamedTuple):
    """Rows of one sequence in a step; its next `num_rows` tokens from `num_fed` on."""

    sequence: Sequence
    start: int
    num_rows: int
    wants_logits: bool

    @property
    def is_decode(self) -> bool:
        """Whether these are tokens of the reply: the last one chosen, and its draft."""
        return self.start >= self.sequence.num_prompt

    @property
    def num_logits(self) -> int:
        """Rows at its end whose logits are wanted."""
        if not self.wants_logits:
            return 0
        return self.num_rows if self.is_decode else 1

    def without_draft(self) -> Segment:
        """Return the same without the rows that are only guessed."""
        return self._replace(num_rows=1) if self.is_decode else self


class Scheduler:
    """The sequences that are running, and how steps are made of them.

    Args:
        chunk_tokens: Prompt rows a step carries at most, at least 1.
    """

    def __init__(self, chunk_tokens: int) -> None:
        if chunk_tokens < 1:
            raise ValueError(f"a step must carry at least one prompt row, not {chunk_tokens}")
        self._chunk_tokens = chunk_tokens
        self._running: dict[int, Sequence] = {}
        self._num_steps = 0

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._running.values()))

    def get(self, request_id: int) -> Sequence | None:
        """Return the running sequence of a request."""
        return self._running.get(request_id)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence take part from the next step on."""
        assert sequence.request_id not in self._running
        assert all(other.slot_idx != sequence.slot_idx for other in self._running.values())
        self._running[sequence.request_id] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; its rows stay where they are."""
        del self._running[sequence.request_id]

    def plan(self) -> list[Segment]:
        """Return what the next step carries: decode rows first, then prompt rows; [] if idle."""
        self._num_steps += 1
        segments: list[Segment] = []
        prefilling: list[Sequence] = []
        for sequence in self._running.values():
            if sequence.num_fed < sequence.num_prompt:
                prefilling.append(sequence)
            else:
                num_rows = 1 + len(sequence.draft)
                segments.append(Segment(sequence, sequence.num_fed, num_rows, wants_logits=True))
        if prefilling:
            segments.extend(self._share_chunk(prefilling))
        return segments

    def _share_chunk(self, prefilling: list[Sequence]) -> Iterator[Segment]:
        if len(prefilling) > self._chunk_tokens:  # too many for one row each: take turns
            prefilling.sort(key=lambda s: (s.last_served, s.num_fed - s.num_reused))
            del prefilling[self._chunk_tokens :]
        prefilling.sort(key=lambda sequence: sequence.num_unfed)  # the short ones leave some over
        budget = self._chunk_tokens
        for position, sequence in enumerate(prefilling):
            share = budget // (len(prefilling) - position)
            num_rows = min(sequence.num_unfed, share)
            budget -= num_rows
            sequence.last_served = self._num_steps
            is_last = num_rows == sequence.num_unfed
            yield Segment(sequence, sequence.num_fed, num_rows, wants_logits=is_last)
