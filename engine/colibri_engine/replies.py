"""What is told of a reply: a token's bytes, its log-probability if that was asked for, the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from colibri_engine import machine
from colibri_engine.errors import BadOption
from colibri_engine.sampling import token_logprobs
from colibri_engine.telemetry import GB
from colibri_protocol.messages import Finished, FinishReason, TokenAlternative, TokenLogprobs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from colibri_engine.sequence import Sequence


class Vocabulary(Protocol):
    """What the engine must know of the tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; BadOption if it stands for none."""


def token_bytes(vocabulary: Vocabulary, token_id: int) -> bytes:
    """Return the bytes a token stands for; none for rows that only pad the vocabulary."""
    try:
        return vocabulary.token_bytes(token_id)
    except BadOption:
        return b""


def logprobs_message(
    sequence: Sequence, row: npt.NDArray[np.float32], token_id: int, vocabulary: Vocabulary
) -> TokenLogprobs:
    """Return the TOKEN line of a token chosen from `row`, (V,) float32."""
    found = token_logprobs(row, token_id, sequence.num_logprobs or 0)
    return TokenLogprobs(
        sequence.request_id,
        token_id,
        found.chosen,
        token_bytes(vocabulary, token_id),
        tuple(
            TokenAlternative(other, logprob, token_bytes(vocabulary, other))
            for other, logprob in found.top
        ),
    )


def finished_message(
    sequence: Sequence, reason: FinishReason, stop_id: int, hit_percent: float
) -> Finished:
    """Return the DONE line of a reply that ended for `reason`."""
    return Finished(
        id=sequence.request_id,
        completion_tokens=sequence.num_generated,
        tokens_per_second=sequence.tokens_per_second(),
        hit_percent=hit_percent,
        rss_gb=machine.resident_bytes() / GB,
        prompt_tokens=sequence.num_prompt,
        limited=reason is FinishReason.LENGTH,
        reused_tokens=sequence.num_reused,
        finish=reason,
        stop_id=stop_id,
    )
