"""Drafts from the text itself: what followed the last tokens when they occurred before.

The whole conversation is searched, prompt included, so code that is edited, names that come back
and rows of a table are guessed. Of all earlier places the longest match counts, and of those the
latest. The search compares arrays, so it needs no index that could fall behind the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.speculation.base import Proposal, Source

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    import numpy.typing as npt

    from colibri_engine.sequence import Sequence
    from colibri_engine.speculation.base import Committed, Wish

    Ids = npt.NDArray[np.int32]

SHORTEST_MATCH: Final = 2  # one token that occurred before says next to nothing
LONGEST_MATCH: Final = 16  # longer ones come true no more often
_CLASSES: Final = (2, 3, 4, 6, 9, 16)  # matches from each length on are measured together


class NgramDrafter:
    """Looks the last tokens up in what came before them."""

    source = Source.NGRAM
    max_tokens = 16
    guess_seconds = None

    def prepare(self, wishes: Items[Wish]) -> None:
        """Nothing is cheaper for several at once."""

    def propose(self, sequence: Sequence, limit: int) -> Proposal:
        """Guess what followed the longest match; see `base.Drafter.propose`."""
        ids = sequence.history.ids
        place, length = _latest_longest(ids, sequence.pending)
        if length < SHORTEST_MATCH or limit < 1:
            return Proposal([], "ngram")
        found = ids[place + 1 : place + 1 + limit].tolist()
        text = [*found, sequence.pending]  # a match that reaches the end goes on with its own guess
        period = len(text)
        guess = [text[i % period] for i in range(limit)]
        return Proposal(guess, f"ngram {max(size for size in _CLASSES if size <= length)}")

    def observe(self, committed: Items[Committed]) -> None:
        """Nothing is kept: the history is enough."""


def _latest_longest(ids: Ids, last: int) -> tuple[int, int]:
    """Return where the text before `ids` + [last] ends once more, and over how many tokens.

    Args:
        ids: (n,) int32, the tokens before the last one.
        last: The last one.
    """
    places = np.flatnonzero(ids == last)
    if places.size == 0:
        return -1, 0
    length = 1
    while length < min(LONGEST_MATCH, ids.size):
        inside = places[places >= length]
        longer = inside[ids[inside - length] == ids[ids.size - length]]
        if longer.size == 0:
            break
        places = longer
        length += 1
    return int(places[-1]), length
