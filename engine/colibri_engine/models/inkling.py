"""Inkling, the text part: attention by content and distance, short convolutions, mixtures.

    x = rms(embedding)
    x += conv(attention(rms(x)));  x += conv(dense(rms(x)) or mixture(rms(x)))
    logits = head(rms(x) / divisor)

No rotation: a bias by distance takes its place. Most layers see a window, the others all keys, with
queries that grow with the logarithm of their position. conv(u) = u + a depthwise causal convolution
of u. The router chooses by sigmoids plus a correction; the shared experts are its last rows and are
weighed together with the chosen ones. Towers for images and sound, and the draft layers, are left
out.
Source: the published checkpoints and their configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import (
    Batch,
    Expert,
    KvCache,
    LayerLayout,
    Router,
    Rows,
    mlp,
    rms_norm,
    short_conv,
)
from colibri_engine.layers.attention import check_heads
from colibri_engine.layers.buffers import StepBuffers
from colibri_engine.layers.counted import CountedMixtures
from colibri_engine.layers.head import HeadRules, TokenEnds
from colibri_engine.layers.lookahead import link_mixtures
from colibri_engine.layers.mixture import Mixture
from colibri_engine.layers.relative_attention import (
    MAX_PROFILES,
    MAX_TAPS,
    RelativeAttention,
    RelativeShape,
    read_conv,
)
from colibri_engine.models.base import ConfigReader, Timers, check_experts_per_token

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from colibri_engine.layers.lookahead import Lookahead
    from colibri_engine.layers.weights import WeightReader

UNUSED_TENSORS: Final = {
    r"model\.(visual|vision_tower)\.": "the vision tower",
    r"model\.(audio|audio_tower)\.": "the audio tower",
    r"model\.mtp\.": "the draft layers",
}

_SLIDING: Final = "hybrid_sliding"
_GLOBAL: Final = "hybrid"
_DENSE: Final = "dense"
_SPARSE: Final = "sparse"

# What the architecture can be told to leave out, and never is.
_FIXED: Final[Mapping[str, object]] = {
    "hidden_act": "silu",
    "gate_activation": "sigmoid",
    "shared_expert_sink": True,
    "use_gate_bias": True,
    "norm_after_topk": True,
    "use_global_scale": True,
    "use_sconv": True,
    "use_embed_norm": True,
    "final_logit_softcapping": None,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one checkpoint."""

    model_type: str
    vocab_size: int  # tokens; the files may hold more rows
    padded_vocab_size: int
    hidden_size: int
    attention: tuple[RelativeShape, ...]  # per layer
    dense_layers: tuple[bool, ...]
    dense_width: int
    expert_width: int
    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    route_scale: float
    logit_divisor: float
    max_positions: int
    rms_norm_eps: float

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.attention)

    @classmethod
    def from_checkpoint(cls, config: Mapping[str, Any]) -> Config:
        """Read `config.json`, in the published spelling or that of transformers.

        Raises:
            UnsupportedModel: a key is missing, out of range, or asks for what is not implemented.
        """
        text = config.get("text_config", config)
        if not isinstance(text, Mapping):
            raise UnsupportedModel(
                "config key text_config is not an object", hint="repair the configuration"
            )
        read = ConfigReader({**text, "model_type": config.get("model_type")})
        for key, value in _FIXED.items():
            read.require(key, [value], default=value)
        num_layers = read.integer("num_hidden_layers")
        padded = read.integer("vocab_size")
        num_experts = read.integer("n_routed_experts")
        dense_width, expert_width = _widths(read, text)
        kinds = read.names("layer_types", (_SLIDING, _GLOBAL), num_layers)
        if kinds is None:
            slides = _local_layers(text, num_layers)
        else:
            slides = tuple(kind == _SLIDING for kind in kinds)
        first = read.integer("dense_mlp_idx", low=0, default=0)
        blocks = read.names("mlp_layer_types", (_DENSE, _SPARSE), num_layers)
        if blocks is None:
            blocks = [_DENSE if i < first else _SPARSE for i in range(num_layers)]
        local, other = _sliding_shape(read), _global_shape(read, text)
        return cls(
            model_type="inkling",
            vocab_size=min(padded, read.integer("unpadded_vocab_size", default=padded)),
            padded_vocab_size=padded,
            hidden_size=read.integer("hidden_size"),
            attention=tuple(local if slide else other for slide in slides),
            dense_layers=tuple(block == _DENSE for block in blocks),
            dense_width=dense_width,
            expert_width=expert_width,
            num_experts=num_experts,
            num_experts_per_token=check_experts_per_token(
                read.integer("num_experts_per_tok"), num_experts
            ),
            num_shared_experts=read.integer("n_shared_experts"),
            route_scale=read.number("route_scale", default=8.0),
            logit_divisor=read.number("logits_mup_width_multiplier", default=24.0),
            max_positions=read.integer(
                read.spelling("max_position_embeddings", "model_max_length"), low=0, default=0
            ),
            rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
        )

    def with_experts_per_token(self, count: int) -> Config:
        """Return the same model choosing another number of experts: faster or slower, not equal.

        Raises:
            UnsupportedModel: there are not that many.
        """
        return replace(self, num_experts_per_token=check_experts_per_token(count, self.num_experts))


