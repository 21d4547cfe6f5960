"""A planned step becomes one call of the model: its ids, their places, the logits it wants.

Knows no requests beyond their tokens, and nothing of what the logits are for. Engine thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from colibri_engine.kernels import Batch
    from colibri_engine.models.base import Model
    from colibri_engine.scheduler import Segment
    from colibri_engine.slots import SlotTable

    Logits = npt.NDArray[np.float32]


class StepFeeder:
    """Runs steps.

    Args:
        model: The loaded model.
        batch: An empty batch, which tells the model the cache and position of each row.
        slots: Where the caches are.
        max_rows: Rows of the largest step.
    """

    def __init__(self, model: Model, batch: Batch, slots: SlotTable, max_rows: int) -> None:
        self._model = model
        self._batch = batch
        self._slots = slots
        self._ids = np.empty(max_rows, np.int32)

    def run(self, plan: list[Segment]) -> Logits:
        """Feed the rows of a step; return logits (num wanted, V), a view until the next call.

        Raises:
            MemoryError: No memory for the rows of a cache; and whatever the model raises.
        """
        ids = self._ids
        placed: list[tuple[Any, int, int]] = []
        logit_rows: list[int] = []
        end = 0
        for segment in plan:
            sequence, start, num_rows, _ = segment
            begin, end = end, end + num_rows
            if segment.is_decode:
                ids[begin] = sequence.pending
                ids[begin + 1 : end] = sequence.draft
            else:
                ids[begin:end] = sequence.prompt[start : start + num_rows]
            slot = self._slots[sequence.slot_idx]
            self._slots.make_room(slot, start + num_rows)
            placed.append((slot.cache, start, num_rows))
            logit_rows.extend(range(end - segment.num_logits, end))
        self._batch.set(placed)
        return self._model.forward(ids[:end], self._batch, logit_rows)

    def unfeed(self, plan: list[Segment]) -> None:
        """Drop whatever a step that failed has written."""
        for segment in plan:
            self._slots[segment.sequence.slot_idx].rewind(segment.start)
