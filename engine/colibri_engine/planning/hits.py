"""Which share of a token's experts is found in memory, for a cache of some size.

The cache's own rule is run on a drawn sequence of choices: some experts are chosen more often than
others, as the history says or, where there is none, as in a large mixture over a long mixed
history; and a token repeats part of its predecessor's choices. Deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from colibri_engine.experts.cache import LayerCache
from colibri_engine.fixtures.routing import REPEAT, expected_choices

if TYPE_CHECKING:
    from colibri_engine.experts.usage import Counts

Floats = npt.NDArray[np.float64]

MIN_SELECTIONS: Final = 5000  # a shorter history says too little about what is chosen

_WARM_ROWS: Final = 600  # before hits are counted
_ROWS: Final = 600
_SAMPLES: Final = 1000
_ROUNDS: Final = 24
_MOST: Final = 0.97  # an expert that is always chosen could not be fitted
_SEED: Final = 5


def choices_of(counts: Counts, per_token: int) -> Floats | None:
    """Return how often a token chooses each expert, most used first, mean over the layers.

    Args:
        counts: (layers, experts) history; layers without any are left out.
        per_token: Experts of a token.

    Returns:
        (experts,), None where the history is too short.
    """
    used = counts[counts.sum(axis=1) > 0]
    if counts.sum() < MIN_SELECTIONS:
        return None
    shares = np.sort(used / used.sum(axis=1, keepdims=True), axis=1)[:, ::-1].mean(axis=0)
    return _at_most_once(shares * per_token)


def usual_choices(num_experts: int, per_token: int) -> Floats:
    """Return how often a token chooses each expert where nothing is known of the model."""
    return _at_most_once(expected_choices(num_experts, per_token))


def hit_rate(choices: Floats, capacity: int, *, is_known: bool = False) -> float:
    """Return the share of choices that are in memory.

    Args:
        choices: (experts,) how often a token chooses each.
        capacity: Slots of the layer.
        is_known: Whether the cache starts with these from history.
    """
    if capacity >= len(choices):
        return 1.0
    if capacity < 1:
        return 0.0
    per_token = max(1, round(float(choices.sum())))
    cache = LayerCache(len(choices), capacity, choices if is_known else None)
    hits = asked = 0
    for row, chosen in enumerate(_draw(choices, per_token)):
        experts: list[int] = chosen.tolist()
        cache.note(experts, np.ones(len(experts)), 1)
        missing = [expert for expert in experts if expert not in cache]
        if row >= _WARM_ROWS:
            asked += len(experts)
            hits += len(experts) - len(missing)
        for expert in missing:
            cache.offer(expert, 0, experts)
    return hits / asked


def distinct_share(choices: Floats, num_rows: int) -> float:
    """Return the share of all experts that a step of many rows asks for."""
    return float((1 - (1 - np.minimum(choices, 1.0)) ** num_rows).mean())


def _draw(choices: Floats, per_token: int) -> npt.NDArray[np.intp]:
    """Return (rows, per_token) experts of consecutive tokens."""
    rng = np.random.default_rng(_SEED)
    biases = _fit_biases(choices, per_token, rng)
    correlation = _fit_correlation(biases, per_token, rng)
    noise = rng.standard_normal(len(choices))
    rows = []
    for _ in range(_WARM_ROWS + _ROWS):
        fresh = rng.standard_normal(len(choices))
        noise = correlation * noise + np.sqrt(1 - correlation**2) * fresh
        rows.append(np.argpartition(-(noise + biases), per_token - 1)[:per_token])
    return np.array(rows)


def _fit_biases(choices: Floats, per_token: int, rng: np.random.Generator) -> Floats:
    noise = rng.standard_normal((_SAMPLES, len(choices)))
    biases = np.zeros(len(choices))
    for _ in range(_ROUNDS):
        found = _chosen(noise + biases, per_token).mean(axis=0)
        biases += 0.5 * (np.log(choices + 2e-3) - np.log(found + 2e-3))
    return biases


def _fit_correlation(biases: Floats, per_token: int, rng: np.random.Generator) -> float:
    """Return the correlation of a token's scores with the last one's that gives the repeat."""
    first, fresh = rng.standard_normal((2, _SAMPLES, len(biases)))
    before = _chosen(first + biases, per_token)
    low, high = 0.0, 1.0
    while high - low > 0.02:
        middle = (low + high) / 2
        after = _chosen(middle * first + np.sqrt(1 - middle**2) * fresh + biases, per_token)
        if (before & after).sum() < REPEAT * before.sum():
            low = middle
        else:
            high = middle
    return low


def _chosen(scores: Floats, per_token: int) -> npt.NDArray[np.bool_]:
    least = np.partition(scores, -per_token, axis=1)[:, -per_token]
    return scores >= least[:, None]


def _at_most_once(wanted: Floats) -> Floats:
    """Give what is too much for one expert to the next ones."""
    limit = max(_MOST, float(wanted.sum()) / len(wanted))
    left, excess = wanted.copy(), 0.0
    for place in range(len(left)):
        left[place] += excess
        excess = max(0.0, left[place] - limit)
        left[place] -= excess
    return left
