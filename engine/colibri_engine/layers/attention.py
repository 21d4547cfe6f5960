"""Grouped-query attention over the rows of one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import (
    AttentionOptions,
    Batch,
    Linear,
    Rope,
    Rows,
    Vector,
    attention,
    linear,
    rms_norm_heads,
    rope_store,
)

if TYPE_CHECKING:
    from colibri_engine.layers.weights import WeightReader


# What the cache takes: whole lanes of a kernel, and a bound for its scratch space.
_LANES: Final = 16
_MAX_HEAD_DIM: Final = 256


def check_heads(num_heads: int, num_kv_heads: int, head_dim: int, prefix: str = "") -> None:
    """Refuse heads that the kernels do not take.

    Args:
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Channels of a head.
        prefix: What the published names of the three begin with.

    Raises:
        UnsupportedModel: naming the values.
    """
    problem = None
    if num_heads % num_kv_heads:
        problem = (
            f"{prefix}num_attention_heads {num_heads} is not a multiple of "
            f"{prefix}num_key_value_heads {num_kv_heads}"
        )
    elif head_dim % _LANES or not 0 < head_dim <= _MAX_HEAD_DIM:
        problem = f"{prefix}head_dim {head_dim} is not a multiple of {_LANES} up to {_MAX_HEAD_DIM}"
    if problem is not None:
        raise UnsupportedModel(
            problem, hint="the configuration is damaged, or of a kind not supported here"
        )


@dataclass(frozen=True, slots=True)
class GqaShape:
    """Sizes of one grouped-query attention.

    Args:
        hidden_size: Width of the residual stream.
        num_heads: Query heads.
        num_kv_heads: Key and value heads, a divisor of num_heads.
        head_dim: Channels of a head.
        qkv_bias: Whether q, k and v have a bias.
        output_bias: Whether o has one.
        joint_norm: Whether the norms on q and k span all heads at once instead of each head.
        clip: Largest magnitude of q, k and v, applied after the norms; None for no limit.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    joint_norm: bool = False
    clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that the kernels do not take, by their published names."""
        check_heads(self.num_heads, self.num_kv_heads, self.head_dim)

    @property
    def qkv_width(self) -> int:
        """Columns of q, k and v side by side."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


class GqaAttention:
    """q, k, v -> optional norms -> optional limit -> rotary embedding -> attention -> o.

    Args:
        weights: Where the tensors come from.
        prefix: Their common name ("model.layers.0.self_attn").
        shape: Sizes.
        rope: Rotary embedding, shared by all layers.
        qk_norm_eps: Epsilon of the norms on q and k; None where the model has none.
        options: A window, sinks and the like; None for plain attention.
    """

    def __init__(
        self,
        weights: WeightReader,
        prefix: str,
        shape: GqaShape,
        rope: Rope,
        qk_norm_eps: float | None = None,
        options: AttentionOptions | None = None,
    ) -> None:
        self._shape = shape
        self._rope = rope
        self._options = options
        self._scale = shape.head_dim**-0.5
        q_width = shape.num_heads * shape.head_dim
        kv_width = shape.num_kv_heads * shape.head_dim
        self._qkv: Linear = weights.linear(
            [f"{prefix}.{name}_proj" for name in "qkv"],
            [q_width, kv_width, kv_width],
            shape.hidden_size,
            bias=shape.qkv_bias,
        )
        self._output: Linear = weights.linear(
            [f"{prefix}.o_proj"], [shape.hidden_size], q_width, bias=shape.output_bias
        )
        self._qk_norm_eps = qk_norm_eps
        self._norms: tuple[Vector, Vector] | None = None
        if qk_norm_eps is not None:
            q_norm_width, k_norm_width = (
                (q_width, kv_width) if shape.joint_norm else (shape.head_dim, shape.head_dim)
            )
            self._norms = (
                weights.vector(f"{prefix}.q_norm.weight", q_norm_width),
                weights.vector(f"{prefix}.k_norm.weight", k_norm_width),
            )

    def __call__(
        self, normed: Rows, batch: Batch, layer: int, qkv: Rows, heads: Rows, out: Rows
    ) -> None:
        """Add the attention of `normed` (N, C) to `out` (N, C).

        Args:
            normed: Input rows.
            batch: Sequence and position of each row.
            layer: Layer index in the caches, which receive the rows' keys and values.
            qkv: Scratch (N, qkv_width).
            heads: Scratch (N, num_heads * head_dim).
            out: The residual stream.
        """
        shape = self._shape
        linear(normed, self._qkv, qkv)
        if self._norms is not None and self._qk_norm_eps is not None:
            q_norm, k_norm = self._norms
            k_offset = shape.num_heads * shape.head_dim
            q_parts = 1 if shape.joint_norm else shape.num_heads
            k_parts = 1 if shape.joint_norm else shape.num_kv_heads
            rms_norm_heads(qkv, 0, q_parts, q_norm, self._qk_norm_eps)
            rms_norm_heads(qkv, k_offset, k_parts, k_norm, self._qk_norm_eps)
        if shape.clip is not None:
            np.clip(qkv.array, -shape.clip, shape.clip, out=qkv.array)
        rope_store(qkv, batch, layer, self._rope, shape.num_heads)
        attention(qkv, batch, layer, shape.num_heads, self._scale, heads, self._options)
        linear(heads, self._output, out, True)
