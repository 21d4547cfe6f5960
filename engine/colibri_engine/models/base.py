"""What every architecture offers, and how it reads its configuration.

A value the code does not implement is refused by name before a weight is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from colibri_engine.errors import UnsupportedModel
from colibri_engine.layers.mla import MlaShape
from colibri_engine.layers.noaux import NoauxShape
from colibri_engine.loader.json_file import finite_number, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.experts.counters import ExpertCounters
    from colibri_engine.kernels import Batch, KvCache

_REQUIRED: Final = object()
_MAX_DIMENSION: Final = 1 << 24
# Beyond any model: what a damaged or hostile configuration would make lists and buffers of.
_HIGHEST: Final = {
    "hidden_size": 1 << 20,
    "moe_intermediate_size": 1 << 20,
    "num_hidden_layers": 512,
    "num_attention_heads": 1024,
    "swa_num_attention_heads": 1024,
    "head_dim": 1 << 16,
    "swa_head_dim": 1 << 16,
    "q_lora_rank": 1 << 20,
    "kv_lora_rank": 1 << 20,
    "qk_nope_head_dim": 1 << 16,
    "qk_rope_head_dim": 1 << 16,
    "v_head_dim": 1 << 16,
    "index_n_heads": 1024,
    "index_head_dim": 1 << 16,
    "index_topk": 1 << 20,
    "n_routed_experts": 4096,
    "num_experts": 4096,
    "num_local_experts": 4096,
    "num_experts_per_tok": 64,
    "experts_per_token": 64,
    "n_shared_experts": 64,
    "num_nextn_predict_layers": 64,
}


class ModelConfig(Protocol):
    """The sizes every architecture has."""

    @property
    def model_type(self) -> str:
        """The checkpoint's own name for the architecture."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""

    @property
    def num_layers(self) -> int:
        """Decoder layers."""

    @property
    def num_experts(self) -> int:
        """Routed experts per mixture layer; 0 for a dense model."""

    @property
    def num_experts_per_token(self) -> int:
        """Experts chosen per row; 0 for a dense model."""

    @property
    def max_positions(self) -> int:
        """Context length of training; 0 when the checkpoint does not say."""


