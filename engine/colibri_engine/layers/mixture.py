"""A mixture of experts with a shared expert, behind one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colibri_engine.kernels import (
    Choices,
    Expert,
    Linear,
    Router,
    Rows,
    linear,
    mlp,
    route,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.layers.expert_sets import ExpertSet


class Mixture:
    """Router -> chosen experts (+ shared expert), all added to the residual stream.

    Args:
        gate: Router layer, hidden size -> experts.
        router: Rule that turns its logits into choices.
        experts: The routed experts, then those the router shares among all rows.
        shared: The expert every row goes through with weight 1, or None.
        num_routed: How many of the experts are chosen; all unless given.
    """

    def __init__(
        self,
        gate: Linear,
        router: Router,
        experts: ExpertSet,
        shared: Expert | None,
        num_routed: int | None = None,
    ) -> None:
        self.gate = gate
        self.router = router
        self.experts = experts
        self._num_routed = experts.num_experts if num_routed is None else num_routed
        self._shared = shared
        self._choices = Choices()
        experts.watch(router)

    def __call__(self, normed: Rows, logits: Rows, out: Rows) -> None:
        """Add the mixture of `normed` (N, C) to `out` (N, C); `logits` (N, E) is scratch."""
        linear(normed, self.gate, logits)
        route(logits, self.router, self._choices)
        self.experts(normed, logits, self._choices, out)
        if self._shared is not None:
            mlp(normed, self._shared, out)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each routed expert was chosen, (E,) int64; a copy."""
        counts = self.router.counts[: self._num_routed]
        return counts.copy() if counts.size else np.zeros(self._num_routed, np.int64)

    def uncount(self, rows: Sequence[int]) -> None:
        """Take the choices of some rows of the last call out of `counts`."""
        np.subtract.at(self.router.counts, self._choices.ids[list(rows)].ravel(), 1)
