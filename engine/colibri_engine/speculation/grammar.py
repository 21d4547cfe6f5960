"""Drafts from a grammar: what it leaves no choice about, the names of a schema's fields foremost.

Where the grammar constrains the reply these tokens are nearly sure: only another way to cut the
same text into tokens can come instead. Where it only guides, they are as sure as the reply follows
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_engine.speculation.base import Proposal, Source

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from colibri_engine.sequence import Sequence
    from colibri_engine.speculation.base import Committed, Wish

CONSTRAINT: str = "grammar"
GUIDE: str = "guide"


class GrammarDrafter:
    """Asks the grammar of a reply.

    Args:
        max_tokens: The most it gives at once.
    """

    source = Source.GRAMMAR
    guess_seconds = None

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    def prepare(self, wishes: Items[Wish]) -> None:
        """Nothing is cheaper for several at once."""

    def propose(self, sequence: Sequence, limit: int) -> Proposal:
        """Guess what the grammar forces; see `base.Drafter.propose`."""
        if sequence.constraint is not None:
            return Proposal(sequence.constraint.forced()[:limit], CONSTRAINT)
        if sequence.guide is None:
            return Proposal([], GUIDE)
        reply = sequence.history.ids[sequence.num_prompt + sequence.num_guided :].tolist()
        if sequence.num_guided + len(reply) < sequence.num_generated:
            reply.append(sequence.pending)
        sequence.guide.follow(reply)
        sequence.num_guided += len(reply)
        return Proposal(sequence.guide.forced()[:limit], GUIDE)

    def observe(self, committed: Items[Committed]) -> None:
        """Nothing is kept: the grammar's state is enough."""
