"""What was chosen in earlier runs and in this one: rates to start from, pins, and what is saved.

The more a history holds the more of the memory is pinned by it, at most half; what is not pinned
goes to whatever is asked for now. Pins that have gone cold change places with unpinned experts that
are used (REPIN).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.experts.store import StreamedLayer
    from colibri_engine.experts.usage import UsageFile

Counts = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

_LEAST: Final = 5_000  # selections below which a history says nothing
_FULL: Final = 200_000  # selections from which on it is believed
_PINNED_SHARE: Final = 0.5  # of the slots, at most
_MAX_SWAPS: Final = 16  # in one pass
_HEAT_UNIT: Final = 256  # one selection, in points; recency adds less than one
_HEAT_MARGIN: Final = 4  # selections by which a newcomer must be ahead, beside a quarter


class Pin(NamedTuple):
    """An expert that is kept because it was used most."""

    layer: int
    expert: int


class History:
    """Counts of a model's experts.

    Args:
        file: Where they are kept; None: nowhere.
        numbers: The number in the model of each layer that counts, in their order.
    """

    def __init__(self, file: UsageFile | None, numbers: Sequence[int]) -> None:
        self._file = file
        self._numbers = list(numbers)
        self._old: Counts | None = None
        self._told: Counts | None = None
        self._saver = ThreadPoolExecutor(1, "usage") if file is not None else None
        if file is not None:
            try:
                self._old = file.read()
            except CheckpointError as exc:
                logger.warning(
                    "%s; it is left as it is, and nothing is learned from it: %s", exc, exc.hint
                )
                self._file = None

    @property
    def num_selections(self) -> int:
        """Selections in the file at the start."""
        return 0 if self._old is None else int(self._old.sum())

    @property
    def confidence(self) -> float:
        """How far the history is believed, 0 to 1."""
        count = self.num_selections
        return 0.0 if count < _LEAST else min(1.0, count / _FULL)

    def counts(self, number: int) -> Counts | None:
        """Return (experts,) selections of the model's layer `number`; None without a history."""
        return None if self._old is None else self._old[number]

    def rates(self, number: int, per_token: int) -> npt.NDArray[np.float64] | None:
        """Return (experts,) how often a row is expected to choose each of a layer's experts."""
        counts = self.counts(number)
        if counts is None or not self.confidence or not counts.any():
            return None
        expected = per_token * self.confidence / int(counts.sum())
        return counts.astype(np.float64) * np.float64(expected)

    def pins(self, layers: Sequence[StreamedLayer]) -> list[Pin]:
        """Return the experts to pin, most used first.

        Args:
            layers: The streamed layers; their caches are open.
        """
        if self._old is None or not self.confidence:
            return []
        room = [int(layer.cache.capacity * _PINNED_SHARE * self.confidence) for layer in layers]
        counts = np.stack([self._old[layer.model_layer] for layer in layers])
        found = []
        for place in np.argsort(-counts, axis=None, kind="stable").tolist():
            layer, expert = divmod(place, counts.shape[1])
            if not counts[layer, expert]:
                break
            if room[layer]:
                room[layer] -= 1
                found.append(Pin(layer, expert))
        return found

    def end_turn(self, counts: Counts) -> None:
        """Save what was chosen since the last turn, in the background.

        Args:
            counts: (layers, experts) selections since the start, of rows that stayed.
        """
        if self._file is None or self._saver is None:
            return
        new = counts - (self._told if self._told is not None else 0)
        self._told = counts.copy()
        assert self._old is not None
        rows = np.zeros_like(self._old)
        rows[self._numbers] = np.maximum(new, 0)
        self._saver.submit(self._file.add, rows)

    def close(self) -> None:
        """Wait until everything is saved."""
        if self._saver is not None:
            self._saver.shutdown()


def repin(layers: Sequence[StreamedLayer], heat: Counts) -> list[tuple[Pin, Pin]]:
    """Exchange cold pins for hot experts; return what went out and what came in.

    Args:
        layers: The streamed layers.
        heat: (layers, experts) selections lately, of rows that stayed; halved.
    """
    swaps: list[tuple[Pin, Pin]] = []
    for layer in layers:
        scores = _HEAT_UNIT * heat[layer.number] + layer.cache.recency(_HEAT_UNIT)
        pinned = layer.cache.pinned
        while pinned and len(swaps) < _MAX_SWAPS:
            cold = min(pinned, key=scores.__getitem__)
            others = scores.copy()
            others[layer.cache.pinned] = -1
            hot = int(others.argmax())
            margin = scores[cold] // 4 + _HEAT_MARGIN * _HEAT_UNIT
            if scores[hot] <= scores[cold] + margin:
                break
            layer.cache.unpin([cold])
            layer.cache.pin([hot])
            pinned.remove(cold)
            swaps.append((Pin(layer.number, cold), Pin(layer.number, hot)))
    heat //= 2
    return swaps
