"""A fake model with a draft layer that guesses right, if it is fed right, and checks that it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from colibri_engine.models.base import Draft, DraftStep
from tests.fakes.fake_model import FakeBatch, FakeKvCache, FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class FakeDraftModel(FakeModel):
    """Its hidden states are numbers of the histories they belong to.

    A row of the draft cache holds the number of the history up to its position and its next token:
    rows that do not follow each other, or whose token is not what the reply went on with, fail.

    Attributes:
        guess: Given a true history and how deep the guess is, names the token guessed.
        draft_fault: Called before each draft; may raise.
        num_drafts: Calls of `draft`.
    """

    guess: Callable[[list[int], int], int] | None = None
    draft_fault: Callable[[], None] | None = None
    can_draft: bool = True
    num_drafts: int = 0
    histories: list[list[int]] = field(default_factory=list)
    draft_caches: list[FakeKvCache] = field(default_factory=list)
    _last_rows: list[list[int]] = field(default_factory=list)
    _depth: int = 0

    def make_draft_cache(self) -> FakeKvCache:
        self.draft_caches.append(FakeKvCache())
        return self.draft_caches[-1]

    def forward(self, ids: np.ndarray, batch: FakeBatch, logit_rows: list[int]) -> np.ndarray:
        logits = super().forward(ids, batch, logit_rows)
        self._last_rows = [
            cache.ids[: start + row + 1]
            for cache, start, rows in batch.segments
            for row in range(rows)
        ]
        return logits

    def final_hidden(self, rows: list[int]) -> np.ndarray:
        return self._states([self._last_rows[row] for row in rows])

    def draft(self, step: DraftStep, batch: FakeBatch, logit_rows: list[int]) -> Draft:
        if self.draft_fault is not None:
            self.draft_fault()
        self.num_drafts += 1
        self._depth = self._depth + 1 if step.follows_draft else 0
        assert len(step.ids) == len(step.hidden) == batch.rows
        known = [self.histories[int(number)] for number in step.hidden[:, 0]]
        after = [[*ids, int(token)] for ids, token in zip(known, step.ids, strict=True)]
        row = 0
        for cache, start, rows in batch.segments:
            assert start == cache.length
            for history in after[row : row + rows]:
                if cache.ids:
                    before = self.histories[cache.ids[-1]]
                    assert history[:-1] == before, "a row does not follow the one before it"
                self.histories.append(history)
                cache.ids.append(len(self.histories) - 1)
            row += rows
        logits = np.zeros((len(logit_rows), self.config.vocab_size), np.float32)
        for place, wanted in enumerate(logit_rows):
            logits[place, self._guess_after(after[wanted])] = 1.0
        return Draft(logits, self._states(after))

    def _guess_after(self, history: list[int]) -> int:
        if self.guess is not None:
            return self.guess(history, self._depth)
        return int(self.logits_after(history).argmax())

    def _states(self, histories: list[list[int]]) -> np.ndarray:
        first = len(self.histories)
        self.histories += histories
        return np.arange(first, len(self.histories), dtype=np.float32)[:, None]
