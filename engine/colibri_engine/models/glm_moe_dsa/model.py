"""GLM-5, 5.1 and 5.2: latent attention that looks at chosen positions only, and mixtures.

    x += attention(rms(x); S);  x += dense(rms(x)) or sum_e w_e expert_e(rms(x)) + shared(rms(x))

A full layer's indexer chooses S, at most `index_topk` positions; the shared layers behind it use
the same S. With no more positions than that the model is densely attending. A further layer, where
the checkpoint has one, guesses the token after the next (MTP):

    h'_p = layer( eh_proj [ rms(emb(t_{p+1})) ; rms(h_p) ] ),  logits = lm_head rms(h'_p)

with h_p after the final norm. It is a full, sparse layer with experts and a cache of its own.
Source: GLM-5, arXiv 2602.15763; DeepSeek-V3.2 (sparse attention); sharing, arXiv 2603.12201; the
draft layer is DeepSeek-V3's, arXiv 2412.19437, section 2.2.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import (
    Batch,
    Expert,
    KvCache,
    LayerLayout,
    Rope,
    Selection,
    linear,
    mlp,
    rms_norm,
)
from colibri_engine.layers.buffers import StepBuffers
from colibri_engine.layers.counted import CountedMixtures
from colibri_engine.layers.head import TokenEnds
from colibri_engine.layers.indexer import INDEXER_TENSORS
from colibri_engine.layers.lookahead import link_mixtures
from colibri_engine.layers.mla import MlaAttention, SparseRule
from colibri_engine.layers.noaux import read_noaux_mixture
from colibri_engine.layers.rope import build_rope, yarn_score_scale
from colibri_engine.models.base import Draft, DraftStep, Timers
from colibri_engine.models.glm_moe_dsa.config import Config

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.layers.indexer import IndexerShape
    from colibri_engine.layers.lookahead import Lookahead
    from colibri_engine.layers.mixture import Mixture
    from colibri_engine.layers.weights import WeightReader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _AttentionRule:
    """What the attention of all layers has in common; no indexer where the file has none."""

    rope: Rope
    scale: float
    sparse: SparseRule | None


class _Layer:
    """One decoder layer: attention, then a dense block or a mixture."""

    def __init__(
        self,
        weights: WeightReader,
        prefix: str,
        config: Config,
        rule: _AttentionRule,
        *,
        is_full: bool,
        is_mixture: bool,
    ) -> None:
        size = config.attention.hidden_size
        self.input_norm = weights.vector(f"{prefix}.input_layernorm.weight", size)
        self.attention = MlaAttention(
            weights,
            f"{prefix}.self_attn",
            config.attention,
            rule.rope,
            rule.scale,
            rule.sparse if is_full else None,
        )
        if not is_full:  # some files carry indexers everywhere
            for name in INDEXER_TENSORS:
                weights.skip(f"{prefix}.self_attn.{name}")
        self.post_norm = weights.vector(f"{prefix}.post_attention_layernorm.weight", size)
        self.dense: Expert | None = None
        self.ahead: Lookahead | None = None
        self.mixture: Mixture | None = None
        if is_mixture:
            self.mixture = read_noaux_mixture(weights, f"{prefix}.mlp", size, config.mixture)
        else:
            self.dense = weights.expert(f"{prefix}.mlp", size, config.intermediate_size)


class _DraftLayer:
    """The layer behind the last one, and what leads into it and out of it."""

    def __init__(
        self, weights: WeightReader, prefix: str, config: Config, rule: _AttentionRule
    ) -> None:
        size = config.attention.hidden_size
        self.embedding_norm = weights.vector(f"{prefix}.enorm.weight", size)
        self.hidden_norm = weights.vector(f"{prefix}.hnorm.weight", size)
        self.input = weights.linear([f"{prefix}.eh_proj"], [size], 2 * size)
        self.layer = _Layer(weights, prefix, config, rule, is_full=True, is_mixture=True)
        self.norm = weights.vector(f"{prefix}.shared_head.norm.weight", size)
        for name in ("embed_tokens", "shared_head.head"):  # copies of the model's own
            weights.skip(f"{prefix}.{name}.weight")
        self.selection = Selection(config.indexer.topk)
        self.selects = rule.sparse is not None
        self.cache_layout = config.attention.layout(config.indexer if self.selects else None)


def _draft_ends(config: Config) -> list[str]:
    """Tensors that a checkpoint has which has all of the draft layer; empty for a model without."""
    prefix = f"model.layers.{config.num_layers}"
    last = config.num_experts - 1
    ends = ("eh_proj", "shared_head.norm", f"mlp.experts.{last}.down_proj")
    return [f"{prefix}.{name}.weight" for name in ends] if config.num_draft_layers else []


def cache_layouts(config: Config, names: Collection[str]) -> list[LayerLayout]:
    """Return what each layer keeps of a sequence; see `models.registry.cache_layouts`."""
    return _layouts(config, _indexer_of(config, names))


def draft_layouts(config: Config, names: Collection[str]) -> list[LayerLayout]:
    """Return what the draft layer keeps; see `models.registry.draft_layouts`."""
    ends = _draft_ends(config)
    if not ends or not all(name in names for name in ends):
        return []
    return [config.attention.layout(_indexer_of(config, names))]


def _indexer_of(config: Config, names: Collection[str]) -> IndexerShape | None:
    """Return the indexer of the full layers; None where the file has none."""
    return None if set(_indexer_names(config)).isdisjoint(names) else config.indexer


def _layouts(config: Config, indexer: IndexerShape | None) -> list[LayerLayout]:
    shape = config.attention
    return [shape.layout(indexer if is_full else None) for is_full in config.full_layers]


def _indexer_names(config: Config) -> list[str]:
    return [
        f"model.layers.{i}.self_attn.{name}"
        for i, is_full in enumerate(config.full_layers)
        if is_full
        for name in INDEXER_TENSORS
    ]


def _has_indexers(weights: WeightReader, config: Config) -> bool:
    """Whether the full layers come with indexers; a file has all of them or none."""
    if any(weights.has(name) for name in _indexer_names(config)):
        return True  # one that is missing is refused by name when it is read
    logger.warning(
        "the checkpoint has no indexer, so attention is dense: beyond %d positions answers are not "
        "those of the published model",
        config.indexer.topk,
    )
    return False


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
        self._ends = TokenEnds(
            weights,
            config.vocab_size,
            shape.hidden_size,
            tied=config.tied,
            eps=config.rms_norm_eps,
        )
        rule = self._attention_rule(source, has_indexers=_has_indexers(weights, config))
        self._layers = [
            _Layer(
                weights,
                f"model.layers.{i}",
                config,
                rule,
                is_full=config.full_layers[i],
                is_mixture=config.mixture_layers[i],
            )
            for i in range(config.num_layers)
        ]
        self._indexer = config.indexer if rule.sparse is not None else None
        self._selection = Selection(config.indexer.topk)
        self._draft: _DraftLayer | None = None
        ends = _draft_ends(config)
        if ends and all(map(weights.has, ends)):
            prefix = f"model.layers.{config.num_layers}"
            self._draft = _DraftLayer(weights, prefix, config, rule)
        size = shape.hidden_size
        widths = {"x": size, "normed": size, "router": config.num_experts}
        self._buffers = StepBuffers(widths | shape.buffers(self._indexer))
        self._draft_buffers = StepBuffers(
            widths | shape.buffers(self._indexer) | {"joined": 2 * size}
        )
        self._timers = Timers(weights.counters)
        link_mixtures(self._layers)
        self.resident_bytes = weights.nbytes
        self.expert_bytes = weights.expert_nbytes

    def _attention_rule(self, source: Mapping[str, Any], *, has_indexers: bool) -> _AttentionRule:
        config, shape = self.config, self.config.attention

        def rope(*, interleaved: bool) -> Rope:
            return build_rope(
                source, shape.rope_dim, default_theta=10_000.0, interleaved=interleaved
            )

        sparse = None
        if has_indexers:
            sparse = SparseRule(config.indexer, rope(interleaved=config.index_interleaved))
        scale = shape.head_width**-0.5 * yarn_score_scale(source)
        return _AttentionRule(rope(interleaved=config.interleaved), scale, sparse)

    @property
    def timers(self) -> Mapping[str, float]:
        """Seconds spent so far, by part."""
        return self._timers.as_dict()

    @property
    def draft_counts(self) -> npt.NDArray[np.int64] | None:
        """(experts,) selections of the draft layer so far."""
        mixture = None if self._draft is None else self._draft.layer.mixture
        return None if mixture is None else mixture.counts

    def make_cache(self) -> KvCache:
        """Return an empty cache for one sequence."""
        return KvCache(_layouts(self.config, self._indexer))

    def forward(
        self, ids: npt.NDArray[np.int32], batch: Batch, logit_rows: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Run one step; see `models.base.Model.forward`."""
        buffers = self._buffers
        buffers.ensure(len(ids))
        x = buffers["x"]
        # Where no row has more positions than it may look at, there is nothing to choose.
        chooses = self._indexer is not None and batch.end_position > self._indexer.topk
        selection = self._selection if chooses else None
        self._ends.embed(ids, x)  # (N, C)
        for index, layer in enumerate(self._layers):
            self._run_layer(layer, batch, index, buffers, selection)
        start = perf_counter()
        logits = self._ends.logits(x, logit_rows)  # (R, V)
        self._timers.lm_head += perf_counter() - start
        batch.commit()
        return logits

    def _run_layer(
        self,
        layer: _Layer,
        batch: Batch,
        index: int,
        buffers: StepBuffers,
        selection: Selection | None,
    ) -> None:
        """Add one layer to the residual stream "x"."""
        x, normed = buffers["x"], buffers["normed"]
        eps, timers = self.config.rms_norm_eps, self._timers
        start = perf_counter()
        rms_norm(x, layer.input_norm, eps, normed)
        layer.attention(normed, batch, index, buffers, x, selection)
        middle = perf_counter()
        rms_norm(x, layer.post_norm, eps, normed)
        timers.attention += middle - start
        if layer.dense is not None:
            if layer.ahead is not None:
                layer.ahead.start(normed)
            mlp(normed, layer.dense, x)
            timers.dense += perf_counter() - middle
        elif layer.mixture is not None:
            layer.mixture(normed, buffers["router"], x)
            timers.experts += perf_counter() - middle

    # ---- drafts -----------------------------------------------------------------------------

    @property
    def can_draft(self) -> bool:
        """Whether the checkpoint came with a draft layer."""
        return self._draft is not None

    def make_draft_cache(self) -> KvCache:
        """Return an empty cache of the draft layer for one sequence."""
        return KvCache([self._draft_layer().cache_layout])

    def final_hidden(self, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return (len(rows), C) hidden states after the final norm, of rows of the last step."""
        return self._ends.hidden(self._buffers["x"], rows)

    def draft(self, step: DraftStep, batch: Batch, logit_rows: Sequence[int]) -> Draft:
        """Run the draft layer; see `models.base.DraftModel.draft`."""
        draft, buffers = self._draft_layer(), self._draft_buffers
        buffers.ensure(len(step.ids))
        x = buffers["x"]
        self._join(step, draft, buffers)
        self._run_layer(draft.layer, batch, 0, buffers, self._draft_selection(step, draft, batch))
        if draft.selects:
            draft.selection.keep(list(logit_rows))
        hidden = x.array.copy()
        logits = self._ends.logits(x, logit_rows, draft.norm)  # (R, V)
        batch.commit()
        return Draft(logits, hidden)

    def _draft_selection(
        self, step: DraftStep, draft: _DraftLayer, batch: Batch
    ) -> Selection | None:
        """Where the rows look: a guess after a guess, where the first one looked."""
        selection = draft.selection
        selection.fixed = step.follows_draft and self.config.shares_draft_selection
        if not draft.selects:
            return None
        if not selection.fixed:
            selection.reset(batch.rows)
            if batch.end_position <= self.config.indexer.topk:
                return None
        return selection

    def _join(self, step: DraftStep, draft: _DraftLayer, buffers: StepBuffers) -> None:
        """Set "x" to eh_proj of the normed embedding and the normed hidden state."""
        x, normed, joined = buffers["x"], buffers["normed"], buffers["joined"]
        size, eps = self.config.attention.hidden_size, self.config.rms_norm_eps
        joined.rows = len(step.ids)
        self._ends.embed(step.ids, x)
        rms_norm(x, draft.embedding_norm, eps, normed)
        joined.array[:, :size] = normed.array
        x.array[:] = step.hidden
        rms_norm(x, draft.hidden_norm, eps, normed)
        joined.array[:, size:] = normed.array
        linear(joined, draft.input, x)

    def _draft_layer(self) -> _DraftLayer:
        if self._draft is None:
            raise UnsupportedModel(
                "the checkpoint has no draft layer", hint="decode without drafts"
            )
        return self._draft
