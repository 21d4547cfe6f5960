"""From one row of logits to one token id: the sampling state of one request.

Everything random or counted lives in a `Sampler`, one per request, so an answer never depends on
what else runs. Knows no text, no batch and no model. Order of work on a row:

    1. repetition penalty   over every distinct token of prompt and reply, once each: a positive
                            logit is divided, a negative one multiplied
    2. frequency, presence  over the reply only: frequency · count + presence are taken off
    3. logit bias           added
    4. temperature          logit / temperature; below 1e-5 the reply is greedy
    5. top-k, min-p         keep the k best; keep those of at least min_p times the best's chance
    6. top-p                the smallest set of the most likely survivors that holds top_p of them
    7. draw                 inverse CDF in token-id order

Greedy takes the first maximum. NaN and infinite logits count as impossible. Log-probabilities are
those of the model itself: log-softmax of the raw row, before step 1.
"""

import functools
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import BadOption

logger = logging.getLogger(__name__)

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]

# Below it two logits that float32 can tell apart differ by more than the whole range of exp.
GREEDY_BELOW: Final = 1e-5
LOWEST_LOGPROB: Final = -9999.0  # stands for an impossible token: JSON has no infinity
_MASK64: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_BLOCK: Final = 256  # ids per partial sum when a draw walks the whole vocabulary
_SMALL: Final = 1024  # survivors that are simply sorted


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request wants its tokens chosen; ranges are checked by the protocol."""

    seed: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probability of the chosen token, and the most likely ones, best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


def uniform(seed: int, draw: int) -> float:
    """Return number `draw` of the stream that belongs to `seed`, in [0, 1).

    A counter-based generator: nothing is shared between requests and a stream can be entered
    anywhere. Source: SplitMix64 (Steele, Lea, Flood 2014).
    """
    state = (_mix(seed & _MASK64) + (draw + 1) * _GOLDEN) & _MASK64
    return (_mix(state) >> 11) * 2.0**-53


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


class Sampler:
    """Chooses the tokens of one reply.

    Args:
        params: The request's wishes.
        vocab_size: Length of the rows it will be given.
        prompt: Ids of the prompt, int32 (n,); read once.

    Raises:
        BadOption: A biased token does not exist.
    """

    def __init__(
        self, params: SamplingParams, vocab_size: int, prompt: npt.NDArray[np.int32]
    ) -> None:
        self._params = params
        self._vocab_size = vocab_size
        self._is_greedy = params.temperature < GREEDY_BELOW
        self._num_draws = 0
        self._bias_ids = np.array(list(params.logit_bias), np.intp)
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        if self._bias_ids.size and self._bias_ids.max() >= vocab_size:
            raise BadOption("logit_bias", f"token {self._bias_ids.max()} is not below {vocab_size}")
        self._reply = _Counts() if params.frequency_penalty or params.presence_penalty else None
        self._seen: _Counts | None = None
        if params.repetition_penalty != 1.0:
            self._seen = _Counts()
            for token_id in np.unique(prompt).tolist():
                self._seen.add(token_id)
        self._is_plain = self._bias_ids.size == 0 and self._reply is None and self._seen is None

    def sample(self, logits: Row) -> int:
        """Choose the next token and count it. `logits` (V,) float32 is left as it is."""
        if self._is_plain and self._is_greedy:
            best = int(logits.argmax())
            # argmax returns the first NaN if there is one, so this one look covers the row
            return best if math.isfinite(logits[best]) else _best_finite(logits)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            token_id = self._choose(logits if self._is_plain else self._penalized(logits))
        if self._reply is not None:
            self._reply.add(token_id)
        if self._seen is not None:
            self._seen.add(token_id)
        return token_id

    def _choose(self, row: Row) -> int:
        top = row.max()
        if not math.isfinite(top):
            _warn_non_finite()
            row = _only_finite(row)
            top = row.max()
            if not math.isfinite(top):
                return 0
        if self._is_greedy:
            return int(row.argmax())
        weights = np.exp((row - top) / np.float32(self._params.temperature))
        return self._draw(weights)

    def _penalized(self, logits: Row) -> Row:
        """Return a new row with steps 1 to 3 done."""
        row = logits.copy()
        params = self._params
        if self._seen is not None:
            ids = self._seen.ids
            values = row[ids]
            penalty = np.float32(params.repetition_penalty)
            row[ids] = np.where(values > 0, values / penalty, values * penalty)
        if self._reply is not None:
            counts = self._reply.counts
            row[self._reply.ids] -= np.float32(params.frequency_penalty) * counts + np.float32(
                params.presence_penalty
            )
        if self._bias_ids.size:
            row[self._bias_ids] += self._bias
        return row

    def _draw(self, weights: Row) -> int:
        """Draw an id; `weights` (V,) are chances relative to the best, which has 1."""
        params = self._params
        ids: Ids | None = None  # None: every id
        if 0 < params.top_k < weights.size:
            ids = _best_k(weights, params.top_k)
            weights = weights[ids]
        if params.min_p > 0:
            kept = np.flatnonzero(weights >= np.float32(params.min_p))
            ids = kept if ids is None else ids[kept]
            weights = weights[kept]
        if params.top_p < 1:
            kept = _nucleus(weights, params.top_p)
            ids = kept if ids is None else ids[kept]
            weights = weights[kept]
        point = uniform(params.seed, self._num_draws)
        self._num_draws += 1
        position = _inverse_cdf(weights, point)
        return position if ids is None else int(ids[position])


class _Counts:
    """How often each token occurred, as arrays that grow in place."""

    __slots__ = ("_counts", "_ids", "_positions")

    def __init__(self) -> None:
        self._ids = np.empty(16, np.intp)
        self._counts = np.empty(16, np.float32)
        self._positions: dict[int, int] = {}

    @property
    def ids(self) -> Ids:
        return self._ids[: len(self._positions)]

    @property
    def counts(self) -> Row:
        return self._counts[: len(self._positions)]

    def add(self, token_id: int) -> None:
        position = self._positions.get(token_id)
        if position is None:
            position = self._append(token_id)
        self._counts[position] += 1

    def _append(self, token_id: int) -> int:
        position = len(self._positions)
        if position == self._ids.size:
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.empty_like(self._counts)])
        self._positions[token_id] = position
        self._ids[position] = token_id
        self._counts[position] = 0
        return position


def _best_k(weights: Row, k: int) -> Ids:
    """Return the positions of the k largest, ascending; of equals at the edge the lower ones."""
    edge = np.partition(weights, weights.size - k)[weights.size - k]
    return _at_least(weights, edge, k)


def _at_least(weights: Row, edge: np.float32, size: int) -> Ids:
    """Return `size` positions, ascending: all above `edge`, then the lowest equal to it."""
    ids = np.flatnonzero(weights >= edge)
    if ids.size == size:
        return ids
    above = np.flatnonzero(weights > edge)
    level = np.flatnonzero(weights == edge)[: size - above.size]
    return np.sort(np.concatenate([above, level]))


def _nucleus(weights: Row, top_p: float) -> Ids:
    """Return the positions, ascending, of the fewest largest weights that hold `top_p` of all."""
    wanted = top_p * float(weights.sum())
    head = weights
    if weights.size > _SMALL:
        # Sorting a vocabulary costs more than all the rest: the weights above a bound hold the
        # nucleus whenever their sum reaches it, and a trained model's nucleus is short.
        best = float(weights.max())
        for bound in (1e-2, 1e-3, 1e-4, 1e-6):
            part = weights[weights > np.float32(bound * best)]
            if float(part.sum()) >= wanted:
                head = part
                break
    # Values alone are sorted: several times faster than sorting positions, ties follow from them.
    descending = np.sort(head)[::-1]
    sums = np.cumsum(descending, dtype=np.float64)
    size = min(int(np.searchsorted(sums, wanted)) + 1, descending.size)
    return _at_least(weights, descending[size - 1], size)


def _inverse_cdf(weights: Row, point: float) -> int:
    """Return the position where the running sum of `weights` passes `point` of the whole."""
    offset = 0
    if weights.size > _SMALL:
        starts = np.arange(0, weights.size, _BLOCK)
        blocks = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
        target = point * blocks[-1]
        block = min(int(np.searchsorted(blocks, target, side="right")), blocks.size - 1)
        target -= blocks[block - 1] if block else 0.0
        offset = block * _BLOCK
        weights = weights[offset : offset + _BLOCK]
        sums = np.cumsum(weights, dtype=np.float64)
    else:
        sums = np.cumsum(weights, dtype=np.float64)
        target = point * sums[-1]
    position = int(np.searchsorted(sums, target, side="right"))
    if position == sums.size:  # rounding at the very end: the last one that has any weight
        position = int(np.flatnonzero(weights)[-1])
    return offset + position


def token_logprobs(logits: Row, token_id: int, num_alternatives: int) -> Logprobs:
    """Return the log-probabilities of `token_id` and of the most likely tokens.

    Args:
        logits: The model's row, (V,) float32, before any penalty.
        token_id: The token chosen.
        num_alternatives: How many of the best to name; equals in id order.
    """
    top = logits.max()
    if not math.isfinite(top):
        logits = _only_finite(logits)
        top = logits.max()
        if not math.isfinite(top):
            return Logprobs(LOWEST_LOGPROB, ())
    with np.errstate(over="ignore", under="ignore"):
        norm = float(top) + math.log(float(np.exp(logits - top).sum(dtype=np.float64)))
    num_alternatives = min(num_alternatives, logits.size)
    if num_alternatives == 0:
        return Logprobs(_logprob(logits[token_id], norm), ())
    ids = _best_k(logits, num_alternatives)
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    best = tuple((int(i), _logprob(logits[i], norm)) for i in ids)
    return Logprobs(_logprob(logits[token_id], norm), best)


def _logprob(logit: np.float32, norm: float) -> float:
    return max(min(float(logit) - norm, 0.0), LOWEST_LOGPROB)


def _best_finite(logits: Row) -> int:
    """Return the first maximum among finite logits; with none, among the infinite ones; or 0."""
    _warn_non_finite()
    finite = _only_finite(logits)
    if math.isfinite(finite.max()):
        return int(finite.argmax())
    return int(np.where(np.isnan(logits), -np.inf, logits).argmax())


def _only_finite(logits: Row) -> Row:
    return np.where(np.isfinite(logits), logits, np.float32(-np.inf))


@functools.cache
def _warn_non_finite() -> None:
    """Say once per process that the model computed something that is no number."""
    logger.warning(
        "the model returned logits that are not finite; they count as impossible (further "
        "occurrences are not reported)"
    )
