"""Who is asked for a draft, how long it may be, and what became of it.

Before a step every sequence that is decoding gets a draft from the first source that has one;
afterwards the sources see which rows stayed. Sources are untrusted here: a guess that is too long,
names no token, or an exception costs the draft and nothing else.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from colibri_engine.engine_config import MAX_DRAFTED_ROWS
from colibri_engine.errors import EngineError
from colibri_engine.speculation.base import Proposal, Source, Wish

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Items

    from colibri_engine.sequence import Sequence
    from colibri_engine.speculation.base import Committed, Drafter
    from colibri_engine.speculation.cost import Policy

logger = logging.getLogger(__name__)

REST_STEPS: Final = 64  # after a failure
GUARD_REST_STEPS: Final = 256
_FAULTS: Final = (
    MemoryError, RuntimeError, ValueError, ArithmeticError, LookupError, OSError, EngineError,
)  # fmt: skip


@dataclass(slots=True)
class DraftCounts:
    """Sums since the start for one source; never reset."""

    proposals: int = 0
    drafted: int = 0
    accepted: int = 0


class StepCost(NamedTuple):
    """What a step took.

    Args:
        num_rows: Its rows.
        is_decode: Whether none of them belonged to a prompt.
        seconds: The time of the model.
    """

    num_rows: int
    is_decode: bool
    seconds: float


class Guard:
    """Gives a source a rest when few of its guesses come true.

    Args:
        source: Which one.
        percent: Least share of its guesses that must come true.
        window: Drafts over which that is looked at.
    """

    def __init__(self, source: Source, percent: int, window: int) -> None:
        self.source = source
        self._percent = percent
        self._recent: deque[tuple[int, int]] = deque(maxlen=window)

    def trips(self, drafted: int, accepted: int) -> bool:
        """Add a draft; return whether it is time for a rest, and then start anew."""
        self._recent.append((drafted, accepted))
        if len(self._recent) < (self._recent.maxlen or 0):
            return False
        num_drafted = sum(drafted for drafted, _ in self._recent)
        num_accepted = sum(accepted for _, accepted in self._recent)
        if 100 * num_accepted >= self._percent * num_drafted:
            return False
        self._recent.clear()
        return True


class Drafting:
    """The drafts of all sequences.

    Args:
        drafters: The sources, in the order in which they are asked.
        vocab_size: Token ids are below it.
        policy: How long drafts may be.
        guard: Who looks after one of them besides; or None.
    """

    def __init__(
        self,
        drafters: Items[Drafter],
        vocab_size: int,
        policy: Policy,
        guard: Guard | None = None,
    ) -> None:
        self._drafters = list(drafters)
        self._vocab_size = vocab_size
        self._policy = policy
        self._guard = guard
        self._resting: dict[Source, int] = {}  # steps that a source is not asked
        self._failed: set[Source] = set()  # of those, the ones that are not to see steps either
        self._counts = {drafter.source: DraftCounts() for drafter in drafters}

    def has(self, source: Source) -> bool:
        """Whether a source is asked."""
        return any(drafter.source is source for drafter in self._drafters)

    def propose(self, sequences: Iterable[Sequence]) -> None:
        """Set the draft of every sequence that is decoding."""
        wishes = self._wishes(sequences)
        for drafter in self._drafters:
            rest = self._resting.get(drafter.source, 0)
            if rest > 0:
                self._resting[drafter.source] = rest - 1
                if rest == 1:
                    self._failed.discard(drafter.source)
            elif wishes:
                wishes = self._ask(drafter, wishes)
        self._policy.begin_forward()

    def observe(self, committed: Items[Committed], cost: StepCost) -> None:
        """Learn from a step: what it took, which drafts came true, and which rows stay."""
        for item in committed:
            self._learn(item)
        if cost.is_decode:
            self._policy.observe_step(cost.num_rows, cost.seconds)
        for drafter in self._drafters:
            try:
                if drafter.source not in self._failed:
                    drafter.observe(committed)
            except _FAULTS as exc:
                self._rest(drafter, exc)

    def report(self) -> dict[str, dict[str, int]]:
        """Return the counters by source, for STATS."""
        return {source.value: asdict(counts) for source, counts in self._counts.items()}

    def _wishes(self, sequences: Iterable[Sequence]) -> list[Wish]:
        wishes: list[Wish] = []
        num_decoding = 0
        for sequence in sequences:
            sequence.draft = ()
            if sequence.num_unfed == 0:
                num_decoding += 1
                limit = min(sequence.max_draft, sequence.num_wanted - 1)
                if limit > 0:
                    wishes.append(Wish(sequence, limit))
        self._policy.begin_step(num_decoding)
        share = MAX_DRAFTED_ROWS // max(len(wishes), 1)
        return [Wish(sequence, min(limit, share)) for sequence, limit in wishes]

    def _ask(self, drafter: Drafter, wishes: list[Wish]) -> list[Wish]:
        """Let one source guess; return what is left to wish for."""
        try:
            asked = self._bounded(drafter, wishes)
            if asked:
                drafter.prepare(asked)
            for wish in asked:
                self._take(wish, drafter.source, drafter.propose(wish.sequence, wish.limit))
        except _FAULTS as exc:
            self._rest(drafter, exc)
        return [wish for wish in wishes if not wish.sequence.draft]

    def _bounded(self, drafter: Drafter, wishes: list[Wish]) -> list[Wish]:
        """Return the wishes as far as it is worth asking this source."""
        bounded: list[Wish] = []
        for sequence, limit in wishes:
            depth = min(limit, drafter.max_tokens)
            if drafter.guess_seconds is not None:
                kind = drafter.source.value
                depth = self._policy.plan(sequence, kind, depth, drafter.guess_seconds)
            if depth > 0:
                bounded.append(Wish(sequence, depth))
        return bounded

    def _take(self, wish: Wish, source: Source, proposal: Proposal) -> None:
        """Make a proposal the sequence's draft, as far as it is usable and pays."""
        ids = proposal.ids[: wish.limit]
        for position, token_id in enumerate(ids):
            if not 0 <= token_id < self._vocab_size:
                del ids[position:]
                break
        if not ids:
            return
        sequence = wish.sequence
        depth = self._policy.choose(sequence, proposal.kind, len(ids))
        sequence.draft = tuple(ids[:depth])
        sequence.draft_kind = proposal.kind
        sequence.draft_source = source

    def _learn(self, item: Committed) -> None:
        drafted, accepted = len(item.sequence.draft), item.num_accepted
        if drafted:
            source = Source(item.sequence.draft_source)
            counts = self._counts[source]
            counts.proposals += 1
            counts.drafted += drafted
            counts.accepted += accepted
            self._policy.learn(item.sequence, item.sequence.draft_kind, drafted, accepted)
            guard = self._guard
            if guard is not None and guard.source is source and guard.trips(drafted, accepted):
                self._resting[source] = GUARD_REST_STEPS

    def _rest(self, drafter: Drafter, exc: Exception) -> None:
        """Go on without a source that failed, and ask it again later: replies do not need it."""
        logger.error(
            "no drafts from %s for %d steps: they failed", drafter.source, REST_STEPS, exc_info=exc
        )
        self._resting[drafter.source] = REST_STEPS
        self._failed.add(drafter.source)
