"""The sizes of GLM-5, 5.1 and 5.2, from `config.json`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from colibri_engine.errors import UnsupportedModel
from colibri_engine.layers.indexer import IndexerShape
from colibri_engine.loader.json_file import shown
from colibri_engine.models.base import (
    ConfigReader,
    check_experts_per_token,
    read_mla_shape,
    read_noaux_shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.layers.mla import MlaShape
    from colibri_engine.layers.noaux import NoauxShape

_PATTERN_LETTERS = {"F": "full", "S": "shared"}


def read_indexer_types(config: Mapping[str, Any], num_layers: int) -> tuple[bool, ...]:
    """Return for each layer whether it chooses for itself: by list, by pattern, or by a rule.

    The rule: layer i does where max(i - offset + 1, 0) is a multiple of freq.

    Raises:
        UnsupportedModel: a value of another kind, or a first layer with nothing to share.
    """
    read = ConfigReader(config)
    types = read.names("indexer_types", ["full", "shared"], num_layers)
    pattern = config.get("index_topk_pattern")
    if types is not None:
        full = [kind == "full" for kind in types]
    elif pattern is not None:
        letters = list(pattern) if isinstance(pattern, str | list) else []
        kinds = [_PATTERN_LETTERS.get(str(letter), str(letter)) for letter in letters[:num_layers]]
        if len(kinds) < num_layers or not set(kinds) <= {"full", "shared"}:
            raise UnsupportedModel(
                f"config key index_topk_pattern = {shown(pattern)} is not F or S for each of "
                f"{num_layers} layers",
                hint="the configuration is damaged, or newer than this version",
            )
        full = [kind == "full" for kind in kinds]
    else:
        freq = read.integer("index_topk_freq", default=1)
        offset = read.integer("index_skip_topk_offset", low=0, default=2)
        full = [max(i - offset + 1, 0) % freq == 0 for i in range(num_layers)]
    if not full[0]:
        raise UnsupportedModel(
            "layer 0 shares the indexer of a layer before it, and there is none",
            hint="the configuration is damaged",
        )
    return tuple(full)


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one checkpoint."""

    model_type: str
    vocab_size: int
    num_layers: int
    intermediate_size: int
    mixture_layers: tuple[bool, ...]
    full_layers: tuple[bool, ...]
    max_positions: int
    rms_norm_eps: float
    tied: bool
    interleaved: bool
    index_interleaved: bool
    num_draft_layers: int
    shares_draft_selection: bool
    attention: MlaShape
    indexer: IndexerShape
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
        read.require("mlp_bias", [False], default=False)
        read.require("moe_layer_freq", [1], default=1)
        attention = read_mla_shape(read)
        if attention.query_latent_dim == 0:
            raise UnsupportedModel(
                "config key q_lora_rank is missing, and the indexer takes its queries from it",
                hint=f"this version does not implement {read.model_type} without it",
            )
        indexer = IndexerShape(
            num_heads=read.integer("index_n_heads", default=32),
            head_dim=read.integer("index_head_dim", default=128),
            topk=read.integer("index_topk", default=2048),
            query_latent_dim=attention.query_latent_dim,
        )
        if indexer.head_dim < attention.rope_dim:
            raise UnsupportedModel(
                f"config key index_head_dim = {indexer.head_dim} is less than the "
                f"{attention.rope_dim} channels that turn",
                hint="the configuration is damaged",
            )
        num_layers = read.integer("num_hidden_layers")
        kinds = read.names("mlp_layer_types", ["dense", "sparse"], num_layers)
        if kinds is None:
            dense = read.integer("first_k_dense_replace", low=0, default=3)
            kinds = ["dense" if i < dense else "sparse" for i in range(num_layers)]
        return cls(
            model_type=read.model_type,
            vocab_size=read.integer("vocab_size"),
            num_layers=num_layers,
            intermediate_size=read.integer("intermediate_size"),
            mixture_layers=tuple(kind == "sparse" for kind in kinds),
            full_layers=read_indexer_types(config, num_layers),
            max_positions=read.integer("max_position_embeddings", low=0, default=0),
            rms_norm_eps=read.number("rms_norm_eps", default=1e-5),
            tied=read.boolean("tie_word_embeddings", default=False),
            interleaved=read.boolean("rope_interleave", default=True),
            index_interleaved=read.boolean("indexer_rope_interleave", default=True),
            num_draft_layers=read.integer("num_nextn_predict_layers", low=0, default=0),
            shares_draft_selection=read.boolean("index_share_for_mtp_iteration", default=False),
            attention=attention,
            indexer=indexer,
            mixture=read_noaux_shape(read),
        )

    def with_experts_per_token(self, count: int) -> Config:
        """Return the same model choosing another number of experts: faster or slower, not equal.

        Raises:
            UnsupportedModel: there are not that many.
        """
        count = check_experts_per_token(count, self.mixture.num_experts)
        return replace(self, mixture=replace(self.mixture, num_experts_per_token=count))