class Model(Protocol):
    """A loaded model. One thread at a time."""

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""

    @property
    def timers(self) -> Mapping[str, float]:
        """Seconds spent so far in "attention", "experts", "dense" and "lm_head"."""

    @property
    def resident_bytes(self) -> int:
        """Bytes of packed weights in memory."""

    @property
    def expert_bytes(self) -> int:
        """Bytes of them that belong to routed experts; 0 for a dense model."""

    @property
    def routing_counts(self) -> npt.NDArray[np.int64] | None:
        """(mixture layers, experts) selections so far; None for a dense model."""

    @property
    def mixture_layers(self) -> list[int]:
        """The layer of each row of `routing_counts`, ascending; a draft layer is none of them."""

    def uncount(self, rows: Sequence[int]) -> None:
        """Take rows of the last step out of `routing_counts`: their tokens never were."""

    def make_cache(self) -> KvCache:
        """Return an empty cache for one sequence."""

    def forward(
        self, ids: npt.NDArray[np.int32], batch: Batch, logit_rows: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Run one step and commit its rows to the caches.

        Args:
            ids: (N,) int32, below vocab_size.
            batch: Sequence and position of each row.
            logit_rows: Rows whose logits are wanted, ascending.

        Returns:
            (len(logit_rows), vocab_size) float32, a view until the next call.
        """


class DraftModel(Model, Protocol):
    """A model with a layer that guesses one token further (MTP); optional.

    For position p the layer takes the final hidden state h_p and the embedding of token p + 1, and
    its logits are a guess at token p + 2. It has a row per position in a cache of its own, which
    like any other is filled without gaps: for every position a guess may look back at, the rows
    are fed when their next token is known.
    """

    @property
    def can_draft(self) -> bool:
        """Whether the checkpoint came with the layer, and it was loaded."""

    @property
    def draft_counts(self) -> npt.NDArray[np.int64] | None:
        """(experts,) selections of the layer so far; None where it has no experts or is not there.

        Wrong guesses are among them: the layer did ask for these experts.
        """

    def make_draft_cache(self) -> KvCache:
        """Return an empty cache of the draft layer for one sequence."""

    def final_hidden(self, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return (len(rows), C) hidden states after the final norm, of rows of the last step."""

    def draft(self, step: DraftStep, batch: Batch, logit_rows: Sequence[int]) -> Draft:
        """Run the draft layer on rows and commit them to its caches.

        Args:
            step: What each row starts from.
            batch: Draft cache and position p of each row.
            logit_rows: Rows whose guesses are wanted, ascending.
        """


@dataclass(frozen=True, slots=True)
class DraftStep:
    """What the draft layer starts from.

    Args:
        ids: (N,) int32, the token after each row's position.
        hidden: (N, C) float32: `final_hidden` of the position, or, for a guess after a guess,
            `Draft.hidden` of the one before.
        follows_draft: Whether row i is a guess after the i-th guess of the previous call.
    """

    ids: npt.NDArray[np.int32]
    hidden: npt.NDArray[np.float32]
    follows_draft: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """What the draft layer gives.

    Args:
        logits: (R, V) float32, a view until the next call of the model.
        hidden: (N, C) float32, the layer's output before its norm; a copy.
    """

    logits: npt.NDArray[np.float32]
    hidden: npt.NDArray[np.float32]


class ConfigReader:
    """Typed access to the keys of `config.json`.

    Args:
        config: The keys.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.model_type = str(config.get("model_type"))

    def integer(
        self, key: str, *, low: int = 1, high: int | None = None, default: int | None = None
    ) -> int:
        """Return an integer between `low`, by default 1, and `high`, by default what is sensible.

        Raises:
            UnsupportedModel: absent without a default, of another type, or out of range.
        """
        value = self._get(key, _REQUIRED if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._bad(key, value, "is not an integer")
        if high is None:
            high = _HIGHEST.get(key, _MAX_DIMENSION)
        if not low <= value <= high:
            raise self._bad(key, value, f"is outside {low}..{high}")
        return value

    def number(self, key: str, *, default: float) -> float:
        """Return a positive finite number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(key, value, "is not a number")
        found = finite_number(value)
        if found is None or found <= 0:
            raise self._bad(key, value, "is not positive and finite")
        return found

    def integers(self, key: str, *, low: int, high: int) -> tuple[int, ...]:
        """Return a list of integers within low..high, empty when the key is absent."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise self._bad(key, value, "is not a list of integers")
        if not all(low <= item <= high for item in value):
            raise self._bad(key, value, f"holds a value outside {low}..{high}")
        return tuple(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return a flag."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, value, "is not true or false")
        return value

    def spelling(self, *keys: str) -> str:
        """Return which of several names of one value the configuration uses; else the first.

        Raises:
            UnsupportedModel: two of them are there and contradict each other.
        """
        used = [key for key in keys if self._config.get(key) is not None]
        for key in used[1:]:
            if self._config[key] != self._config[used[0]]:
                raise self._bad(
                    key,
                    self._config[key],
                    f"contradicts {used[0]} = {shown(self._config[used[0]])}",
                )
        return used[0] if used else keys[0]

    def names(self, key: str, allowed: Sequence[str], count: int) -> list[str] | None:
        """Return a list with one of `allowed` for each of `count` layers; None where absent."""
        value = self._config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < count:
            raise self._bad(key, value, f"is not a list with an entry for each of {count} layers")
        for entry in value:
            if entry not in allowed:
                raise self._bad(key, value, f"holds {shown(entry)} (supported: {list(allowed)})")
        return value[:count]

    def require(self, key: str, allowed: Sequence[object], *, default: object) -> None:
        """Refuse a value of `key` that is not one of `allowed`."""
        value = self._get(key, default)
        if value not in allowed:
            raise self._bad(key, value, f"is not supported (supported: {list(allowed)})")

    def _get(self, key: str, default: object) -> Any:  # noqa: ANN401 - JSON value
        value = self._config.get(key)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise UnsupportedModel(
                f"config key {key} is missing",
                hint="the model directory is incomplete: pull the model again",
            )
        return default

    def _bad(self, key: str, value: object, problem: str) -> UnsupportedModel:
        return UnsupportedModel(
            f"config key {key} = {shown(value)} {problem}",
            hint=f"this version does not implement it for {self.model_type}",
        )


def check_experts_per_token(count: int, num_experts: int) -> int:
    """Return `count`, the number of experts a user wants chosen per row.

    Raises:
        UnsupportedModel: the model does not have that many.
    """
    if not 1 <= count <= num_experts:
        raise UnsupportedModel(
            f"{count} experts per token asked for; the model has {num_experts}",
            hint=f"choose 1..{num_experts}",
        )
    return count


def read_mla_shape(read: ConfigReader) -> MlaShape:
    """Read the sizes of latent attention, and refuse the options it does not have."""
    read.require("attention_bias", [False], default=False)
    num_heads = read.integer("num_attention_heads")
    # Nominal, and counted in two ways: keys and values of every head, or the one latent.
    read.require("num_key_value_heads", [num_heads, 1], default=num_heads)
    return MlaShape(
        hidden_size=read.integer("hidden_size"),
        num_heads=num_heads,
        query_latent_dim=read.integer("q_lora_rank", low=0, default=0),
        latent_dim=read.integer("kv_lora_rank"),
        key_dim=read.integer("qk_nope_head_dim"),
        rope_dim=read.integer("qk_rope_head_dim", low=2),
        value_dim=read.integer("v_head_dim"),
    )


def read_noaux_shape(
    read: ConfigReader, *, num_groups: int = 1, kept_groups: int = 1
) -> NoauxShape:
    """Read a mixture with sigmoid scores and a selection bias.

    Args:
        read: The configuration.
        num_groups: Groups of experts where it does not say.
        kept_groups: Groups a row chooses from where it does not say.
    """
    read.require("hidden_act", ["silu"], default="silu")
    read.require("scoring_func", ["sigmoid"], default="sigmoid")
    read.require("topk_method", ["noaux_tc"], default="noaux_tc")
    return NoauxShape(
        num_experts=read.integer("n_routed_experts"),
        num_experts_per_token=read.integer("num_experts_per_tok"),
        num_shared_experts=read.integer("n_shared_experts", low=0, default=1),
        width=read.integer("moe_intermediate_size"),
        normalize=read.boolean("norm_topk_prob", default=True),
        scale=read.number("routed_scaling_factor", default=1.0),
        num_groups=read.integer("n_group", default=num_groups),
        kept_groups=read.integer("topk_group", default=kept_groups),
    )


@dataclass(slots=True)
class Timers:
    """Seconds per part of the forward pass, summed since the start.

    "experts" is all of a mixture; of that "expert_matmul" is the routed experts alone and
    "expert_wait" what was waited for them. "expert_disk" is spent by the disk meanwhile.

    Args:
        counters: Of the routed experts; None for a model without.
    """

    counters: ExpertCounters | None = None
    attention: float = 0.0
    experts: float = 0.0
    dense: float = 0.0
    lm_head: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """Return the sums by name."""
        found = {
            "attention": self.attention,
            "experts": self.experts,
            "dense": self.dense,
            "lm_head": self.lm_head,
        }
        if self.counters is not None:
            found["expert_matmul"] = self.counters.matmul_s
            found["expert_wait"] = self.counters.wait_s
            found["expert_disk"] = self.counters.service_s
        return found