def _widths(read: ConfigReader, text: Mapping[str, Any]) -> tuple[int, int]:
    """Return the widths of dense layers and of experts.

    Published files call the experts' `intermediate_size`, beside `dense_intermediate_size`; others
    have `intermediate_size` for dense layers, beside `moe_intermediate_size`.
    """
    if text.get("dense_intermediate_size") is not None:
        expert = read.integer(read.spelling("intermediate_size", "moe_intermediate_size"))
        return read.integer("dense_intermediate_size"), expert
    return read.integer("intermediate_size"), read.integer("moe_intermediate_size")


def _local_layers(text: Mapping[str, Any], num_layers: int) -> tuple[bool, ...]:
    """Layers that see a window: those listed, else all but every sixth."""
    if text.get("local_layer_ids") is None:
        return tuple((i + 1) % 6 != 0 for i in range(num_layers))
    listed = ConfigReader(text).integers("local_layer_ids", low=0, high=num_layers - 1)
    return tuple(i in listed for i in range(num_layers))


def _sliding_shape(read: ConfigReader) -> RelativeShape:
    window = read.integer(read.spelling("sliding_window_size", "sliding_window"))
    return _shape(read, "swa_", window, window)


def _global_shape(read: ConfigReader, text: Mapping[str, Any]) -> RelativeShape:
    shape = _shape(read, "", 0, read.integer("rel_extent"))
    if text.get("log_scaling_n_floor") is None:
        return shape
    return replace(
        shape,
        log_floor=read.number("log_scaling_n_floor", default=1.0),
        log_alpha=read.number("log_scaling_alpha", default=0.1),
    )


def _shape(read: ConfigReader, prefix: str, window: int, extent: int) -> RelativeShape:
    shape = RelativeShape(
        hidden_size=read.integer("hidden_size"),
        num_heads=read.integer(f"{prefix}num_attention_heads"),
        num_kv_heads=read.integer(f"{prefix}num_key_value_heads"),
        head_dim=read.integer(f"{prefix}head_dim"),
        num_profiles=read.integer("d_rel", high=MAX_PROFILES),
        extent=extent,
        window=window,
        taps=read.integer(
            read.spelling("sconv_kernel_size", "conv_kernel_size"), high=MAX_TAPS, default=4
        ),
    )
    check_heads(shape.num_heads, shape.num_kv_heads, shape.head_dim, prefix)
    return shape


def cache_layouts(config: Config, names: Collection[str]) -> list[LayerLayout]:
    """Return what each layer keeps of a sequence; see `models.registry.cache_layouts`.

    The state is that of four convolutions: of keys, values, and what both branches add.
    """
    del names
    return [
        LayerLayout(
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            state_dim=shape.state_dim + 2 * (shape.taps - 1) * config.hidden_size,
        )
        for shape in config.attention
    ]


