"""Verified tokens have the distribution, and the very values, of tokens chosen one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colibri_engine.sampling import Sampler, SamplingParams
from colibri_engine.sequence import Sequence
from colibri_engine.speculation.verify import verify
from colibri_protocol.messages import FinishReason

VOCAB = 8
NUM_REPLIES = 6000


def sequence(seed: int, draft: tuple[int, ...], **params: Any) -> Sequence:  # noqa: ANN401
    prompt = np.array([1, 2], np.int32)
    sampling = SamplingParams(**{"seed": seed, "temperature": 1.0, **params})
    return Sequence(
        request_id=1, slot_idx=0, prompt=prompt, sampler=Sampler(sampling, VOCAB, prompt),
        stop_ids=frozenset({7}), max_new_tokens=9, num_logprobs=None, num_reused=0,
        accepted_at=0.0, baseline={}, draft=draft,
    )  # fmt: skip


def rows(count: int) -> np.ndarray:
    found = np.random.default_rng(2).standard_normal((count, VOCAB)).astype(np.float32)
    found[:, 7] = -30.0  # no stop
    return found


def softmax(row: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp((row - row.max()).astype(np.float64) / temperature)
    return np.asarray(weights / weights.sum())


def chi_square(counts: np.ndarray, chances: np.ndarray) -> float:
    expected = chances * counts.sum()
    kept = expected > 5
    return float((((counts - expected) ** 2)[kept] / expected[kept]).sum())


@pytest.mark.parametrize("draft", [(3, 5), (0, 1), (6, 6)])
def test_the_distribution_is_that_of_the_model(draft: tuple[int, int]) -> None:
    """Tokens behind a right guess and instead of a wrong one together are the model's own."""
    logits = rows(3)
    first, second = np.zeros(VOCAB), np.zeros(VOCAB)
    for seed in range(NUM_REPLIES):
        tokens = verify(sequence(seed, draft), logits).tokens
        first[tokens[0]] += 1
        if len(tokens) > 1:
            second[tokens[1]] += 1
    chances = softmax(logits[0])
    assert chi_square(first, chances) < 25  # 6 degrees of freedom: 1 in 3000
    assert chi_square(second, softmax(logits[1])) < 25
    accepted = second.sum() / NUM_REPLIES
    assert accepted == pytest.approx(chances[draft[0]], abs=0.025)


@pytest.mark.parametrize(
    "params",
    [
        {}, {"temperature": 0.0}, {"temperature": 1.7, "top_p": 0.8}, {"top_k": 3, "min_p": 0.05},
        {"repetition_penalty": 1.5, "frequency_penalty": 1.0, "presence_penalty": 0.5},
        {"logit_bias": {3: 2.0}},
    ],
)  # fmt: skip
def test_the_values_are_those_of_tokens_chosen_one_by_one(params: dict[str, Any]) -> None:
    logits, rng = rows(5), np.random.default_rng(8)
    for seed in range(200):
        sampler = sequence(seed, (), **params).sampler
        wanted = [sampler.sample(row) for row in logits]
        draft = tuple(
            token if rng.random() < 0.7 else int(rng.integers(7)) for token in wanted[:-1]
        )
        verdict = verify(sequence(seed, draft, **params), logits)
        right = next((i for i in range(4) if draft[i] != wanted[i]), 4)
        assert verdict.tokens == wanted[: right + 1]
        assert (verdict.num_rows, verdict.num_accepted) == (right + 1, right)
        assert verdict.finish is None


def test_a_stop_token_ends_the_verification_even_where_it_was_guessed() -> None:
    logits = rows(4)
    logits[1, 7] = 50.0
    first = int(logits[0].argmax())
    verdict = verify(sequence(1, (first, 7, 3), temperature=0.0), logits)
    assert (verdict.tokens, verdict.num_rows) == ([first], 2)
    assert (verdict.finish, verdict.stop_id) == (FinishReason.STOP, 7)
