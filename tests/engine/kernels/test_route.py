"""The router's choice: scores, groups, bias, and the places of ties and broken values."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Choices, Router
from tests.engine.kernels import reference
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import EPS, F32, RouterCase


def build(rule: RouterCase, bias: F32 | None = None) -> Router:
    return Router(
        rule.num_choices,
        scoring=rule.scoring,
        normalize=rule.normalize,
        scale=rule.scale,
        bias=bias,
        num_groups=rule.num_groups,
        kept_groups=rule.kept_groups,
        num_shared=rule.num_shared,
    )


def choose(logits: F32, rule: RouterCase, bias: F32 | None = None) -> tuple[np.ndarray, F32]:
    choices = Choices()
    kernels.route(rows_of(logits), build(rule, bias), choices)
    return choices.ids.copy(), choices.weights.copy()


RULES = [
    pytest.param(8, RouterCase(3), id="sigmoid"),
    pytest.param(8, RouterCase(8), id="all"),
    pytest.param(1, RouterCase(1), id="one-expert"),
    pytest.param(36, RouterCase(27, normalize=False, scale=2.0), id="unnormalized"),
    pytest.param(64, RouterCase(8, scoring="softmax", scale=2.5), id="softmax"),
    pytest.param(33, RouterCase(4, scoring="softmax", normalize=False), id="softmax-plain"),
    pytest.param(32, RouterCase(6, num_groups=4, kept_groups=2), id="groups"),
    pytest.param(32, RouterCase(4, scoring="top_softmax"), id="top-softmax"),
    pytest.param(16, RouterCase(1, scoring="top_softmax", scale=3), id="top-softmax-one"),
    pytest.param(10, RouterCase(2, scale=8, num_shared=2), id="shared"),
    pytest.param(259, RouterCase(6, scale=2.5, num_shared=3), id="shared-many"),
    pytest.param(160, RouterCase(8, num_groups=8, kept_groups=3, scale=1.5), id="many-groups"),
]


@pytest.mark.parametrize(("num_experts", "rule"), RULES)
@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "bias"])
def test_choices_and_weights(
    isa: str, rng: np.random.Generator, num_experts: int, rule: RouterCase, has_bias: bool
) -> None:
    logits = (rng.standard_normal((40, num_experts)) * 3).astype(np.float32)
    bias = None
    if has_bias:
        bias = (rng.standard_normal(num_experts - rule.num_shared) / 4).astype(np.float32)
    ids, weights = choose(logits, rule, bias)
    want_ids, want_weights = reference.route(logits, bias, rule)
    np.testing.assert_array_equal(ids, want_ids)
    # Softmax: the difference before exp errs by eps |x - max|; then exp, sums, one quotient each.
    spread = 1 if rule.scoring == "sigmoid" else np.ptp(logits)
    bound = (spread + num_experts + 8) * EPS
    assert (np.abs(weights - want_weights) <= bound * want_weights).all()


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_ties_go_to_the_lower_id(isa: str, scoring: str) -> None:
    logits = np.zeros((2, 20), np.float32)
    logits[1, [3, 9, 19]] = 1
    ids, weights = choose(logits, RouterCase(5, scoring=scoring))
    assert ids.tolist() == [[0, 1, 2, 3, 4], [3, 9, 19, 0, 1]]
    np.testing.assert_allclose(weights[0], 0.2, rtol=1e-6)


def test_tied_groups_go_to_the_lower_one(isa: str) -> None:
    rule = RouterCase(4, num_groups=4, kept_groups=2)
    ids, _ = choose(np.zeros((1, 12), np.float32), rule)
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_a_group_is_judged_by_its_two_best(isa: str) -> None:
    logits = np.array([[9, -9, -9, 4, 4, -9]], np.float32)
    ids, _ = choose(logits, RouterCase(2, num_groups=2, kept_groups=1))
    assert ids.tolist() == [[3, 4]]  # 4 and 4 beat 9 and -9 after the sigmoid


def test_bias_moves_the_choice_and_never_the_weight(isa: str) -> None:
    logits = np.array([[2, 1, 0, -1]], np.float32)
    bias = np.array([-10, 0, 0, 10], np.float32)
    ids, weights = choose(logits, RouterCase(2, normalize=False), bias)
    assert ids.tolist() == [[3, 1]]
    expected = 1 / (1 + np.exp([1.0, -1.0]))
    np.testing.assert_allclose(weights[0], expected, rtol=4 * EPS)


@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_broken_score_comes_last(isa: str, num_groups: int) -> None:
    logits = np.array([[np.nan, -50, 3, np.nan, -60, 1]], np.float32)
    rule = RouterCase(4, normalize=False, num_groups=num_groups, kept_groups=num_groups)
    ids, weights = choose(logits, rule)
    assert ids.tolist() == [[2, 5, 1, 4]]
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_a_row_without_scores_still_chooses_real_experts(isa: str, scoring: str) -> None:
    logits = np.full((3, 8), np.nan, np.float32)
    logits[1] = np.arange(8)
    logits[2] = -np.inf
    ids, weights = choose(logits, RouterCase(3, scoring=scoring))
    assert ids[0].tolist() == [0, 1, 2]
    assert ids[1].tolist() == [7, 6, 5]
    assert ids[2].tolist() == [0, 1, 2]
    assert np.isnan(weights[0]).all()
    assert np.isfinite(weights[1]).all()


def test_infinite_logits(isa: str) -> None:
    logits = np.array([[0, np.inf, -np.inf, 5]], np.float32)
    ids, weights = choose(logits, RouterCase(2))
    assert ids.tolist() == [[1, 3]]
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)


def test_normalized_weights_sum_to_the_scale(isa: str, rng: np.random.Generator) -> None:
    logits = (rng.standard_normal((30, 16)) * 20).astype(np.float32)
    _, weights = choose(logits, RouterCase(4, scale=2.5))
    np.testing.assert_allclose(weights.sum(axis=1), 2.5, rtol=1e-6)


def test_selections_are_counted(rng: np.random.Generator) -> None:
    logits = rng.standard_normal((50, 12)).astype(np.float32)
    router, choices = build(RouterCase(3)), Choices()
    assert router.counts.size == 0
    total = np.zeros(12, np.int64)
    for rows in (50, 1, 20):
        kernels.route(rows_of(logits[:rows]), router, choices)
        assert choices.ids.shape == choices.weights.shape == (rows, 3)
        total += np.bincount(choices.ids.ravel(), minlength=12)
    np.testing.assert_array_equal(router.counts, total)


def test_chosen_logits_share_a_softmax_of_their_own(isa: str) -> None:
    logits = np.array([[0, np.log(3), -5, 0.5, -7]], np.float32)
    ids, weights = choose(logits, RouterCase(2, scoring="top_softmax"))
    assert ids.tolist() == [[1, 3]]
    expected = np.array([3, np.exp(0.5)]) / (3 + np.exp(0.5))
    np.testing.assert_allclose(weights[0], expected, rtol=4 * EPS)


def test_shared_experts_are_weighed_with_the_chosen(isa: str) -> None:
    logits = np.array([[-9, 2, 0, -1, 1, -3]], np.float32)  # the last two are shared
    ids, weights = choose(logits, RouterCase(2, scale=8, num_shared=2))
    assert ids.tolist() == [[1, 2, 4, 5]]
    scores = 1 / (1 + np.exp(-np.array([2.0, 0, 1, -3])))
    np.testing.assert_allclose(weights[0], 8 * scores / scores.sum(), rtol=8 * EPS)


@pytest.mark.parametrize("far", [60, 100])
def test_shared_weights_survive_vanishing_scores(isa: str, far: int) -> None:
    """Far below zero a sigmoid is an exponential, whose shares are those of a softmax."""
    logits = np.array([[-1, -20, 0, -2]], np.float32) - far
    ids, weights = choose(logits, RouterCase(1, num_shared=2))
    assert ids.tolist() == [[0, 2, 3]]
    powers = np.exp([-1.0, 0, -2])
    np.testing.assert_allclose(weights[0], powers / powers.sum(), rtol=8 * EPS)


def test_no_rows_choose_nothing(isa: str) -> None:
    choices = Choices()
    kernels.route(kernels.Rows(2, 8), build(RouterCase(3)), choices)
    assert choices.ids.shape == (0, 3)
