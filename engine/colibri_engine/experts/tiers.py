"""Where the experts of a model are at the moment, and what is done about it between two steps."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colibri_engine.experts.history import repin

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_engine.experts.guard import MemoryGuard
    from colibri_engine.experts.history import History
    from colibri_engine.experts.store import ExpertStore

Counts = npt.NDArray[np.int64]

_WARM_UP_S: Final = 3.0  # the longest a start waits for pins; the others come when they are used


class TierSizes(NamedTuple):
    """Experts in memory and on disk, and the bytes of those in memory."""

    num_ram: int
    num_disk: int
    ram_bytes: int


class ExpertTiers:
    """The streamed experts of a loaded model.

    Args:
        store: Where they are.
        counts: Return (rows, experts) how often each expert was chosen so far, of rows that
            stayed; a draft layer behind the others is not among the rows.
        guard: What keeps the process within its memory.
        history: What was chosen in earlier runs.
        repin_tokens: Tokens between two exchanges of pins; 0: none.
    """

    def __init__(
        self,
        store: ExpertStore,
        counts: Callable[[], Counts],
        guard: MemoryGuard,
        history: History,
        repin_tokens: int = 0,
    ) -> None:
        self._store = store
        self._counts = counts
        self._rows = store.mixtures[: len(counts())]
        self._guard = guard
        self._history = history
        self._repin_tokens = repin_tokens
        self._tokens_left = repin_tokens
        self._heat: Counts | None = None
        self._seen: Counts | None = None
        self.num_swaps = 0

    def pin(self) -> None:
        """Pin what the history says is used most, and read the first of it."""
        pins = self._history.pins(self._store.layers)
        for layer, expert in pins:
            self._store.layers[layer].cache.pin([expert])
        deadline = monotonic() + _WARM_UP_S
        self._store.warm(pins, lambda: monotonic() < deadline)

    def after_step(self, num_rows: int, num_tokens: int) -> None:
        """Do what can only be done between two steps.

        Args:
            num_rows: Rows of the step.
            num_tokens: Tokens that were emitted.
        """
        self._guard.after_step(num_rows)
        if not self._repin_tokens:
            return
        self._tokens_left -= num_tokens
        if self._tokens_left <= 0:
            self._tokens_left = self._repin_tokens
            self._repin()

    def end_turn(self) -> None:
        """Save what was chosen."""
        self._history.end_turn(self._counts())

    def sizes(self, num_rows: int, num_experts: int, resident_bytes: int) -> TierSizes:
        """Return how many experts of the first rows are where.

        Args:
            num_rows: Mixtures that count; a draft layer is the one behind the model's own.
            num_experts: All experts of these rows.
            resident_bytes: Bytes of those that are not streamed.
        """
        streamed = [layer for layer in self._store.mixtures[:num_rows] if layer is not None]
        num_disk = sum(layer.num_experts - len(layer.cache) for layer in streamed)
        held = sum(len(layer.cache) * layer.records.nbytes for layer in streamed)
        return TierSizes(num_experts - num_disk, num_disk, held + resident_bytes)

    def is_held(self, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return (rows, experts) whether each is in memory."""
        held = np.ones(shape, np.bool_)
        for row, layer in zip(held, self._store.mixtures[: shape[0]], strict=True):
            if layer is not None:
                row[:] = layer.cache.is_held
        return held

    def hits_and_misses(self) -> tuple[int, int]:
        """Return how often an expert was in memory when it was asked for, and how often not."""
        counters = self._store.counters
        return counters.hits, counters.misses

    def report(self) -> dict[str, float]:
        """Return the raw counters by name."""
        layers = self._store.layers
        return {
            **self._store.report(),
            "slots": sum(layer.cache.capacity for layer in layers),
            "held": sum(len(layer.cache) for layer in layers),
            "pinned": sum(len(layer.cache.pinned) for layer in layers),
            "swaps": self.num_swaps,
            "released": self._guard.num_released,
            "peak_rss_bytes": self._guard.peak_bytes,
        }

    def close(self) -> None:
        """End all reads, and wait until the history is saved."""
        self.end_turn()
        self._store.close()
        self._history.close()

    def _repin(self) -> None:
        """Exchange pins by what was chosen since the last time, and half as much before it."""
        layers, counts = self._store.layers, self._counts()
        if self._heat is None or self._seen is None:
            self._heat = np.zeros((len(layers), counts.shape[1]), np.int64)
            self._seen = np.zeros_like(counts)
        for row, layer in enumerate(self._rows):
            if layer is not None:
                self._heat[layer.number] += np.maximum(counts[row] - self._seen[row], 0)
        self._seen = counts.copy()
        self.num_swaps += len(repin(layers, self._heat))