class _Layer:
    def __init__(self, weights: WeightReader, index: int, config: Config) -> None:
        prefix = f"model.layers.{index}"
        size, shape = config.hidden_size, config.attention[index]
        self.input_norm = weights.vector(f"{prefix}.input_layernorm.weight", size)
        self.attention = RelativeAttention(
            weights, f"{prefix}.self_attn", shape, config.rms_norm_eps
        )
        self.post_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", size)
        offset = shape.state_dim
        self.attention_conv = read_conv(
            weights, [f"{prefix}.attn_sconv"], size, shape.taps, state_offset=offset
        )
        offset += self.attention_conv.state_dim
        self.mlp_conv = read_conv(
            weights, [f"{prefix}.mlp_sconv"], size, shape.taps, state_offset=offset
        )
        self.dense: Expert | None = None
        self.ahead: Lookahead | None = None
        self.mixture: Mixture | None = None
        if config.dense_layers[index]:
            self.dense = weights.expert(f"{prefix}.mlp", size, config.dense_width)
            self.dense_scale = weights.values(f"{prefix}.mlp.global_scale", 1)
        else:
            self.mixture = _read_mixture(weights, f"{prefix}.mlp", config)

    def feed_forward(self, normed: Rows, router: Rows, out: Rows) -> None:
        """Set `out` (N, C) to the dense block or the mixture of `normed` (N, C)."""
        if self.dense is not None:
            if self.ahead is not None:
                self.ahead.start(normed)
            mlp(normed, self.dense, out, False)
            np.multiply(out.array, self.dense_scale, out=out.array)
        elif self.mixture is not None:
            out.rows = normed.rows
            out.array.fill(0.0)
            self.mixture(normed, router, out)


def _read_mixture(weights: WeightReader, prefix: str, config: Config) -> Mixture:
    size, width = config.hidden_size, config.expert_width
    num_logits = config.num_experts + config.num_shared_experts
    scale = weights.values(f"{prefix}.gate.global_scale", 1)
    router = Router(
        config.num_experts_per_token,
        scoring="sigmoid",
        normalize=True,
        scale=config.route_scale * float(scale[0]),
        bias=weights.values(f"{prefix}.gate.e_score_correction_bias", config.num_experts),
        num_shared=config.num_shared_experts,
    )
    gate = weights.linear([f"{prefix}.gate"], [num_logits], size)
    shared = [
        weights.expert(f"{prefix}.shared_experts.{i}", size, width)
        for i in range(config.num_shared_experts)
    ]
    experts = weights.experts(f"{prefix}.experts", config.num_experts, size, width)
    return Mixture(gate, router, experts.followed_by(shared), None, config.num_experts)


class Model(CountedMixtures[Config, _Layer]):
    """The loaded weights and the forward pass.

    Args:
        config: Sizes.
        source: Keys of `config.json`; not used, there is nothing to rotate.
        weights: Where the tensors come from.
    """

    def __init__(self, config: Config, source: Mapping[str, Any], weights: WeightReader) -> None:
        del source
        self.config = config
        self._embed_norm = weights.vector(
            "model.embed_tokens.embed_norm.weight", config.hidden_size
        )
        self._ends = TokenEnds(
            weights,
            config.vocab_size,
            config.hidden_size,
            tied=False,
            eps=config.rms_norm_eps,
            rules=HeadRules(config.logit_divisor, config.padded_vocab_size),
        )
        self._layers = [_Layer(weights, i, config) for i in range(config.num_layers)]
        size = config.hidden_size
        widths = {"x": size, "normed": size, "branch": size}
        widths["router"] = config.num_experts + config.num_shared_experts
        for shape in set(config.attention):
            widths[f"inputs {shape.row_width}"] = shape.row_width
            widths[f"heads {shape.q_width}"] = shape.q_width
        self._buffers = StepBuffers(widths)
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
        x, normed, branch = buffers["x"], buffers["normed"], buffers["branch"]
        eps = self.config.rms_norm_eps
        timers = self._timers
        self._ends.embed(ids, x)  # (N, C)
        rms_norm(x, self._embed_norm, eps, x)
        for index, layer in enumerate(self._layers):
            shape = self.config.attention[index]
            inputs, heads = buffers[f"inputs {shape.row_width}"], buffers[f"heads {shape.q_width}"]
            start = perf_counter()
            rms_norm(x, layer.input_norm, eps, normed)
            layer.attention(normed, batch, index, inputs, heads, branch)
            short_conv(branch, layer.attention_conv, batch, index, x)
            middle = perf_counter()
            rms_norm(x, layer.post_norm, eps, normed)
            layer.feed_forward(normed, buffers["router"], branch)
            short_conv(branch, layer.mlp_conv, batch, index, x)
            timers.attention += middle - start
            if layer.dense is not None:
                timers.dense += perf_counter() - middle
            else:
                timers.experts += perf_counter() - middle
        start = perf_counter()
        logits = self._ends.logits(x, logit_rows)  # (R, V)
        timers.lm_head += perf_counter() - start
        batch.commit()
        return logits
