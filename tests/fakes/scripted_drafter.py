"""A drafter that proposes what a test says: right, wrong, too long, or an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from colibri_engine.speculation.base import Proposal, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from colibri_engine.sequence import Sequence as Reply
    from colibri_engine.speculation.base import Committed, Wish


@dataclass
class ScriptedDrafter:
    """Asks `guess` with the history so far, the last token included, and the limit."""

    guess: Callable[[list[int], int], list[int]]
    source: Source = Source.NGRAM
    max_tokens: int = 64
    guess_seconds: float | None = None
    committed: list[Committed] = field(default_factory=list)
    prepared: list[list[int]] = field(default_factory=list)  # request ids of each call

    def prepare(self, wishes: Sequence[Wish]) -> None:
        self.prepared.append([wish.sequence.request_id for wish in wishes])

    def propose(self, sequence: Reply, limit: int) -> Proposal:
        history = [*sequence.history.ids.tolist(), sequence.pending]
        return Proposal(self.guess(history, limit), "scripted")

    def observe(self, committed: Sequence[Committed]) -> None:
        self.committed += committed
