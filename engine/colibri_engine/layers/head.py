"""The two ends of a decoder: token embedding and output head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colibri_engine.kernels import Linear, Matrix, Rows, Vector, embed, linear, rms_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.layers.weights import WeightReader

_MIN_ROWS = 16


@dataclass(frozen=True, slots=True)
class HeadRules:
    """What a head may have of its own.

    Args:
        divisor: What normalised rows are divided by before the head.
        padded_size: Rows of the embedding, and of the head in the file, if more than tokens.
    """

    divisor: float = 1.0
    padded_size: int = 0


class TokenEnds:
    """Embedding, final norm and output head, tied or not.

    Args:
        weights: Where the tensors come from.
        vocab_size: Tokens: logits of a row.
        hidden_size: Width of the residual stream.
        tied: Whether the head is the embedding.
        eps: Epsilon of the final norm.
        rules: What some heads have beyond that.
    """

    def __init__(
        self,
        weights: WeightReader,
        vocab_size: int,
        hidden_size: int,
        *,
        tied: bool,
        eps: float,
        rules: HeadRules = HeadRules(),
    ) -> None:
        self._table: Matrix = weights.matrix(
            "model.embed_tokens.weight", max(vocab_size, rules.padded_size), hidden_size
        )
        self._norm = weights.vector("model.norm.weight", hidden_size)
        self._head: Linear
        if tied:
            self._head = weights.layer_of(self._table)
            if weights.has("lm_head.weight"):
                weights.skip("lm_head.weight")  # a copy of the embedding
        else:
            head = weights.matrix(
                "lm_head.weight", vocab_size, hidden_size, padded_outputs=rules.padded_size
            )
            self._head = weights.layer_of(head)
        self._eps = eps
        self._divisor = rules.divisor
        self._hidden_size = hidden_size
        self._vocab_size = vocab_size
        self._last = Rows(_MIN_ROWS, hidden_size)
        self._logits = Rows(_MIN_ROWS, vocab_size)

    def embed(self, ids: npt.NDArray[np.int32], out: Rows) -> None:
        """Set `out` (N, C) to the embeddings of ids (N,) int32."""
        embed(self._table, ids, out)

    def logits(
        self, x: Rows, rows: Sequence[int], norm: Vector | None = None
    ) -> npt.NDArray[np.float32]:
        """Return (len(rows), V) float32 logits of some rows of x; a view until the next call.

        Args:
            x: (N, C) hidden states.
            rows: Which of them.
            norm: Weight of another norm than the final one.
        """
        last = self._normed(x, rows, self._norm if norm is None else norm)
        if len(rows) > self._logits.capacity:
            self._logits = Rows(len(rows), self._vocab_size)
        if self._divisor != 1.0:
            np.divide(last.array, np.float32(self._divisor), out=last.array)
        linear(last, self._head, self._logits)
        return self._logits.array

    def hidden(self, x: Rows, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return (len(rows), C) float32, some rows of x after the final norm; a copy."""
        return self._normed(x, rows, self._norm).array.copy()

    def _normed(self, x: Rows, rows: Sequence[int], norm: Vector) -> Rows:
        count = len(rows)
        if count > self._last.capacity:
            self._last = Rows(count, self._hidden_size)
        self._last.rows = count
        np.take(x.array, rows, axis=0, out=self._last.array)
        rms_norm(self._last, norm, self._eps, self._last)
        return self._last
