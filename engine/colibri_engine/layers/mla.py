"""Latent attention (MLA): one small cached row per position for the keys and values of all heads.

    c, k = split(W_kva a);  c = rms(c);  k = rope(k)                      cached: [c ; k]
    q_h  = W_qb rms(W_qa a) = [n_h ; p_h];  p_h = rope(p_h)
    s_ht = scale (W_K,h^T n_h . c_t + p_h . k_t);  u_h = sum_t softmax(s_h)_t c_t
    out  = W_o concat_h(W_V,h u_h)

Queries go into the latents' space instead of keys coming out of it, for one row as for many, so
prefill and decode are the same arithmetic. Sparse layers look at the positions an indexer chose.
All products but W_o keep 16-bit activations in "fast" numerics: a latent stands for the keys and
values of every head.
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.kernels import (
    Batch,
    LatentHeads,
    LayerLayout,
    Linear,
    Rope,
    Rows,
    Selection,
    Vector,
    head_linear,
    latent_attention,
    linear,
    rms_norm,
    rms_norm_heads,
    rotate,
    store_latents,
)
from colibri_engine.layers.indexer import Indexer, IndexerShape
from colibri_engine.layers.latent_heads import HeadSizes, read_latent_heads

if TYPE_CHECKING:
    from colibri_engine.layers.buffers import StepBuffers
    from colibri_engine.layers.weights import WeightReader

# Not the model's own: the reference builds these two norms with its default.
LATENT_NORM_EPS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class MlaShape:
    """Sizes of latent attention.

    Args:
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        query_latent_dim: Channels of the query latent; 0 where queries come straight from the
            input.
        latent_dim: Channels of the key-value latent, without the rotated key.
        key_dim: Channels of a head that do not turn.
        rope_dim: Channels that do, of every query head and of the one key.
        value_dim: Channels of a head's value.
    """

    hidden_size: int
    num_heads: int
    query_latent_dim: int
    latent_dim: int
    key_dim: int
    rope_dim: int
    value_dim: int

    @property
    def head_width(self) -> int:
        """Channels of one query head."""
        return self.key_dim + self.rope_dim

    def buffers(self, indexer: IndexerShape | None = None) -> dict[str, int]:
        """Return the scratch rows one layer needs, by name and width."""
        widths = {
            "query": self.num_heads * self.head_width,
            "absorbed": self.num_heads * self.latent_dim,
            "heads": self.num_heads * self.value_dim,
            "latent": self.latent_dim + self.rope_dim,
        }
        if self.query_latent_dim:
            widths["query_latent"] = self.query_latent_dim
        if indexer is not None:
            widths["indexed"] = widths["latent"] + indexer.input_width
            widths["index_query"] = indexer.query_width
        return widths

    def layout(self, indexer: IndexerShape | None = None) -> LayerLayout:
        """Return what a layer keeps per position."""
        return LayerLayout(
            latent_dim=self.latent_dim + self.rope_dim,
            index_dim=0 if indexer is None else indexer.head_dim,
        )


@dataclass(frozen=True, slots=True)
class SparseRule:
    """How a layer with an indexer of its own chooses positions.

    Args:
        shape: Sizes of the indexer.
        rope: Its rotary embedding.
    """

    shape: IndexerShape
    rope: Rope


class MlaAttention:
    """One layer of latent attention.

    Args:
        weights: Where the tensors come from.
        prefix: Their common name ("model.layers.0.self_attn").
        shape: Sizes.
        rope: Rotary embedding of `rope_dim` channels.
        scale: Factor of the scores.
        sparse: The layer's own indexer; None without one.
    """

    def __init__(
        self,
        weights: WeightReader,
        prefix: str,
        shape: MlaShape,
        rope: Rope,
        scale: float,
        sparse: SparseRule | None = None,
    ) -> None:
        self._shape = shape
        self._rope = rope
        self._heads = LatentHeads(shape.num_heads, scale)
        self._query_a: Linear | None = None
        self._query_norm: Vector | None = None
        query_inputs = shape.hidden_size
        query_name = "q_proj"
        if shape.query_latent_dim:
            query_inputs, query_name = shape.query_latent_dim, "q_b_proj"
            self._query_a = weights.linear(
                [f"{prefix}.q_a_proj"], [query_inputs], shape.hidden_size, is_delicate=True
            )
            self._query_norm = weights.vector(f"{prefix}.q_a_layernorm.weight", query_inputs)
        self._query = weights.linear(
            [f"{prefix}.{query_name}"],
            [shape.num_heads * shape.head_width],
            query_inputs,
            is_delicate=True,
        )
        names, widths = [f"{prefix}.kv_a_proj_with_mqa"], [shape.latent_dim + shape.rope_dim]
        self._indexer: Indexer | None = None
        if sparse is not None:
            index = f"{prefix}.indexer"
            self._indexer = Indexer(weights, index, sparse.shape, sparse.rope, widths[0])
            names += [f"{index}.wk", f"{index}.weights_proj"]
            widths += [sparse.shape.head_dim, sparse.shape.num_heads]
        self._latent = weights.linear(names, widths, shape.hidden_size, is_delicate=True)
        self._latent_norm = weights.vector(f"{prefix}.kv_a_layernorm.weight", shape.latent_dim)
        self._into_latents, self._values = read_latent_heads(
            weights,
            prefix,
            HeadSizes(shape.num_heads, shape.key_dim, shape.value_dim, shape.latent_dim),
        )
        self._output = weights.linear(
            [f"{prefix}.o_proj"], [shape.hidden_size], shape.num_heads * shape.value_dim
        )

    def __call__(
        self,
        normed: Rows,
        batch: Batch,
        layer: int,
        buffers: StepBuffers,
        out: Rows,
        selection: Selection | None = None,
    ) -> None:
        """Add the attention of `normed` (N, C) to `out` (N, C).

        Args:
            normed: Input rows.
            batch: Sequence and position of each row.
            layer: Layer index in the caches, which receive the rows' latents and index keys.
            buffers: Scratch of `MlaShape.buffers`.
            out: The residual stream.
            selection: The positions each row looks at; an indexer of the layer's own writes it, a
                layer without one reads what was written before. None: all positions.
        """
        query_latent = self._queries(normed, batch, buffers)
        latent = buffers["latent" if self._indexer is None else "indexed"]
        linear(normed, self._latent, latent)
        self._store(latent, batch, layer)
        if self._indexer is not None:
            self._indexer.store_keys(latent, batch, layer)
            if selection is not None and not selection.fixed:
                assert query_latent is not None
                self._indexer.select(
                    query_latent, latent, batch, layer, buffers["index_query"], selection
                )
        absorbed, heads = buffers["absorbed"], buffers["heads"]
        head_linear(buffers["query"], self._into_latents, absorbed)
        latent_attention(absorbed, buffers["query"], batch, layer, self._heads, selection)
        head_linear(absorbed, self._values, heads)
        linear(heads, self._output, out, True)

    def _queries(self, normed: Rows, batch: Batch, buffers: StepBuffers) -> Rows | None:
        """Fill "query" with the rotated query heads; return the normed query latent, if any."""
        shape, query = self._shape, buffers["query"]
        latent = None
        if self._query_a is None or self._query_norm is None:
            linear(normed, self._query, query)
        else:
            latent = buffers["query_latent"]
            linear(normed, self._query_a, latent)
            rms_norm(latent, self._query_norm, LATENT_NORM_EPS, latent)
            linear(latent, self._query, query)
        rotate(query, batch, self._rope, shape.key_dim, shape.num_heads, shape.head_width)
        return latent

    def _store(self, latent: Rows, batch: Batch, layer: int) -> None:
        """Norm the latents, rotate the keys beside them and write both into the caches."""
        shape = self._shape
        rms_norm_heads(latent, 0, 1, self._latent_norm, LATENT_NORM_EPS)
        rotate(latent, batch, self._rope, shape.latent_dim, 1, shape.rope_dim)
        store_latents(latent, 0, batch, layer)
