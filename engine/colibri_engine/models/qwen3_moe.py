"""Qwen3 mixtures: grouped-query attention with a norm on each q and k head, softmax router.

    x += attention(rms(x));  x += dense(rms(x)) or sum_e w_e expert_e(rms(x))

A layer is a mixture when `mlp_only_layers` does not list it and its number, counted from 1, is a
multiple of `decoder_sparse_step`: all of them in the published checkpoints. Router: a softmax
over all experts; the weights of the chosen ones are divided by their sum where `norm_topk_prob`
is set.
Source: Qwen3 technical report, arXiv 2505.09388.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from colibri_engine.kernels import Batch, Expert, KvCache, LayerLayout, Rope, Router, mlp, rms_norm
from colibri_engine.layers.attention import GqaAttention, GqaShape
from colibri_engine.layers.buffers import StepBuffers
from colibri_engine.layers.counted import CountedMixtures
from colibri_engine.layers.head import TokenEnds
from colibri_engine.layers.lookahead import link_mixtures
from colibri_engine.layers.mixture import Mixture
from colibri_engine.layers.rope import build_rope
from colibri_engine.models.base import ConfigReader, Timers, check_experts_per_token

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.layers.lookahead import Lookahead
    from colibri_engine.layers.weights import WeightReader


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one checkpoint."""

    model_type: str
    vocab_size: int
    num_layers: int
    intermediate_size: int
    mixture_layers: frozenset[int]
    expert_width: int
    num_experts: int
    num_experts_per_token: int
    normalize: bool
    max_positions: int
    rms_norm_eps: float
    tied: bool
    attention: GqaShape

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any]) -> Config:
        """Read `config.json`.

        Raises:
            UnsupportedModel: a key is missing, out of range, or asks for what is not implemented.
        """
        read = ConfigReader(config)
        read.require("hidden_act", ["silu"], default="silu")
        read.require("use_sliding_window", [False], default=False)
        hidden_size = read.integer("hidden_size")
        num_heads = read.integer("num_attention_heads")
        num_experts = read.integer(read.spelling("num_experts", "num_local_experts"), default=128)
        has_bias = read.boolean("attention_bias", default=False)
        return cls(
            model_type=read.model_type,
            vocab_size=read.integer("vocab_size"),
            num_layers=read.integer("num_hidden_layers"),
            intermediate_size=read.integer("intermediate_size", default=6144),
            mixture_layers=_mixture_layers(read),
            expert_width=read.integer("moe_intermediate_size"),
            num_experts=num_experts,
            num_experts_per_token=check_experts_per_token(
                read.integer("num_experts_per_tok", default=8), num_experts
            ),
            normalize=read.boolean("norm_topk_prob", default=False),
            max_positions=read.integer("max_position_embeddings", low=0, default=0),
            rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
            tied=read.boolean("tie_word_embeddings", default=False),
            attention=GqaShape(
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_kv_heads=read.integer("num_key_value_heads", default=num_heads),
                head_dim=read.integer("head_dim", default=hidden_size // num_heads),
                qkv_bias=has_bias,
                output_bias=has_bias,
            ),
        )

    def with_experts_per_token(self, count: int) -> Config:
        """Return the same model choosing another number of experts: faster or slower, not equal.

        Raises:
            UnsupportedModel: there are not that many.
        """
        count = check_experts_per_token(count, self.num_experts)
        return replace(self, num_experts_per_token=count)


def _mixture_layers(read: ConfigReader) -> frozenset[int]:
    num_layers = read.integer("num_hidden_layers")
    step = read.integer("decoder_sparse_step", default=1)
    dense = read.integers("mlp_only_layers", low=0, high=num_layers - 1)
    return frozenset(i for i in range(num_layers) if (i + 1) % step == 0 and i not in dense)


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
        self.attention = GqaAttention(
            weights, f"{prefix}.self_attn", config.attention, rope, config.rms_norm_eps
        )
        self.post_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", size)
        self.dense: Expert | None = None
        self.ahead: Lookahead | None = None
        self.mixture: Mixture | None = None
        if index in config.mixture_layers:
            self.mixture = _read_mixture(weights, f"{prefix}.mlp", config)
        else:
            self.dense = weights.expert(f"{prefix}.mlp", size, config.intermediate_size)


def _read_mixture(weights: WeightReader, prefix: str, config: Config) -> Mixture:
    E, size = config.num_experts, config.attention.hidden_size
    router = Router(
        config.num_experts_per_token,
        scoring="softmax",
        normalize=config.normalize,
        scale=1.0,
        bias=None,
    )
    experts = weights.experts(f"{prefix}.experts", E, size, config.expert_width)
    return Mixture(weights.linear([f"{prefix}.gate"], [E], size), router, experts, None)


class Model(CountedMixtures[Config, _Layer]):
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
                "router": config.num_experts,
            }
        )
        self._timers = Timers(weights.counters)
        link_mixtures(self._layers)
        self.resident_bytes = weights.nbytes
        self.expert_bytes = weights.expert_nbytes

    @property
    def timers(self) -> Mapping[str, float]:
        """Seconds spent so far, by part."""
        return self._timers.as_dict()

    def make_cache(self) -> KvCache:
        """Return an empty cache for one sequence."""
        return KvCache(cache_layouts(self.config, ()))

    def forward(
        self, ids: npt.NDArray[np.int32], batch: Batch, logit_rows: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Run one step; see `models.base.Model.forward`."""
        buffers = self._buffers
        buffers.ensure(len(ids))
        x, normed, router = buffers["x"], buffers["normed"], buffers["router"]
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
            timers.attention += middle - start
            if layer.dense is not None:
                if layer.ahead is not None:
                    layer.ahead.start(normed)
                mlp(normed, layer.dense, x)
                timers.dense += perf_counter() - middle
            elif layer.mixture is not None:
                layer.mixture(normed, router, x)
                timers.experts += perf_counter() - middle
        start = perf_counter()
        logits = self._ends.logits(x, logit_rows)  # (R, V)
        timers.lm_head += perf_counter() - start
        batch.commit()
        return logits
