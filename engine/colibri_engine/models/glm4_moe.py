"""GLM-4.5, 4.6 and 4.7: grouped-query attention, leading dense layers, then mixtures.

    x += attention(rms(x));  x += dense(rms(x)) or sum_e w_e expert_e(rms(x)) + shared(rms(x))

Router: scores are sigmoids; a correction bias moves the selection but never the weights. Rotary
embedding turns the first part of each head (half of it unless the configuration says otherwise).
Source: GLM-4.5, arXiv 2508.06471; the router is DeepSeek-V3's, arXiv 2412.19437.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from colibri_engine.kernels import (
    Batch,
    Expert,
    KvCache,
    LayerLayout,
    Rope,
    mlp,
    rms_norm,
)
from colibri_engine.layers.attention import GqaAttention, GqaShape
from colibri_engine.layers.buffers import StepBuffers
from colibri_engine.layers.counted import CountedMixtures
from colibri_engine.layers.head import TokenEnds
from colibri_engine.layers.lookahead import link_mixtures
from colibri_engine.layers.noaux import NoauxShape, read_noaux_mixture
from colibri_engine.layers.rope import build_rope
from colibri_engine.models.base import (
    ConfigReader,
    Timers,
    check_experts_per_token,
    read_noaux_shape,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.layers.lookahead import Lookahead
    from colibri_engine.layers.mixture import Mixture
    from colibri_engine.layers.weights import WeightReader


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one checkpoint."""

    model_type: str
    vocab_size: int
    num_layers: int
    intermediate_size: int
    first_mixture_layer: int
    max_positions: int
    rms_norm_eps: float
    tied: bool
    qk_norm: bool
    attention: GqaShape
    mixture: NoauxShape

    @property
    def num_experts(self) -> int:
        """Routed experts per mixture layer."""
        return self.mixture.num_experts

    @property
    def num_experts_per_token(self) -> int:
        """Experts chosen per row."""
        return self.mixture.num_experts_per_token

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any]) -> Config:
        """Read `config.json`.

        Raises:
            UnsupportedModel: a key is missing, out of range, or asks for what is not implemented.
        """
        read = ConfigReader(config)
        hidden_size = read.integer("hidden_size")
        num_heads = read.integer("num_attention_heads")
        num_layers = read.integer("num_hidden_layers")
        return cls(
            model_type=read.model_type,
            vocab_size=read.integer("vocab_size"),
            num_layers=num_layers,
            intermediate_size=read.integer("intermediate_size"),
            first_mixture_layer=min(
                num_layers, read.integer("first_k_dense_replace", low=0, default=1)
            ),
            max_positions=read.integer("max_position_embeddings", low=0, default=0),
            rms_norm_eps=read.number("rms_norm_eps", default=1e-5),
            tied=read.boolean("tie_word_embeddings", default=False),
            qk_norm=read.boolean("use_qk_norm", default=False),
            attention=GqaShape(
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_kv_heads=read.integer("num_key_value_heads", default=num_heads),
                head_dim=read.integer("head_dim", default=hidden_size // num_heads),
                qkv_bias=read.boolean("attention_bias", default=False),
            ),
            mixture=read_noaux_shape(read),
        )

    def with_experts_per_token(self, count: int) -> Config:
        """Return the same model choosing another number of experts: faster or slower, not equal.

        Raises:
            UnsupportedModel: there are not that many.
        """
        count = check_experts_per_token(count, self.mixture.num_experts)
        return replace(self, mixture=replace(self.mixture, num_experts_per_token=count))


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
            weights,
            f"{prefix}.self_attn",
            config.attention,
            rope,
            config.rms_norm_eps if config.qk_norm else None,
        )
        self.post_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", size)
        self.dense: Expert | None = None
        self.ahead: Lookahead | None = None
        self.mixture: Mixture | None = None
        if index < config.first_mixture_layer:
            self.dense = weights.expert(f"{prefix}.mlp", size, config.intermediate_size)
        else:
            self.mixture = read_noaux_mixture(weights, f"{prefix}.mlp", size, config.mixture)


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
        rope = build_rope(source, shape.head_dim, default_theta=10_000.0, default_partial=0.5)
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
