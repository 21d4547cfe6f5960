"""Which tokens a step has given: the rows of a sequence are sampled until a guess was wrong.

Every row is sampled with the request's own sampler, exactly as without drafts; row i + 1 counts
only if what row i gave is the token that was fed there. So a token is chosen from the same logits,
with the same penalties, grammar state and random number as without drafts: greedy and sampled
replies are equal token by token, not only in distribution. (Accepting a guess with its probability
and drawing from the rest otherwise would have the same distribution and accept as often, a guess
being one token: it comes true with that same probability. But it uses other random numbers, so a
seed would give another reply for every way of drafting.)

Rows behind the first wrong guess were computed from tokens that never were; the caller drops them.
Source: Leviathan et al. 2023, arXiv 2211.17192, for the rule that is not used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from colibri_engine.grammar import GrammarFault
from colibri_protocol.messages import FinishReason

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from colibri_engine.sequence import Sequence

    Logits = npt.NDArray[np.float32]


@dataclass(slots=True)
class Verdict:
    """What the rows of one sequence have given.

    Attributes:
        tokens: The tokens to tell, each chosen from the row of its number.
        num_rows: Rows that were sampled; they stay, the others never happened.
        num_accepted: Guesses that came true; the last one may have ended the reply.
        finish: Why the reply ends here, if it does.
        stop_id: The stop token that ended it, which is not among `tokens`; or -1.
        fault: What broke its grammar.
    """

    tokens: list[int] = field(default_factory=list)
    num_rows: int = 0
    num_accepted: int = 0
    finish: FinishReason | None = None
    stop_id: int = -1
    fault: GrammarFault | None = None

    @property
    def has_ended(self) -> bool:
        """Whether no further row may be looked at."""
        return self.finish is not None or self.fault is not None


def verify(sequence: Sequence, logits: Logits) -> Verdict:
    """Sample the rows of a sequence, as far as its draft was right.

    Args:
        sequence: Its sampler and its grammar go on behind each token.
        logits: (1 + drafted, V) float32.
    """
    verdict = Verdict()
    draft = sequence.draft
    for position in range(len(logits)):
        _choose(sequence, logits[position], verdict)
        verdict.num_rows += 1
        if position == len(draft) or verdict.tokens[position:] != [draft[position]]:
            break
        verdict.num_accepted += 1
        if verdict.has_ended:
            break
    return verdict


def _choose(sequence: Sequence, row: Logits, verdict: Verdict) -> None:
    """Take the next token of a sequence from its row."""
    constraint = sequence.constraint
    try:
        allowed = row if constraint is None else constraint.masked(row)
        token_id = sequence.sampler.sample(allowed)
        if token_id in sequence.stop_ids:  # neither told nor fed
            verdict.finish, verdict.stop_id = FinishReason.STOP, token_id
            return
        if constraint is not None:
            constraint.accept(token_id)
    except GrammarFault as exc:
        verdict.fault = exc
        return
    verdict.tokens.append(token_id)
    if constraint is not None and constraint.is_complete:
        verdict.finish = FinishReason.STOP
    elif sequence.num_generated + len(verdict.tokens) >= sequence.max_new_tokens:
        verdict.finish = FinishReason.LENGTH
