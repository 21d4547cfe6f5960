"""The two halves of a latent projection, one matrix per head, as latent attention uses them.

`kv_b_proj` makes keys and values of all heads from a latent: head h has rows W_K (nope, R), then
rows W_V (value, R). Neither keys nor values are ever made: a query goes into the latents' space by
W_K^T, and what it attended to comes out by W_V. A transposed matrix of grouped integers has its
scales at the inputs; it keeps its codes as they are and multiplies the inputs instead, so the half
costs no more memory than in the file. Minimums and rotated matrices are unpacked to float32.

Source: DeepSeek-V2, arXiv 2405.04434, section 2.1 (absorbed matrices).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.kernels import HeadLinear, Matrix
from colibri_engine.layers.weights import pack
from colibri_engine.quant import fp8_blocks
from colibri_engine.quant.base import (
    FloatTensor,
    Fp8Tensor,
    IntTensor,
    RowTensor,
    StoredTensor,
    stored_rows,
)
from colibri_engine.quant.tiles import PackedTensor

if TYPE_CHECKING:
    from colibri_engine.layers.weights import WeightReader

_INPUT_PAD: Final = 64
_TILE: Final = 16  # outputs whose inputs share scales come in multiples of it


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Sizes of one head of a latent projection.

    Args:
        num_heads: Heads.
        key_dim: Rows of a head that make its key (without the rotated part).
        value_dim: Rows that make its value.
        latent_dim: Channels of a latent, R.
    """

    num_heads: int
    key_dim: int
    value_dim: int
    latent_dim: int


def read_latent_heads(
    weights: WeightReader, prefix: str, sizes: HeadSizes
) -> tuple[HeadLinear, HeadLinear]:
    """Return W_K^T (key_dim -> R) and W_V (R -> value_dim) of every head.

    Reads `prefix.kv_b_proj`, or, where a file keeps the halves apart, `prefix.k_b_proj`, already
    transposed (heads * R, key_dim), and `prefix.v_b_proj` (heads * value_dim, R).
    """
    num_heads, key_dim, value_dim = sizes.num_heads, sizes.key_dim, sizes.value_dim
    if weights.has(f"{prefix}.k_b_proj.weight"):
        keys = weights.stored(f"{prefix}.k_b_proj.weight", (num_heads * sizes.latent_dim, key_dim))
        values = weights.stored(
            f"{prefix}.v_b_proj.weight", (num_heads * value_dim, sizes.latent_dim)
        )
        return (
            weights.head_linear([pack(head) for head in _heads(keys, num_heads)]),
            weights.head_linear([pack(head) for head in _heads(values, num_heads)]),
        )
    both = weights.stored(
        f"{prefix}.kv_b_proj.weight", (num_heads * (key_dim + value_dim), sizes.latent_dim)
    )
    heads = _heads(both, num_heads)
    return (
        _transposed(weights, [_part(head, 0, key_dim) for head in heads]),
        weights.head_linear([pack(_part(head, key_dim, value_dim)) for head in heads]),
    )


def _transposed(weights: WeightReader, heads: list[RowTensor]) -> HeadLinear:
    """The layer y_h = W_h^T x_h of stored matrices W_h (O, I)."""
    codes = [head for head in heads if isinstance(head, IntTensor)]
    if codes and all(head.mins is None and head.group % _TILE == 0 for head in codes):
        scales = np.array([head.scale_values.T for head in codes], np.float32, order="C")
        matrices = [_transposed_codes(head) for head in codes]
        return weights.head_linear(matrices, scales, codes[0].group)  # scales (H, groups, O)
    return weights.head_linear([pack(_transposed_floats(head)) for head in heads])


def _transposed_floats(head: RowTensor) -> RowTensor:
    if isinstance(head, Fp8Tensor):
        return fp8_blocks.transposed(head)
    return FloatTensor((head.unpack() if isinstance(head, IntTensor) else head.array).T)


def _transposed_codes(head: IntTensor) -> Matrix:
    """The codes of W^T with scale 1: their own scales belong to its inputs."""
    codes = np.ascontiguousarray(head.codes.T)  # (I, O)
    group = -(-codes.shape[1] // _INPUT_PAD) * _INPUT_PAD
    ones = np.ones((codes.shape[0], 1), np.float16)
    return Matrix.from_codes(
        codes, ones, head.zero, None, bits=head.bits, group=group, levels=head.levels
    )


def _heads(stored: StoredTensor, num_heads: int) -> list[RowTensor]:
    """The rows of every head; those of a rotated matrix as float32."""
    rows = stored.to_codes() if isinstance(stored, PackedTensor) else stored
    if isinstance(rows, IntTensor) and rows.rotated:
        rows = FloatTensor(rows.unpack())
    size = rows.shape[0] // num_heads
    return [_part(rows, head * size, size) for head in range(num_heads)]


def _part(rows: RowTensor, first: int, count: int) -> RowTensor:
    part = stored_rows(rows, first, count)
    assert not isinstance(part, PackedTensor)
    return part
