"""Llama 2 and 3, SmolLM2: dense decoder with grouped-query attention and a gated MLP.

    x += attention(rms(x));  x += mlp(rms(x));  logits = head rms(x)

Source: Llama 2, arXiv 2307.09288; Llama 3, arXiv 2407.21783.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from colibri_engine.kernels import Batch, KvCache, LayerLayout, Rope, mlp, rms_norm
from colibri_engine.layers.attention import GqaAttention, GqaShape
from colibri_engine.layers.buffers import StepBuffers
from colibri_engine.layers.head import TokenEnds
from colibri_engine.layers.rope import build_rope
from colibri_engine.models.base import ConfigReader, Timers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.layers.weights import WeightReader


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one checkpoint."""

    model_type: str
    vocab_size: int
    num_layers: int
    intermediate_size: int
    max_positions: int
    rms_norm_eps: float
    tied: bool
    mlp_bias: bool
    attention: GqaShape
    num_experts: int = 0
    num_experts_per_token: int = 0

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any]) -> Config:
        """Read `config.json`.

        Raises:
            UnsupportedModel: a key is missing, out of range, or asks for what is not implemented.
        """
        read = ConfigReader(config)
        read.require("hidden_act", ["silu"], default="silu")
        read.require("pretraining_tp", [1], default=1)
        hidden_size = read.integer("hidden_size")
        num_heads = read.integer("num_attention_heads")
        has_bias = read.boolean("attention_bias", default=False)
        return cls(
            model_type=read.model_type,
            vocab_size=read.integer("vocab_size"),
            num_layers=read.integer("num_hidden_layers"),
            intermediate_size=read.integer("intermediate_size"),
            max_positions=read.integer("max_position_embeddings", low=0, default=0),
            rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
            tied=read.boolean("tie_word_embeddings", default=False),
            mlp_bias=read.boolean("mlp_bias", default=False),
            attention=GqaShape(
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_kv_heads=read.integer("num_key_value_heads", default=num_heads),
                head_dim=read.integer("head_dim", default=hidden_size // num_heads),
                qkv_bias=has_bias,
                output_bias=has_bias,
            ),
        )


def cache_layouts(config: Config, names: Collection[str]) -> list[LayerLayout]:
    """Return what each layer keeps of a sequence; see `models.registry.cache_layouts`."""
    del names
    shape = config.attention
    layout = LayerLayout(num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim)
    return [layout] * config.num_layers


class _Layer:
    def __init__(self, weights: WeightReader, index: int, config: Config, rope: Rope) -> None:
        prefix = f"model.layers.{index}"
        size = config.attention.hidden_size
        self.input_norm = weights.vector(f"{prefix}.input_layernorm.weight", size)
        self.attention = GqaAttention(weights, f"{prefix}.self_attn", config.attention, rope)
        self.post_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", size)
        self.mlp = weights.expert(
            f"{prefix}.mlp", size, config.intermediate_size, bias=config.mlp_bias
        )


class Model:
    """The loaded weights and the forward pass.

    Args:
        config: Sizes.
        source: Keys of `config.json`, for the rotary rules.
        weights: Where the tensors come from.
    """

    def __init__(self, config: Config, source: Mapping[str, Any], weights: WeightReader) -> None:
        self.config = config
        shape = config.attention
        rope = build_rope(source, shape.head_dim, default_theta=10_000.0)
        self._ends = TokenEnds(
            weights,
            config.vocab_size,
            shape.hidden_size,
            tied=config.tied,
            eps=config.rms_norm_eps,
        )
        self._layers = [_Layer(weights, i, config, rope) for i in range(config.num_layers)]
        self._buffers = StepBuffers(
            {
                "x": shape.hidden_size,
                "normed": shape.hidden_size,
                "qkv": shape.qkv_width,
                "heads": shape.num_heads * shape.head_dim,
            }
        )
        self._timers = Timers()
        self.resident_bytes = weights.nbytes
        self.expert_bytes = 0

    @property
    def timers(self) -> Mapping[str, float]:
        """Seconds spent so far, by part."""
        return self._timers.as_dict()

    @property
    def routing_counts(self) -> None:
        """A dense model routes nothing."""
        return

    @property
    def mixture_layers(self) -> list[int]:
        """None: no layer has experts."""
        return []

    def uncount(self, rows: Sequence[int]) -> None:
        """A dense model counts nothing."""

    def make_cache(self) -> KvCache:
        """Return an empty cache for one sequence."""
        return KvCache(cache_layouts(self.config, ()))

    def forward(
        self, ids: npt.NDArray[np.int32], batch: Batch, logit_rows: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Run one step; see `models.base.Model.forward`."""
        buffers = self._buffers
        buffers.ensure(len(ids))
        x, normed = buffers["x"], buffers["normed"]
        qkv, heads = buffers["qkv"], buffers["heads"]
        eps = self.config.rms_norm_eps
        timers = self._timers
        self._ends.embed(ids, x)  # (N, C)
        for index, layer in enumerate(self._layers):
            start = perf_counter()
            rms_norm(x, layer.input_norm, eps, normed)
            layer.attention(normed, batch, index, qkv, heads, x)
            middle = perf_counter()
            rms_norm(x, layer.post_norm, eps, normed)
            mlp(normed, layer.mlp, x)
            timers.attention += middle - start
            timers.dense += perf_counter() - middle
        start = perf_counter()
        logits = self._ends.logits(x, logit_rows)  # (R, V)
        timers.lm_head += perf_counter() - start
        batch.commit()
        return logits
