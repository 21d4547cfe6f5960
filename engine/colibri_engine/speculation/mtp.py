"""Drafts from the model's own draft layer (MTP), and the cache that layer keeps per slot.

For position p the layer takes the final hidden state h_p and token p + 1; its guess is token p + 2,
and guesses go on from guesses. Its cache holds a row for every position of a window that ends at
the last one fed; what is true of the reply stays in it, rows of guesses are cut off again at once.
A row's hidden state comes with the step that feeds the position and its token with the next one, so
the last rows wait in a tail until a guess is wanted; several replies are guessed for in one call.

The window need not begin with the conversation: positions in it count from its own beginning, and
attention there only looks at distances. So it simply begins anew behind what it cannot know (a
prefix copied from another slot or read from a file, or a conversation cut back), and a long prompt
costs no more than its last part. What can be kept is found by comparing ids.
Source: DeepSeek-V3, arXiv 2412.19437, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.caches import make_draft_cache
from colibri_engine.models.base import DraftStep
from colibri_engine.slots import TokenHistory
from colibri_engine.speculation.base import Proposal, Source

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    import numpy.typing as npt

    from colibri_engine.kernels import Batch, KvCache
    from colibri_engine.models.base import DraftModel
    from colibri_engine.sequence import Sequence
    from colibri_engine.speculation.base import Committed, Wish

    Hidden = npt.NDArray[np.float32]

LONGEST_TAIL: Final = 512  # rows that may wait; 6144 floats of each are 12 MB
_TIME_SHARE: Final = 0.1  # weight of the latest guess in what one is expected to take
_USUAL_TAIL: Final = 32  # a longer one is a prompt's: its time says nothing about the next guess


@dataclass(slots=True)
class Window:
    """What the draft layer knows of one slot: positions `base` up to the length of `ids`.

    Attributes:
        cache: Rows of the first of them.
        ids: The tokens of the slot, those before the window too.
        base: Position of the first row.
        tail: Hidden states of the positions that have no row yet, (n, C) each.
        request_id: Whose reply it last was.
    """

    cache: KvCache
    ids: TokenHistory
    base: int = 0
    tail: list[Hidden] = field(default_factory=list)
    request_id: int = 0

    @property
    def num_tail(self) -> int:
        """Positions that have no row yet."""
        return len(self.ids) - self.base - self.cache.length

    def begin(self, sequence: Sequence) -> None:
        """Become the window of a reply, keeping what is also true of it."""
        self.request_id = sequence.request_id
        prefix = sequence.prompt[: sequence.num_reused]
        if self.ids.common_prefix(prefix) < prefix.size or not self._cut(prefix.size):
            self.begin_behind(prefix)

    def begin_behind(self, ids: npt.NDArray[np.int32]) -> None:
        """Start anew where these tokens end."""
        self.ids.truncate(0)
        self.ids.extend(ids)
        self._restart(len(ids))

    def add(self, ids: npt.NDArray[np.int32], hidden: Hidden) -> None:
        """Append positions; a state for each of the last ones, of the others there is none."""
        self.ids.extend(ids)
        if len(hidden) < len(ids):
            self._restart(len(self.ids) - len(hidden))
        if len(hidden) > 0:
            self.tail.append(hidden)
        if self.num_tail > LONGEST_TAIL:
            kept = np.concatenate(self.tail)[-LONGEST_TAIL:]
            self._restart(len(self.ids) - LONGEST_TAIL)
            self.tail.append(kept)

    def _restart(self, base: int) -> None:
        self.base = base
        self.cache.truncate(0)
        self.tail.clear()

    def _cut(self, length: int) -> bool:
        """Forget positions from `length` on; False where the last one left would lack its state.

        Its row, if it has one, was made with a token that may be another now.
        """
        excess = len(self.ids) - length
        if excess >= self.num_tail:
            return False
        if excess > 0:
            self.tail = [np.concatenate(self.tail)[:-excess]]
            self.ids.truncate(length)
        return True


class MtpDrafter:
    """Asks the draft layer.

    Args:
        model: A model that has one.
        batch: An empty batch of its own.
        context_length: Positions of a slot.
        kv_dtype: What rows of the draft layer are kept as.
    """

    source = Source.MTP
    max_tokens = 8  # a guess from a guess is worth less each time

    def __init__(
        self, model: DraftModel, batch: Batch, context_length: int, kv_dtype: str = "f32"
    ) -> None:
        self.guess_seconds = 0.0
        self._model = model
        self._batch = batch
        self._context_length = context_length
        self._kv_dtype = kv_dtype
        self._windows: dict[int, Window] = {}
        self._guesses: dict[int, list[int]] = {}

    def observe(self, committed: Items[Committed]) -> None:
        """Keep the hidden states of the rows that stay."""
        taken = [(item, _num_of_use(item)) for item in committed if item.sequence.max_draft > 0]
        rows: list[int] = []
        for item, count in taken:
            end = item.first_row + item.num_rows
            rows.extend(range(end - count, end))
        hidden = self._model.final_hidden(rows) if rows else np.empty((0, 0), np.float32)
        place = 0
        for item, count in taken:
            window = self._window(item.sequence)
            ids = item.sequence.history.ids[item.start : item.start + item.num_rows]
            if len(window.ids) != item.start:  # a step was not seen: memory ran out
                window.begin_behind(item.sequence.history.ids[: item.start])
            window.add(ids, hidden[place : place + count])
            place += count

    def prepare(self, wishes: Items[Wish]) -> None:
        """Guess for all: one call feeds what waits, each further guess is one more."""
        self._guesses.clear()
        ready = [(w, self._window(w.sequence)) for w in wishes]
        ready = [(w, window) for w, window in ready if window.num_tail > 0]
        if not ready:
            return
        started = perf_counter()
        windows = [window for _, window in ready]
        is_usual = all(window.num_tail <= _USUAL_TAIL for window in windows)
        depth = max(w.limit for w, _ in ready)
        guesses = self._guess(windows, [w.sequence for w, _ in ready], depth)
        for (wish, _), ids in zip(ready, guesses, strict=True):
            self._guesses[wish.sequence.request_id] = ids
        if is_usual:
            spent = (perf_counter() - started) / (depth * len(ready))
            weight = _TIME_SHARE if self.guess_seconds else 1.0
            self.guess_seconds += weight * (spent - self.guess_seconds)

    def propose(self, sequence: Sequence, limit: int) -> Proposal:
        """Return what was guessed; see `base.Drafter.propose`."""
        return Proposal(self._guesses.pop(sequence.request_id, [])[:limit], Source.MTP.value)

    def _window(self, sequence: Sequence) -> Window:
        """Return the window of a sequence's slot, made its own."""
        window = self._windows.get(sequence.slot_idx)
        if window is None:
            cache = make_draft_cache(self._model, self._kv_dtype)
            window = Window(cache, TokenHistory(self._context_length))
            self._windows[sequence.slot_idx] = window
        if window.request_id != sequence.request_id:
            window.begin(sequence)
        return window

    def _guess(
        self, windows: list[Window], sequences: list[Sequence], depth: int
    ) -> list[list[int]]:
        """Return `depth` guesses for each window, and leave true rows in it alone."""
        counts = [window.num_tail for window in windows]
        ids = [
            [*window.ids.ids[len(window.ids) - count + 1 :].tolist(), sequence.pending]
            for window, count, sequence in zip(windows, counts, sequences, strict=True)
        ]
        ends = (np.cumsum(counts) - 1).tolist()
        step = DraftStep(
            np.concatenate(ids).astype(np.int32),
            np.concatenate([state for window in windows for state in window.tail]),
        )
        guess, hidden = self._run(step, windows, counts, ends)
        for window in windows:
            window.tail.clear()
        lengths = [window.cache.length for window in windows]
        found = [guess]
        try:
            for _ in range(depth - 1):
                step = DraftStep(guess, hidden, follows_draft=True)
                places = list(range(len(windows)))
                guess, hidden = self._run(step, windows, [1] * len(windows), places)
                found.append(guess)
        finally:
            for window, length in zip(windows, lengths, strict=True):
                window.cache.truncate(length)
        return [column.tolist() for column in np.stack(found, axis=1)]

    def _run(
        self, step: DraftStep, windows: list[Window], counts: list[int], wanted: list[int]
    ) -> tuple[npt.NDArray[np.int32], Hidden]:
        """Feed rows; return the likeliest next token and the state of the wanted ones."""
        self._batch.set(
            [
                (window.cache, window.cache.length, count)
                for window, count in zip(windows, counts, strict=True)
            ]
        )
        draft = self._model.draft(step, self._batch, wanted)
        return draft.logits.argmax(axis=1).astype(np.int32), draft.hidden[wanted]


def _num_of_use(item: Committed) -> int:
    """Return how many of the last rows are within the tail that a first guess would start from."""
    end = item.start + item.num_rows
    return min(item.num_rows, max(end - (item.sequence.num_prompt - LONGEST_TAIL), 0))
