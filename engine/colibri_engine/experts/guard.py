"""Keeps the process within its memory: slots go back to the system when it has grown too large.

Arithmetic prices what is known; this looks at what is really there, now, and not at its peak: a
moment's need must not cost slots for ever. After giving some back it waits before it looks again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from colibri_engine import machine
from colibri_engine.experts.budget import gb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from colibri_engine.experts.store import StreamedLayer

logger = logging.getLogger(__name__)

_EVERY_ROWS: Final = 16  # rows between two looks
_PAUSE_ROWS: Final = 64  # and after slots were given back
_MARGIN: Final = 1.01  # what is over the limit by less is let be
_MAX_ROUNDS: Final = 8  # slots of each layer at one look


class MemoryGuard:
    """Looks after one process.

    Args:
        layers: The streamed layers.
        limit_bytes: Memory it may take.
        resident_bytes: What it takes now.
    """

    def __init__(
        self,
        layers: Sequence[StreamedLayer],
        limit_bytes: int,
        resident_bytes: Callable[[], int] = machine.resident_bytes,
    ) -> None:
        self._layers = layers
        self._limit = limit_bytes
        self._resident_bytes = resident_bytes
        self._rows_left = _EVERY_ROWS
        self._is_told = False
        self.num_released = 0
        self.peak_bytes = 0

    def after_step(self, num_rows: int) -> None:
        """Look after every few rows; call between two steps.

        Args:
            num_rows: Rows of the step.
        """
        self._rows_left -= num_rows
        if self._rows_left > 0:
            return
        self._rows_left = _EVERY_ROWS
        found = self._resident_bytes()
        self.peak_bytes = max(self.peak_bytes, found)
        if found <= self._limit * _MARGIN:
            return
        freed = self._release(found - self._limit)
        self._rows_left = _PAUSE_ROWS
        logger.log(
            logging.INFO if self._is_told else logging.WARNING,
            "the process takes %s of %s: experts of %s are given up",
            gb(found),
            gb(self._limit),
            gb(freed),
        )
        self._is_told = True

    def _release(self, wanted: int) -> int:
        """Give slots back, a round over all layers at a time; return how many bytes."""
        freed = 0
        for _ in range(_MAX_ROUNDS):
            for layer in self._layers:
                if freed >= wanted:
                    return freed
                freed += self._release_one(layer)
        return freed

    def _release_one(self, layer: StreamedLayer) -> int:
        """Take a slot from a layer that has more than one; return the bytes that are free now."""
        cache, pool = layer.cache, layer.pool
        if cache.capacity == 1:
            return 0
        if len(cache) < cache.capacity:  # a slot that was not filled must not be
            cache.capacity -= 1
            slot = pool.take_empty()
        else:
            slot = cache.shrink()
        if slot is None:
            return 0
        pool.release(slot)
        self.num_released += 1
        return layer.records.nbytes
