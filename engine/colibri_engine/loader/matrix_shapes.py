"""Shapes of the matrices that containers hold as bytes, from the configuration alone.

A file says how many bytes a packed matrix has, never its rows and columns: those follow from the
architecture. Names are those of published checkpoints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Dimension = Callable[["_Sizes"], int]

_MAX_SIZE: Final = 1 << 24  # of one configuration key
_MAX_DIMENSION: Final = (1 << 31) - 1

_LAYER: Final = re.compile(r"model\.layers\.[0-9]+\.(.+)\.weight")
_EXPERT: Final = re.compile(r"mlp\.experts\.[0-9]+\.(.+)")


class _Sizes:
    """The sizes a configuration gives, read when a shape needs them."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._config = config
        self._path = path

    def __getitem__(self, key: str) -> int:
        value = self._config.get(key)
        if type(value) is not int or not 0 < value <= _MAX_SIZE:
            raise CheckpointError(
                f"config key {key} = {str(value)[:40]} of {self._path} is no size between 1 and "
                f"{_MAX_SIZE}, and the shapes of packed matrices depend on it",
                path=self._path,
                hint="the configuration is damaged; copy or pull the model again",
            )
        return value

    def first(self, *keys: str) -> int:
        """Return the first of several spellings that is there."""
        present = [key for key in keys if self._config.get(key) is not None]
        return self[present[0] if present else keys[0]]

    @property
    def is_latent(self) -> bool:
        """Whether attention keeps latents: heads then have parts of their own sizes."""
        return self._config.get("kv_lora_rank") is not None

    @property
    def query(self) -> int:
        """Channels of a query head."""
        if self.is_latent:
            return self["qk_nope_head_dim"] + self["qk_rope_head_dim"]
        return self.head

    @property
    def value(self) -> int:
        """Channels of a value head."""
        return self["v_head_dim"] if self.is_latent else self.head

    @property
    def head(self) -> int:
        """Channels of a head where queries, keys and values have the same."""
        if self._config.get("head_dim") is not None:
            return self["head_dim"]
        return self["hidden_size"] // self["num_attention_heads"]

    @property
    def expert(self) -> int:
        """Width of a routed expert."""
        return self.first("moe_intermediate_size", "intermediate_size")


def _key(*names: str) -> Dimension:
    return lambda sizes: sizes.first(*names)


_HIDDEN: Final = _key("hidden_size")
_VOCABULARY: Final = _key("vocab_size")
_DENSE: Final = _key("intermediate_size")
_NUM_EXPERTS: Final = _key("n_routed_experts", "num_experts", "num_local_experts")
_QUERY_RANK: Final = _key("q_lora_rank")
_LATENT: Final = _key("kv_lora_rank")


def _expert(sizes: _Sizes) -> int:
    return sizes.expert


def _shared(sizes: _Sizes) -> int:
    return sizes.expert * sizes["n_shared_experts"]


def _queries(sizes: _Sizes) -> int:
    return sizes["num_attention_heads"] * sizes.query


def _values(sizes: _Sizes) -> int:
    return sizes["num_attention_heads"] * sizes.value


def _keys(sizes: _Sizes) -> int:
    return sizes.first("num_key_value_heads", "num_attention_heads") * sizes.head


_TOP: Final = {
    "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
    "lm_head.weight": (_VOCABULARY, _HIDDEN),
}

_IN_LAYER: Final[dict[str, tuple[Dimension, Dimension]]] = {
    "self_attn.q_proj": (_queries, _HIDDEN),
    "self_attn.k_proj": (_keys, _HIDDEN),
    "self_attn.v_proj": (_keys, _HIDDEN),
    "self_attn.o_proj": (_HIDDEN, _values),
    "self_attn.q_a_proj": (_QUERY_RANK, _HIDDEN),
    "self_attn.q_b_proj": (_queries, _QUERY_RANK),
    "self_attn.kv_a_proj_with_mqa": (
        lambda sizes: sizes["kv_lora_rank"] + sizes["qk_rope_head_dim"],
        _HIDDEN,
    ),
    "self_attn.kv_b_proj": (
        lambda sizes: sizes["num_attention_heads"] * (sizes["qk_nope_head_dim"] + sizes.value),
        _LATENT,
    ),
    # The halves of kv_b_proj, the first with its heads transposed.
    "self_attn.k_b_proj": (
        lambda sizes: sizes["num_attention_heads"] * sizes["kv_lora_rank"],
        _key("qk_nope_head_dim"),
    ),
    "self_attn.v_b_proj": (_values, _LATENT),
    "self_attn.indexer.wq_b": (
        lambda sizes: sizes["index_n_heads"] * sizes["index_head_dim"],
        _QUERY_RANK,
    ),
    "self_attn.indexer.wk": (_key("index_head_dim"), _HIDDEN),
    "self_attn.indexer.weights_proj": (_key("index_n_heads"), _HIDDEN),
    "mlp.gate_proj": (_DENSE, _HIDDEN),
    "mlp.up_proj": (_DENSE, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _DENSE),
    "mlp.gate": (_NUM_EXPERTS, _HIDDEN),
    "mlp.router": (_NUM_EXPERTS, _HIDDEN),
    "mlp.shared_experts.gate_proj": (_shared, _HIDDEN),
    "mlp.shared_experts.up_proj": (_shared, _HIDDEN),
    "mlp.shared_experts.down_proj": (_HIDDEN, _shared),
    "eh_proj": (_HIDDEN, lambda sizes: 2 * sizes["hidden_size"]),
    "embed_tokens": (_VOCABULARY, _HIDDEN),
    "shared_head.head": (_VOCABULARY, _HIDDEN),
}


_IN_EXPERT: Final = {
    "gate_proj": (_expert, _HIDDEN),
    "up_proj": (_expert, _HIDDEN),
    "down_proj": (_HIDDEN, _expert),
}


def matrix_shape(config: Mapping[str, Any], name: str, path: Path) -> tuple[int, int]:
    """Return (O, I) of a matrix.

    Args:
        config: Keys of `config.json`.
        name: The published name of the tensor.
        path: The model's directory, for messages.

    Raises:
        CheckpointError: no architecture has a matrix of this name, or a size is missing.
    """
    dimensions = _dimensions(name)
    if dimensions is None:
        raise CheckpointError(
            f"tensor {name} of {path} is stored as packed bytes, and the configuration does not "
            "tell its shape",
            path=path,
            tensor=name,
            hint="the container holds a part of the model that this version does not know",
        )
    sizes = _Sizes(config, path)
    num_outputs, num_inputs = (dimension(sizes) for dimension in dimensions)
    if max(num_outputs, num_inputs) > _MAX_DIMENSION:
        raise CheckpointError(
            f"tensor {name} of {path} would be {num_outputs} x {num_inputs} by the configuration, "
            f"more than {_MAX_DIMENSION}",
            path=path,
            tensor=name,
            hint="the configuration is damaged; copy or pull the model again",
        )
    return num_outputs, num_inputs


def _dimensions(name: str) -> tuple[Dimension, Dimension] | None:
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return _TOP.get(name)
    expert = _EXPERT.fullmatch(layer.group(1))
    return _IN_LAYER.get(layer.group(1)) if expert is None else _IN_EXPERT.get(expert.group(1))
