"""The experts of one mixture, wherever they are: one call, and the same bits from either."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from colibri_engine.experts.demand import Demand
from colibri_engine.experts.store import MAX_GUESSED_ROWS
from colibri_engine.kernels import Choices, ExpertTable, moe, route

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from colibri_engine.experts.counters import ExpertCounters
    from colibri_engine.experts.store import ExpertStore, StreamedLayer
    from colibri_engine.kernels import Expert, Router, Rows, SlotArena
    from colibri_engine.layers.lookahead import Lookahead

# Experts that are ranked for a row, for each one it chooses: see `LayerCache.note`.
_RANKED: Final = 4


class ExpertSet(Protocol):
    """The routed experts of a mixture, then those its router shares among all rows."""

    num_experts: int

    def __call__(self, normed: Rows, logits: Rows, choices: Choices, out: Rows) -> None:
        """Add each row's weighted experts of `normed` (N, C) to `out` (N, C).

        Args:
            normed: What they are given.
            logits: (N, E) what the router saw.
            choices: What it chose.
            out: Where the sum goes.
        """

    def watch(self, router: Router) -> None:
        """Take note of the rule by which a row's experts are chosen."""

    def followed_by(self, experts: Sequence[Expert]) -> ExpertSet:
        """Return the same with further experts behind them, which are in memory."""


class ResidentExperts:
    """Experts that are all in memory.

    Args:
        experts: All of them, in order.
        counters: Where the time is counted.
    """

    def __init__(self, experts: Sequence[Expert], counters: ExpertCounters) -> None:
        self._counters = counters
        self.num_experts = len(experts)
        self._experts = list(experts)
        self._table = ExpertTable(self._experts)

    def __call__(self, normed: Rows, logits: Rows, choices: Choices, out: Rows) -> None:
        """Add each row's weighted experts of `normed` (N, C) to `out` (N, C)."""
        del logits
        started = perf_counter()
        moe(normed, self._table, choices, out)
        self._counters.matmul_s += perf_counter() - started

    def watch(self, router: Router) -> None:
        """All experts are in memory: nothing is to be guessed."""

    def followed_by(self, experts: Sequence[Expert]) -> ResidentExperts:
        """Return the same with further experts behind them."""
        return ResidentExperts([*self._experts, *experts], self._counters)


class StreamedExperts:
    """Experts of which some are in memory and the others are read when rows choose them.

    Args:
        store: Where they come from.
        layer: Their layer in it.
        always: Experts behind the streamed ones that are always in memory.
    """

    def __init__(
        self, store: ExpertStore, layer: StreamedLayer, always: Sequence[Expert] = ()
    ) -> None:
        self.layer = layer
        self.store = store
        self.num_experts = layer.num_experts + len(always)
        self.ahead: Lookahead | None = None  # for the mixture behind this one
        self.guesses: list[Lookahead] = []  # for this one
        self.per_token = 0
        self._always = list(always)
        self._like: Expert | None = None
        self._like_arena: SlotArena | None = None
        self._ranking: Router | None = None
        self._ranked = Choices()

    def watch(self, router: Router) -> None:
        """Rank experts by this rule from now on, also those that are not quite chosen."""
        self.per_token = router.num_choices
        self._ranking = router.ranking(_RANKED * self.per_token, self.layer.num_experts)

    def __call__(self, normed: Rows, logits: Rows, choices: Choices, out: Rows) -> None:
        """Add each row's weighted experts of `normed` (N, C) to `out` (N, C).

        Raises:
            ExpertReadFailed: one could not be read; `out` is as it was.
        """
        started = perf_counter()
        counters, step, ahead = self.store.counters, self.store.step, self.ahead
        waited = counters.wait_s
        wanted = self._note(logits, choices.ids)
        for guess in self.guesses:
            guess.settle(wanted)
        demand = Demand(self.store, self.layer, wanted)
        try:
            step.begin(normed, choices, self.num_experts, self._any())
            if ahead is not None:
                ahead.look(normed)
            self._run_always(choices.ids)
            while ready := demand.ready():
                experts = [number for number, _ in ready]
                step.run(experts, [expert for _, expert in ready])
                demand.done(experts)
                if ahead is not None and demand.is_under_way:
                    ahead.read()
        except BaseException:
            demand.abandon()
            raise
        step.end(out)
        counters.matmul_s += perf_counter() - started - (counters.wait_s - waited)

    def followed_by(self, experts: Sequence[Expert]) -> StreamedExperts:
        """Return the same with further experts behind them, which are in memory."""
        return StreamedExperts(self.store, self.layer, [*self._always, *experts])

    def _note(self, logits: Rows, ids: npt.NDArray[np.int32]) -> list[int]:
        """Record what the rows chose; return the streamed experts among it, each once."""
        num_rows = len(ids)
        experts, counts = np.unique(ids, return_counts=True)
        if self._always:
            is_streamed = experts < self.layer.num_experts
            experts, counts = experts[is_streamed], counts[is_streamed]
        chosen: list[int] = experts.tolist()
        near = None
        if self._ranking is not None and 0 < num_rows <= MAX_GUESSED_ROWS:
            route(logits, self._ranking, self._ranked)
            near = self._ranked.ids[:, self.per_token : self._ranking.num_choices]
        if num_rows:
            self.layer.cache.note(chosen, counts, num_rows, near)
        return chosen

    def _run_always(self, ids: npt.NDArray[np.int32]) -> None:
        """Compute the chosen ones of those that are always in memory."""
        if self._always:
            first = self.layer.num_experts
            chosen = np.unique(ids[ids >= first]).tolist()
            self.store.step.run(chosen, [self._always[number - first] for number in chosen])

    def _any(self) -> Expert:
        """Return an expert whose form is that of all."""
        arena = self.layer.pool.arena
        if self._like is None or self._like_arena is not arena:
            self._like, self._like_arena = self.layer.views.at(arena, 0, 0), arena
        return self._like
