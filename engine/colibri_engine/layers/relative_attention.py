"""Grouped-query attention without rotation: convolved keys and values, biases by distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.kernels import (
    AttentionOptions,
    Batch,
    Rows,
    ShortConv,
    attention,
    linear,
    rms_norm_heads,
    short_conv,
    store_kv,
)

if TYPE_CHECKING:
    from colibri_engine.layers.weights import WeightReader


# What the kernels have room for.
MAX_PROFILES: Final = 64
MAX_TAPS: Final = 16


@dataclass(frozen=True, slots=True)
class RelativeShape:
    """Sizes and rules of one such attention.

    Args:
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key and value heads, a divisor of num_heads.
        head_dim: Channels of a head.
        num_profiles: Biases that each head mixes for itself.
        extent: Distances that have a bias.
        window: Keys a query sees, its own included; 0 for all.
        taps: Inputs of a convolution.
        log_floor: Position from which queries grow; 0: they do not.
        log_alpha: How fast they grow.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_profiles: int
    extent: int
    window: int
    taps: int
    log_floor: float = 0.0
    log_alpha: float = 0.0

    @property
    def q_width(self) -> int:
        """Columns of the queries."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of the keys, and of the values."""
        return self.num_kv_heads * self.head_dim

    @property
    def row_width(self) -> int:
        """Columns of queries, keys, values and mixing weights side by side."""
        return self.q_width + 2 * self.kv_width + self.num_heads * self.num_profiles

    @property
    def state_dim(self) -> int:
        """Floats of the state of both convolutions."""
        return (self.taps - 1) * 2 * self.kv_width


def read_conv(
    weights: WeightReader, names: list[str], channels: int, taps: int, **place: int
) -> ShortConv:
    """Return one convolution over the channels of several tensors `NAME.conv1d.weight`, joined."""
    parts = [
        weights.array(f"{name}.conv1d.weight", (channels, 1, taps)).reshape(channels, taps)
        for name in names
    ]
    return ShortConv(np.ascontiguousarray(np.concatenate(parts)), **place)


class RelativeAttention:
    """q, k, v, r -> convolutions of k and v -> norm per head of q and k -> attention -> o.

    A score is q k / head_dim plus the bias of the distance, which r mixes from the profiles. The
    convolutions' state stands first in the layer's state.

    Args:
        weights: Where the tensors come from.
        prefix: Their common name ("model.layers.0.self_attn").
        shape: Sizes and rules.
        eps: Epsilon of the norms.
    """

    def __init__(
        self, weights: WeightReader, prefix: str, shape: RelativeShape, eps: float
    ) -> None:
        self._shape = shape
        self._eps = eps
        self._inputs = weights.linear(
            [f"{prefix}.{name}_proj" for name in "qkvr"],
            [
                shape.q_width,
                shape.kv_width,
                shape.kv_width,
                shape.num_heads * shape.num_profiles,
            ],
            shape.hidden_size,
        )
        self._output = weights.linear([f"{prefix}.o_proj"], [shape.hidden_size], shape.q_width)
        self._conv = read_conv(
            weights,
            [f"{prefix}.k_sconv", f"{prefix}.v_sconv"],
            shape.kv_width,
            shape.taps,
            column=shape.q_width,
        )
        self._q_norm = weights.vector(f"{prefix}.q_norm.weight", shape.head_dim)
        self._k_norm = weights.vector(f"{prefix}.k_norm.weight", shape.head_dim)
        profiles = weights.array(
            f"{prefix}.rel_logits_proj.proj", (shape.num_profiles, shape.extent)
        )
        self._options = AttentionOptions(
            window=shape.window,
            profiles=profiles,
            log_floor=shape.log_floor,
            log_alpha=shape.log_alpha,
        )

    def __call__(
        self, normed: Rows, batch: Batch, layer: int, inputs: Rows, heads: Rows, out: Rows
    ) -> None:
        """Set `out` (N, C) to the attention of `normed` (N, C).

        Args:
            normed: Input rows.
            batch: Sequence and position of each row.
            layer: Layer index in the caches, which receive the rows' keys, values and state.
            inputs: Scratch (N, row_width).
            heads: Scratch (N, num_heads * head_dim).
            out: The result.
        """
        shape = self._shape
        linear(normed, self._inputs, inputs)
        short_conv(inputs, self._conv, batch, layer)
        rms_norm_heads(inputs, 0, shape.num_heads, self._q_norm, self._eps)
        rms_norm_heads(inputs, shape.q_width, shape.num_kv_heads, self._k_norm, self._eps)
        store_kv(inputs, batch, layer, shape.q_width)
        scale = 1.0 / shape.head_dim
        attention(inputs, batch, layer, shape.num_heads, scale, heads, self._options)
        linear(heads, self._output, out)
