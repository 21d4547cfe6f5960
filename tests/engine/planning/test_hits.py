"""What is expected of a cache: nothing, everything, and in between what its own rule gives."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine.planning.hits import (
    MIN_SELECTIONS,
    choices_of,
    distinct_share,
    hit_rate,
    usual_choices,
)


def test_ends() -> None:
    choices = usual_choices(32, 4)
    assert hit_rate(choices, 0) == 0.0
    assert hit_rate(choices, 32) == 1.0


def test_more_slots_never_hit_less() -> None:
    choices = usual_choices(64, 8)
    rates = [hit_rate(choices, capacity) for capacity in (1, 4, 8, 16, 32, 48, 63)]
    assert rates == sorted(rates)
    assert 0.0 < rates[0] < 0.2
    assert 0.85 < rates[-1] < 1.0


def test_skew_and_history_help() -> None:
    even = np.full(64, 8 / 64)
    skewed = usual_choices(64, 8)
    assert hit_rate(skewed, 16) > hit_rate(even, 16)
    # A cache that starts with the right experts is at least as good as one that learns them.
    assert hit_rate(skewed, 16, is_known=True) >= hit_rate(skewed, 16) - 0.01


def test_choices_sum_to_what_a_token_asks_for_and_no_expert_is_chosen_twice() -> None:
    for num_experts, per_token in ((256, 8), (36, 27), (8, 2)):
        choices = usual_choices(num_experts, per_token)
        assert choices.sum() == pytest.approx(per_token)
        assert choices.max() <= 1.0


def test_a_history_says_what_is_chosen_once_it_is_long_enough() -> None:
    counts = np.zeros((4, 8), np.int64)
    counts[1] = [7, 1, 1, 1, 1, 1, 1, 1]
    assert choices_of(counts, 2) is None
    counts[1] *= MIN_SELECTIONS
    choices = choices_of(counts, 2)
    assert choices is not None
    assert choices.tolist() == pytest.approx(
        [0.97] + [1 / 7 + (1 - 0.97) / 6] + [1 / 7] * 6, abs=0.03
    )
    assert choices.sum() == pytest.approx(2)


def test_a_long_prompt_asks_for_nearly_all() -> None:
    choices = usual_choices(256, 8)
    assert distinct_share(choices, 1) == pytest.approx(8 / 256)
    assert 0.9 < distinct_share(choices, 256) < 1.0
