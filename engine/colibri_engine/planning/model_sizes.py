"""What a model takes and what a token reads of it: sums over headers; no weight is read."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from colibri_engine.conversion.tensor_classes import TensorClass, classify
from colibri_engine.kernels import KvCache
from colibri_engine.loader.base import StreamedCheckpoint
from colibri_engine.memory_plan import bytes_per_position
from colibri_engine.models.registry import cache_layouts, draft_layouts, read_sizes
from colibri_engine.planning.weight_forms import weight_form
from colibri_engine.speculation.selection import wants_draft_layer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.kernels import LayerLayout
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.loader.stream_tensors import StoredExperts
    from colibri_engine.models.base import ModelConfig
    from colibri_engine.planning.weight_forms import WeightForm

_EXPERT: Final = re.compile(
    r"(model\.layers\.(\d+)\..*experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)"
)
_EMBEDDING: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"

# What readers see, by what the converter calls it.
_ATTENTION: Final = "attention"
_GROUPS: Final = {
    TensorClass.IO: "embedding and head",
    TensorClass.SHARED: "shared experts",
    TensorClass.DENSE: "dense layers",
    TensorClass.OUTPUT: _ATTENTION,
    TensorClass.KV_B: _ATTENTION,
    TensorClass.ATTENTION: _ATTENTION,
    TensorClass.INDEXER: _ATTENTION,
    TensorClass.FLOATS: "routers and norms",
    TensorClass.DRAFT_PROJECTION: "draft layer",
    TensorClass.DRAFT: "draft layer",
}


class Amount(NamedTuple):
    """Weights of one kind: bytes in memory, and how many."""

    nbytes: int = 0
    num_weights: int = 0

    def plus(self, form: WeightForm) -> Amount:
        """Return the sum."""
        return Amount(self.nbytes + form.nbytes, self.num_weights + form.num_weights)


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The routed experts of one layer.

    Args:
        layer: Its number.
        num_experts: How many.
        kinds: One expert in memory, by kind.
        record_bytes: One record on disk; None where experts cannot be read one by one.
    """

    layer: int
    num_experts: int
    kinds: Mapping[str, Amount]
    record_bytes: int | None

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert in memory."""
        if self.record_bytes is not None:
            return self.record_bytes
        return sum(amount.nbytes for amount in self.kinds.values())


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """One model.

    Args:
        config: Its own sizes.
        hidden_size: Width of the residual stream.
        expert_width: Inner width of a routed expert; 0 for a dense model.
        file_bytes: Bytes of all weight files.
        resident: Bytes of what is always in memory, by group.
        token: Weights outside of routed experts that one decoded token reads, by kind.
        head: Of them, those of the head: a prompt token does not need it.
        expert_layers: Layers with routed experts, drafts not among them.
        draft_layers: Those that only draft.
        position_bytes: What a conversation takes for each position, in the draft layer's cache too.
        position_macs: Multiply-adds of one token's attention for each position it looks at.
    """

    config: ModelConfig
    hidden_size: int
    expert_width: int
    file_bytes: int
    resident: Mapping[str, int]
    token: Mapping[str, Amount]
    head: Mapping[str, Amount]
    expert_layers: tuple[ExpertLayer, ...]
    draft_layers: tuple[ExpertLayer, ...]
    position_bytes: int
    position_macs: int

    @property
    def resident_bytes(self) -> int:
        """Bytes of what is always in memory."""
        return sum(self.resident.values())

    @property
    def all_expert_layers(self) -> tuple[ExpertLayer, ...]:
        """Also those that draft."""
        return (*self.expert_layers, *self.draft_layers)

    @property
    def expert_bytes(self) -> int:
        """Bytes of all routed experts in memory."""
        return sum(layer.num_experts * layer.expert_bytes for layer in self.all_expert_layers)

    @property
    def streams(self) -> bool:
        """Whether some layers' experts can be read one by one."""
        return any(layer.record_bytes is not None for layer in self.all_expert_layers)


