"""Guessing what the next mixture will be asked for, while this one's experts are read.

The residual stream changes little from one layer to the next, so the next router already says much
when it is shown what this one saw. What is guessed is read last of all and may be taken back: a
wrong guess costs idle time of the disk, never a result. Once all of the next mixture's are under
way, the one beyond it is guessed in the same way, so that the queue of the disk does not run dry
between two layers. Behind the last mixture comes the next token's first one, of which only the
scores of its cache tell something. In a long prompt nearly every expert of the next layer will be
asked for, and nothing has to be guessed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from colibri_engine.experts.store import MAX_GUESSED_ROWS
from colibri_engine.kernels import Choices, ReadPriority, Rows, linear, route
from colibri_engine.layers.expert_sets import StreamedExperts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from colibri_engine.kernels import Linear, Router, Vector
    from colibri_engine.layers.mixture import Mixture

    Numbers = np.ndarray[tuple[int], np.dtype[np.signedinteger]]

# A guess is worth reading while at least half of such guesses come true; below, fewer are read.
_WORTH: Final = 0.5
_MEMORY: Final = 0.95  # of a layer's record, kept at each step

# Expected rows of a step for an expert from which on it will be asked for: in all but 5 % of cases.
_SURE_ROWS: Final = 3.0


class _MixtureLayer(Protocol):
    """A decoder layer, as far as it matters here."""

    @property
    def mixture(self) -> Mixture | None:
        """Its mixture, if it has one."""

    @property
    def post_norm(self) -> Vector:
        """The norm in front of that."""


class NextRouter:
    """The router of the mixture behind another, shown what that one was given.

    Args:
        gate: Router layer of the mixture.
        router: Its rule.
        ratio: (C,) its norm's weights over those of the mixture before it.
    """

    def __init__(
        self, gate: Linear, router: Router, ratio: np.ndarray[tuple[int], np.dtype[np.float32]]
    ) -> None:
        self._gate = gate
        self._router = router
        self._ratio = ratio
        self._normed = Rows(MAX_GUESSED_ROWS, gate.num_inputs)
        self._logits = Rows(MAX_GUESSED_ROWS, gate.num_outputs)
        self._choices = Choices()

    def guess(self, normed: Rows) -> Numbers:
        """Return the experts that the rows of `normed` (N, C) may choose, the likeliest first."""
        self._normed.rows = normed.rows
        np.multiply(normed.array, self._ratio, out=self._normed.array)
        linear(self._normed, self._gate, self._logits)
        route(self._logits, self._router, self._choices)
        return self._choices.ids.ravel(order="F")  # every row's best one first


class Lookahead:
    """Reads ahead for one mixture on behalf of the one before it.

    Args:
        experts: The experts of the mixture.
        router: What its router will say; None: its next rows are those of the next token.
        beyond: The same for the mixture behind that one, which gets what time is left.
    """

    def __init__(
        self,
        experts: StreamedExperts,
        router: NextRouter | None,
        beyond: Lookahead | None = None,
    ) -> None:
        self._experts = experts
        self._router = router
        self._beyond = beyond
        self._waiting: deque[int] = deque()
        self._priority = ReadPriority.SPECULATIVE
        self._begun: set[int] = set()
        self._is_guess = False
        self.precision = _WORTH  # which part of what was guessed came true lately
        experts.guesses.append(self)

    def start(self, normed: Rows) -> None:
        """Decide what to read, and begin; see `look`."""
        self.look(normed)
        self.read()

    def look(self, normed: Rows) -> None:
        """Decide what to read.

        Args:
            normed: (N, C) what the layer before the mixture is given.
        """
        if self._beyond is not None:
            if normed.rows <= MAX_GUESSED_ROWS:
                self._beyond.look(normed)
            else:
                self._beyond.rest()
        num_choices = self._experts.per_token
        layer = self._experts.layer
        self._waiting.clear()
        self._begun.clear()
        if len(layer.cache) == layer.num_experts:
            return
        by_score = np.argsort(-layer.cache.scores, kind="stable")
        if normed.rows <= MAX_GUESSED_ROWS:
            self._priority = ReadPriority.SPECULATIVE
            self._is_guess = True
            guess = by_score if self._router is None else self._router.guess(normed)
            self._want(guess, self._num_guesses(normed.rows))
        elif self._router is not None and normed.rows * num_choices >= (
            _SURE_ROWS * layer.num_experts
        ):
            self._is_guess = False
            self._priority = ReadPriority.NEXT_BLOCK
            self._want(by_score, layer.num_experts)

    def read(self) -> None:
        """Begin what can be begun now."""
        store, layer = self._experts.store, self._experts.layer
        while self._waiting:
            if not store.fetch(layer, self._waiting[0], self._priority):
                return
            self._begun.add(self._waiting.popleft())
        if self._beyond is not None:
            self._beyond.read()

    def rest(self) -> None:
        """Read nothing further until the next look."""
        self._waiting.clear()

    def settle(self, wanted: Collection[int]) -> None:
        """Learn from what was asked for."""
        self._waiting.clear()
        if self._is_guess and self._begun:
            share = len(self._begun.intersection(wanted)) / len(self._begun)
            self.precision = _MEMORY * self.precision + (1 - _MEMORY) * share
        self._begun.clear()

    def _num_guesses(self, num_rows: int) -> int:
        """Return how many guesses are worth reading; one at least, so that there is news of them.

        Scores tell the rows of the next token not apart, so behind the last mixture one row's
        choices are all there is to guess, and of them the part that came true lately: where there
        are few layers, every wrong one weighs.
        """
        num_choices = self._experts.per_token
        if self._router is None:
            return max(1, round(num_choices * self.precision))
        return max(1, round(num_rows * num_choices * min(1.0, self.precision / _WORTH)))

    def _want(self, ranked: Numbers, count: int) -> None:
        layer = self._experts.layer
        for expert in dict.fromkeys(ranked.tolist()):
            if len(self._waiting) == count:
                return
            if (
                expert < layer.num_experts
                and expert not in layer.cache
                and expert not in layer.reads
                and not layer.pool.has_spare(layer.number, expert)
            ):
                self._waiting.append(expert)


def link_mixtures(layers: Sequence[_MixtureLayer]) -> None:
    """Let each layer read ahead for the mixture behind it, the last mixture for the first.

    A mixture that is streamed does so while its own experts are read. So does every dense layer in
    front of one: the disk would have nothing to do, and what the router says early is mostly what
    it says in the end.
    """
    mixtures = [layer for layer in layers if layer.mixture is not None]
    if len(mixtures) > 1:
        for place, this in enumerate(mixtures):
            experts = _streamed(this)
            if experts is not None:
                experts.ahead = _lookahead(this, mixtures[place + 1 :]) or _next_token(mixtures[0])
    behind: list[_MixtureLayer] = []
    for this in reversed(layers):
        if this.mixture is not None:
            behind.insert(0, this)
        elif hasattr(this, "ahead"):
            this.ahead = _lookahead(this, behind)


def _lookahead(this: _MixtureLayer, behind: Sequence[_MixtureLayer]) -> Lookahead | None:
    """Return what a layer reads ahead for the next mixture behind it and the one beyond that."""
    found: Lookahead | None = None
    for following in reversed(behind[:2]):
        experts = _streamed(following)
        if experts is not None:
            found = Lookahead(experts, _next_router(this, following), found)
    return found


def _next_token(first: _MixtureLayer) -> Lookahead | None:
    """Return what the last mixture reads ahead for the first one."""
    experts = _streamed(first)
    return None if experts is None else Lookahead(experts, None)


def _streamed(layer: _MixtureLayer) -> StreamedExperts | None:
    """Return the experts of a layer that can be read ahead for."""
    experts = None if layer.mixture is None else layer.mixture.experts
    if isinstance(experts, StreamedExperts) and experts.store.looks_ahead:
        return experts
    return None


def _next_router(this: _MixtureLayer, following: _MixtureLayer) -> NextRouter:
    mixture = following.mixture
    assert mixture is not None
    rule = mixture.router
    num_experts = mixture.experts.num_experts
    return NextRouter(
        mixture.gate,
        rule.ranking(rule.num_choices, num_experts),
        _ratio(following.post_norm.array, this.post_norm.array),
    )


def _ratio(
    weights: np.ndarray[tuple[int], np.dtype[np.float32]],
    before: np.ndarray[tuple[int], np.dtype[np.float32]],
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return weights / before, 0 where nothing came through."""
    is_zero = before == 0
    return np.where(is_zero, 0, weights / np.where(is_zero, 1, before)).astype(np.float32)
