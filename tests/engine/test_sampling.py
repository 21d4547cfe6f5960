"""One row of logits to one id: penalties, filters, seeds, hostile numbers, log-probabilities."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.errors import BadOption
from colibri_engine.sampling import (
    LOWEST_LOGPROB,
    Sampler,
    SamplingParams,
    token_logprobs,
    uniform,
)

V = 4096
NO_PROMPT = np.empty(0, np.int32)


def sampler(
    prompt: Sequence[int] | np.ndarray = NO_PROMPT,
    vocab_size: int = V,
    **params: Any,  # noqa: ANN401 - any field of SamplingParams
) -> Sampler:
    params.setdefault("seed", 1)
    return Sampler(SamplingParams(**params), vocab_size, np.asarray(prompt, np.int32))


def random_row(seed: int, size: int = V, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def reference_survivors(row: np.ndarray, params: SamplingParams) -> set[int]:
    """Steps 4 to 6 by full sorts in float64."""
    scaled = row.astype(np.float64) / params.temperature
    chance = np.exp(scaled - scaled.max())
    order = sorted(range(row.size), key=lambda i: (-row[i], i))
    if params.top_k:
        order = order[: params.top_k]
    order = [i for i in order if chance[i] >= params.min_p]
    total = sum(chance[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        kept.append(i)
        mass += chance[i]
        if params.top_p < 1 and mass >= params.top_p * total:
            break
    return set(kept)


# ---- greedy ----


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    row = random_row(0)
    row[[700, 20, 3000]] = 50.0
    assert sampler().sample(row) == 20


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 5e-324])
def test_a_tiny_temperature_equals_greedy_even_for_near_ties(temperature: float) -> None:
    row = random_row(0)
    row[30] = np.float32(50.0)
    row[20] = np.nextafter(np.float32(50.0), np.float32(0))
    assert [sampler(temperature=temperature, seed=s).sample(row) for s in range(20)] == [30] * 20


@pytest.mark.parametrize("temperature", [1e-5, 1e-3, 2.0])
def test_temperatures_never_overflow(temperature: float) -> None:
    row = random_row(1)
    row[5], row[6] = np.float32(3e38), np.float32(-3e38)
    assert sampler(temperature=temperature).sample(row) == 5


# ---- hostile rows ----


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nan_and_infinity_count_as_impossible(temperature: float) -> None:
    row = np.full(V, -1e4, np.float32)
    row[[0, 9]] = np.nan
    row[1] = np.inf
    row[2] = -np.inf
    row[77] = 3.0
    assert sampler(temperature=temperature).sample(row) == 77


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_row_without_any_number_gives_id_zero(temperature: float, value: float) -> None:
    assert sampler(temperature=temperature).sample(np.full(V, value, np.float32)) == 0


def test_non_finite_rows_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    from colibri_engine import sampling

    sampling._warn_non_finite.cache_clear()
    row = random_row(0)
    row[4] = np.nan
    for _ in range(3):
        sampler().sample(row)
        sampler(temperature=1.0).sample(row)
    assert len(caplog.records) == 1


def test_masked_tokens_are_no_fault_of_the_model(caplog: pytest.LogCaptureFixture) -> None:
    row = random_row(0)
    row[:2000] = -np.inf
    assert sampler(temperature=1.0).sample(row) >= 2000
    assert not caplog.records


def test_the_row_is_left_as_it_is() -> None:
    row = random_row(0)
    before = row.copy()
    sampler([1, 2], temperature=1.0, repetition_penalty=2.0, logit_bias={3: 5.0}, top_p=0.5).sample(
        row
    )
    assert np.array_equal(row, before)


# ---- penalties ----


def penalized(chooser: Sampler, row: np.ndarray) -> np.ndarray:
    return chooser._penalized(row)


def test_presence_and_frequency_do_not_count_the_prompt() -> None:
    row = np.zeros(16, np.float32)
    row[7] = 4.0
    chooser = sampler([7, 7, 7], 16, frequency_penalty=0.5, presence_penalty=0.5)
    assert penalized(chooser, row)[7] == 4.0
    assert chooser.sample(row) == 7
    assert penalized(chooser, row)[7] == 4.0 - 0.5 - 0.5


def test_frequency_counts_each_occurrence_and_presence_once() -> None:
    row = np.zeros(16, np.float32)
    row[7] = 4.0
    frequency = sampler([7, 7, 7], 16, frequency_penalty=0.5)
    presence = sampler([7, 7, 7], 16, presence_penalty=0.5)
    for chooser in (frequency, presence):
        assert [chooser.sample(row), chooser.sample(row)] == [7, 7]
    assert penalized(frequency, row)[7] == 3.0
    assert penalized(presence, row)[7] == 3.5


def test_repetition_applies_once_however_often_a_token_occurs() -> None:
    row = np.zeros(16, np.float32)
    row[7], row[8], row[3] = 4.0, -4.0, 9.0
    chooser = sampler([7, 7, 7, 8], 16, repetition_penalty=2.0)
    assert penalized(chooser, row)[[7, 8, 3]].tolist() == [2.0, -8.0, 9.0]
    chooser.sample(row)  # takes 3
    chooser.sample(row)  # and again: 4.5 is still the best
    assert penalized(chooser, row)[[7, 8, 3]].tolist() == [2.0, -8.0, 4.5]


def test_many_distinct_tokens_are_counted() -> None:
    chooser = sampler(vocab_size=100, presence_penalty=2.0)
    row = (np.arange(100) / 1000).astype(np.float32)
    drawn = [chooser.sample(row) for _ in range(100)]
    assert drawn == list(range(99, -1, -1))


def test_bias_is_added() -> None:
    row = random_row(0)
    assert sampler(logit_bias={1234: 100.0}).sample(row) == 1234
    best = int(row.argmax())
    assert sampler(logit_bias={best: -100.0}).sample(row) != best


def test_bias_on_a_token_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(BadOption, match="logit_bias"):
        sampler(logit_bias={V: 1.0})


# ---- filters ----


@given(
    seed=st.integers(0, 10_000),
    top_k=st.sampled_from([0, 1, 2, 40, V, V + 5]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    top_p=st.sampled_from([1e-9, 0.1, 0.9, 0.999, 1.0]),
    spread=st.sampled_from([0.01, 1.0, 4.0]),
    levels=st.booleans(),
)
def test_the_draw_stays_within_the_filters(
    seed: int, top_k: int, min_p: float, top_p: float, spread: float, levels: bool
) -> None:
    row = random_row(seed, 1500, spread)
    if levels:  # many exact ties
        row = np.round(row).astype(np.float32)
    params = SamplingParams(seed=seed, temperature=0.9, top_p=top_p, top_k=top_k, min_p=min_p)
    chooser = Sampler(params, 1500, NO_PROMPT)
    survivors = reference_survivors(row, params)
    drawn = {chooser.sample(row) for _ in range(20)}
    # rounding may move the edge of the nucleus by one token
    assert len(drawn - survivors) <= (1 if top_p < 1 else 0)
    if len(survivors) == 1 and top_p < 0.9:
        assert drawn == survivors


@pytest.mark.parametrize(
    "params", [{"top_k": 40}, {"min_p": 0.05}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.8}, {}]
)
def test_draws_follow_the_distribution(params: dict[str, Any]) -> None:
    row = random_row(3, 64, 1.5)
    given_params = SamplingParams(seed=5, temperature=0.8, **params)
    kept = sorted(reference_survivors(row, given_params))
    chance = np.exp(row[kept].astype(np.float64) / 0.8)
    chance /= chance.sum()
    chooser = Sampler(given_params, 64, NO_PROMPT)
    num_draws = 20_000
    counts = np.bincount([chooser.sample(row) for _ in range(num_draws)], minlength=64)
    assert counts.sum() == counts[kept].sum()
    deviation = np.abs(counts[kept] - num_draws * chance)
    assert (deviation < 5 * np.sqrt(num_draws * chance) + 1).all()


def test_a_draw_from_the_whole_vocabulary_follows_the_distribution() -> None:
    row = np.full(5000, -30.0, np.float32)
    row[[10, 2600, 4999]] = np.log(np.array([1.0, 2.0, 5.0], np.float32))
    chooser = sampler(vocab_size=5000, temperature=1.0)
    counts = np.bincount([chooser.sample(row) for _ in range(8000)], minlength=5000)
    assert counts[[10, 2600, 4999]] / 8000 == pytest.approx([0.125, 0.25, 0.625], abs=0.03)


def test_ties_at_the_edge_of_top_k_keep_the_lower_ids() -> None:
    row = np.zeros(3000, np.float32)
    row[2999] = 1.0
    chooser = sampler(vocab_size=3000, temperature=1.0, top_k=3)
    assert {chooser.sample(row) for _ in range(200)} == {0, 1, 2999}


# ---- seeds ----


def test_the_same_seed_gives_the_same_ids() -> None:
    rows = [random_row(i) for i in range(50)]
    first = sampler(seed=7, temperature=1.0)
    second = sampler(seed=7, temperature=1.0)
    other = sampler(seed=8, temperature=1.0)
    ids = [first.sample(row) for row in rows]
    noise = [sampler(seed=s, temperature=1.5).sample(rows[0]) for s in range(10)]
    assert [second.sample(row) for row in rows] == ids
    assert [other.sample(row) for row in rows] != ids
    assert len(set(noise)) > 3


def test_the_stream_of_a_seed_is_fixed_for_ever() -> None:
    # a changed value would change every seeded answer that users have kept
    assert [uniform(7, i) for i in range(2)] == [0.5243459416779314, 0.30213903321684277]
    assert uniform(0, 0) == 0.8833108082136426  # the first value of SplitMix64 with state 0


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_uniform_is_at_least_zero_and_below_one(seed: int, draw: int) -> None:
    assert 0.0 <= uniform(seed, draw) < 1.0


def test_uniform_is_uniform_over_draws_and_over_seeds() -> None:
    for values in (
        [uniform(3, i) for i in range(20_000)],
        [uniform(i, 0) for i in range(20_000)],
    ):
        counts = np.histogram(values, 20, (0, 1))[0]
        assert np.abs(counts - 1000).max() < 160


# ---- log-probabilities ----


@pytest.mark.parametrize("num_alternatives", [0, 1, 2, 20])
def test_logprobs_are_the_log_softmax_of_the_raw_row(num_alternatives: int) -> None:
    row = random_row(4)
    exact = row.astype(np.float64) - row.max()
    exact -= math.log(np.exp(exact).sum())
    found = token_logprobs(row, 17, num_alternatives)
    assert found.chosen == pytest.approx(exact[17], abs=1e-5)
    best = np.argsort(-row, kind="stable")[:num_alternatives]
    assert [i for i, _ in found.top] == best.tolist()
    assert [value for _, value in found.top] == pytest.approx(exact[best].tolist(), abs=1e-5)


def test_logprobs_are_never_positive_and_always_finite() -> None:
    row = np.full(V, -np.inf, np.float32)
    row[3], row[4] = 900.0, np.nan
    found = token_logprobs(row, 3, 2)
    assert found.chosen == 0.0
    assert found.top == ((3, 0.0), (0, LOWEST_LOGPROB))
    assert token_logprobs(row, 8, 0).chosen == LOWEST_LOGPROB
    assert token_logprobs(np.full(V, np.nan, np.float32), 8, 2).chosen == LOWEST_LOGPROB


def test_equal_alternatives_come_in_id_order() -> None:
    row = np.zeros(2000, np.float32)
    assert [i for i, _ in token_logprobs(row, 5, 4).top] == [0, 1, 2, 3]