def model_sizes(
    checkpoint: Checkpoint,
    *,
    experts_per_token: int | None = None,
    with_draft_layer: bool = False,
    kv_dtype: str = "f32",
) -> ModelSizes:
    """Return the sizes of a model.

    Args:
        checkpoint: Its files; headers are read, weights are not.
        experts_per_token: Another number of routed experts than the model's own.
        with_draft_layer: Whether a layer that only drafts is loaded.
        kv_dtype: What rows of conversations are kept as.

    Raises:
        UnsupportedModel: the architecture or a configuration value is not implemented.
    """
    config = read_sizes(checkpoint, experts_per_token)
    with_draft_layer = with_draft_layer and bool(getattr(config, "num_draft_layers", 0))
    sums = _Sums(checkpoint, config)
    for name in checkpoint.names():
        sums.add(name, with_draft_layer=with_draft_layer)
    hidden_size = checkpoint.shape(_EMBEDDING)[1]
    layers = sums.expert_layers()
    layouts = cache_layouts(checkpoint)
    drafts = draft_layouts(checkpoint) if with_draft_layer else []
    caches = [KvCache(found, kv_dtype) for found in (layouts, drafts) if found]
    return ModelSizes(
        config=config,
        hidden_size=hidden_size,
        expert_width=sums.expert_width,
        file_bytes=checkpoint.nbytes,
        resident=dict(sums.resident),
        token=dict(sums.token),
        head=dict(sums.head),
        expert_layers=tuple(layer for layer in layers if layer.layer < config.num_layers),
        draft_layers=tuple(layer for layer in layers if layer.layer >= config.num_layers),
        position_bytes=sum(map(bytes_per_position, caches)),
        position_macs=_position_macs(layouts, checkpoint.config.get("num_attention_heads")),
    )


def sizes_of(checkpoint: Checkpoint, config: EngineConfig) -> ModelSizes:
    """Return the sizes of a model as an engine of this configuration loads it.

    Raises:
        UnsupportedModel: the architecture or a configuration value is not implemented.
        CheckpointError: a tensor without which no model is one is missing.
    """
    return model_sizes(
        checkpoint,
        experts_per_token=config.experts_per_token,
        with_draft_layer=wants_draft_layer(config.drafts),
        kv_dtype=config.kv_dtype,
    )


class _Sums:
    """Sums over the tensors of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig) -> None:
        self.resident: dict[str, int] = defaultdict(int)
        self.token: dict[str, Amount] = defaultdict(Amount)
        self.head: dict[str, Amount] = defaultdict(Amount)
        self.expert_width = 0
        self._checkpoint = checkpoint
        self._num_layers = config.num_layers
        self._is_tied = bool(getattr(config, "tied", False))
        self._records: Mapping[str, StoredExperts] = {}
        if isinstance(checkpoint, StreamedCheckpoint):
            self._records = checkpoint.stored_experts()
        self._experts: dict[tuple[int, str], dict[str, Amount]] = {}
        self._counts: dict[tuple[int, str], set[int]] = defaultdict(set)

    def add(self, name: str, *, with_draft_layer: bool) -> None:
        """Take one tensor in."""
        expert = _EXPERT.fullmatch(name)
        if expert is not None:
            layer = int(expert[2])
            if layer < self._num_layers or with_draft_layer:
                self._add_expert((layer, expert[1]), int(expert[3]), name)
            return
        try:
            found = classify(name, self._num_layers)
        except KeyError:  # the model's own affair: it is loaded or refused
            kind, is_draft = TensorClass.FLOATS, False
        else:
            if found is None or (found.is_draft and not with_draft_layer):
                return
            kind, is_draft = found.kind, found.is_draft
        if name == _HEAD and self._is_tied:
            return
        form = weight_form(self._checkpoint, name)
        group = "draft layer" if is_draft else _GROUPS[kind]
        self.resident[group] += form.nbytes
        if is_draft or (name == _EMBEDDING and not self._is_tied):
            return  # of the embedding a token reads one row
        self.token[form.kind] = self.token[form.kind].plus(form)
        if name in {_HEAD, _EMBEDDING}:
            self.head[form.kind] = self.head[form.kind].plus(form)

    def _add_expert(self, key: tuple[int, str], number: int, name: str) -> None:
        if name.endswith(".bias"):
            self.resident["routers and norms"] += weight_form(self._checkpoint, name).nbytes
            return
        self._counts[key].add(number)
        if number == 0:  # all experts of a layer are alike
            form = weight_form(self._checkpoint, name)
            kinds = self._experts.setdefault(key, defaultdict(Amount))
            kinds[form.kind] = kinds[form.kind].plus(form)
            if name.endswith("gate_proj.weight"):
                self.expert_width = self._checkpoint.shape(name)[0]

    def expert_layers(self) -> list[ExpertLayer]:
        """Return the layers with routed experts in order."""
        found = []
        for (layer, prefix), numbers in sorted(self._counts.items()):
            stored = self._records.get(prefix)
            record_bytes = None if stored is None else stored.record.nbytes
            kinds = dict(self._experts.get((layer, prefix), {}))
            found.append(ExpertLayer(layer, len(numbers), kinds, record_bytes))
        return found


def _position_macs(layouts: list[LayerLayout], num_heads: object) -> int:
    """Return products with keys and with values; a latent stands for both, of every head."""
    heads = num_heads if isinstance(num_heads, int) else 1
    return sum(2 * heads * (layout.latent_dim or layout.head_dim) for layout in layouts)
