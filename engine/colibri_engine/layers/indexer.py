"""Which cached positions a row of sparse attention looks at.

    I_t = sum_h w_h relu(q_h . k_t),  the topk positions t <= p with the largest I

Queries come from the query latent, keys and head weights from the layer's input; the first channels
of queries and keys turn. A row with no more than topk positions takes them all.
Source: DeepSeek-V3.2 (lightning indexer); GLM-5 shares one choice among several layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.kernels import (
    Batch,
    IndexHeads,
    Rope,
    Rows,
    Selection,
    index_select,
    layer_norm,
    linear,
    rotate,
    store_index_keys,
)

if TYPE_CHECKING:
    from colibri_engine.layers.weights import WeightReader

KEY_NORM_EPS: Final = 1e-6
# What an indexer reads, after its layer's prefix.
INDEXER_TENSORS: Final = (
    "indexer.wq_b.weight",
    "indexer.wk.weight",
    "indexer.weights_proj.weight",
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
)


@dataclass(frozen=True, slots=True)
class IndexerShape:
    """Sizes of an indexer.

    Args:
        num_heads: Query heads.
        head_dim: Channels of a head and of a key.
        topk: Positions a row may look at.
        query_latent_dim: Channels of the query latent.
    """

    num_heads: int
    head_dim: int
    topk: int
    query_latent_dim: int

    @property
    def query_width(self) -> int:
        """Columns of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def input_width(self) -> int:
        """Columns of the key and the head weights, which one product makes of the input."""
        return self.head_dim + self.num_heads


class Indexer:
    """The indexer of one layer, and the rule for what it leaves to the layer's own products.

    Args:
        weights: Where the tensors come from.
        prefix: Their common name ("model.layers.0.self_attn.indexer").
        shape: Sizes.
        rope: Rotary embedding of the first channels.
        key_offset: First column of the key in the rows handed over; the head weights follow it.
    """

    def __init__(
        self, weights: WeightReader, prefix: str, shape: IndexerShape, rope: Rope, key_offset: int
    ) -> None:
        self._shape = shape
        self._rope = rope
        self._key_offset = key_offset
        self._query = weights.linear(
            [f"{prefix}.wq_b"], [shape.query_width], shape.query_latent_dim, is_delicate=True
        )
        self._norm_weight = weights.vector(f"{prefix}.k_norm.weight", shape.head_dim)
        self._norm_bias = weights.vector(f"{prefix}.k_norm.bias", shape.head_dim)
        scale = (shape.num_heads * shape.head_dim) ** -0.5
        self._heads = IndexHeads(shape.num_heads, key_offset + shape.head_dim, scale)

    def store_keys(self, rows: Rows, batch: Batch, layer: int) -> None:
        """Norm and rotate the keys in `rows` (N, any) and write them into the caches."""
        dim = self._shape.head_dim
        layer_norm(rows, self._key_offset, self._norm_weight, self._norm_bias, KEY_NORM_EPS)
        rotate(rows, batch, self._rope, self._key_offset, 1, dim)
        store_index_keys(rows, self._key_offset, batch, layer)

    def select(
        self,
        query_latent: Rows,
        rows: Rows,
        batch: Batch,
        layer: int,
        query: Rows,
        selection: Selection,
    ) -> None:
        """Choose the positions of every row; `store_keys` comes first.

        Args:
            query_latent: (N, query_latent_dim), normed.
            rows: Head weights (N, any) at key_offset + head_dim.
            batch: Sequence and position of each row.
            layer: Layer index in the caches.
            query: Scratch (N, query_width).
            selection: Receives the choice.
        """
        shape = self._shape
        linear(query_latent, self._query, query)
        rotate(query, batch, self._rope, 0, shape.num_heads, shape.head_dim)
        index_select(query, rows, batch, layer, self._heads, selection)
