"""What a source of drafts offers, and what the engine tells it.

A draft is a guess at the tokens that follow the last one chosen. It can only cost or save time:
the step that feeds it samples every token as usual and keeps the guesses that came true, so a
drafter may be wrong, or break, without changing a reply.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from colibri_engine.sequence import Sequence


class Source(StrEnum):
    """Where drafts come from, in the order in which they are asked."""

    GRAMMAR = "grammar"
    NGRAM = "ngram"
    MTP = "mtp"


class Proposal(NamedTuple):
    """A guess.

    Args:
        ids: Tokens after the last one chosen; may be empty.
        kind: Proposals alike in how often they come true; their acceptance is measured together.
    """

    ids: list[int]
    kind: str


class Wish(NamedTuple):
    """A sequence that may be drafted for, and the most tokens that are of use."""

    sequence: Sequence
    limit: int


class Committed(NamedTuple):
    """Rows of a step that stay: tokens `start` to `start + num_rows` of a sequence.

    Args:
        sequence: Whose rows they are.
        start: Position of the first one.
        num_rows: How many stay.
        first_row: The first one's number in the step.
        num_accepted: Guesses of its draft that came true.
    """

    sequence: Sequence
    start: int
    num_rows: int
    first_row: int
    num_accepted: int


class Drafter(Protocol):
    """One source of drafts. Engine thread only."""

    @property
    def source(self) -> Source:
        """Its name in settings and counters."""
        ...

    @property
    def max_tokens(self) -> int:
        """The most it is asked for at once."""
        ...

    @property
    def guess_seconds(self) -> float | None:
        """Seconds a guess takes; None where that is next to nothing."""
        ...

    def prepare(self, wishes: Items[Wish]) -> None:
        """Work for several sequences at once, where that is cheaper; `propose` follows for each."""
        ...

    def propose(self, sequence: Sequence, limit: int) -> Proposal:
        """Guess at most `limit` tokens after `sequence.pending`.

        Where a guess takes time, all proposals have the kind that is the source's name, so that how
        far to guess can be decided before.
        """
        ...

    def observe(self, committed: Items[Committed]) -> None:
        """Look at the step that was just made, before the model makes another."""
        ...
