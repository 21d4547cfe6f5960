"""Which class a tensor belongs to, by its published name.

A name that no rule knows stops a conversion: it may belong to a feature that would be lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class TensorClass(StrEnum):
    """What decides about the number format. The values are what users read in the plan."""

    IO = "embedding and head"
    EXPERT = "routed experts"
    SHARED = "shared experts"
    OUTPUT = "attention output"
    KV_B = "latent keys and values"
    ATTENTION = "attention"
    DENSE = "dense feed-forward"
    INDEXER = "indexer"
    DRAFT = "draft layers"
    DRAFT_PROJECTION = "draft projection"
    FLOATS = "norms, biases, routers"


@dataclass(frozen=True, slots=True)
class ClassifiedTensor:
    """One tensor of the source.

    Args:
        name: Its published name.
        kind: Its class.
        layer: Its layer, -1 before the first and after the last.
        is_draft: It belongs to a layer beyond the model's own.
        prefix: For a routed expert, its name up to the expert's number.
        expert: The expert's number, else -1.
        part: The expert's matrix ("gate_proj"), else "".
    """

    name: str
    kind: TensorClass
    layer: int = -1
    is_draft: bool = False
    prefix: str = ""
    expert: int = -1
    part: str = ""


_LAYER: Final = re.compile(r"model\.layers\.([0-9]{1,4})\.(.+)")
_EXPERT: Final = re.compile(
    r"(model\.layers\.[0-9]{1,4}\.mlp\.experts)\.([0-9]{1,5})\.(gate_proj|up_proj|down_proj)\.weight"
)
_TOP: Final = {
    "model.embed_tokens.weight": TensorClass.IO,
    "lm_head.weight": TensorClass.IO,
    "model.embed_tokens.embed_norm.weight": TensorClass.FLOATS,
    "model.norm.weight": TensorClass.FLOATS,
}
# What follows "model.layers.N."; the first rule that matches counts.
_RULES: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(.+\.|)[a-z_]*norm\.(weight|bias)", TensorClass.FLOATS),
        (r"self_attn\.[a-z_]+\.bias", TensorClass.FLOATS),
        (r"self_attn\.(sinks|rel_logits_proj\.proj)", TensorClass.FLOATS),
        (r"(self_attn\.)?[a-z]+_sconv\.conv1d\.weight", TensorClass.FLOATS),
        (r"mlp\.gate\.(weight|e_score_correction_bias|global_scale)", TensorClass.FLOATS),
        (r"mlp\.router\.(weight|bias)", TensorClass.FLOATS),
        (r"mlp\.global_scale", TensorClass.FLOATS),
        (r"mlp\.experts\.[0-9]{1,5}\.(gate|up|down)_proj\.bias", TensorClass.FLOATS),
        (r"mlp\.shared_experts\.([0-9]{1,2}\.)?(gate|up|down)_proj\.weight", TensorClass.SHARED),
        (r"mlp\.(gate|up|down)_proj\.weight", TensorClass.DENSE),
        (r"mlp\.(gate|up|down)_proj\.bias", TensorClass.FLOATS),
        (r"self_attn\.o_proj\.weight", TensorClass.OUTPUT),
        (r"self_attn\.(kv|k|v)_b_proj\.weight", TensorClass.KV_B),
        (r"self_attn\.(q|k|v|r|q_a|q_b)_proj\.weight", TensorClass.ATTENTION),
        (r"self_attn\.kv_a_proj_with_mqa\.weight", TensorClass.ATTENTION),
        (r"self_attn\.indexer\.(wq_b|wk|weights_proj)\.weight", TensorClass.INDEXER),
        (r"eh_proj\.weight", TensorClass.DRAFT_PROJECTION),
    )
)
# Parts of a model that texts do not need, and drafts of another kind than a further layer.
_OTHER_PARTS: Final = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|audio|audio_tower|multi_modal_projector|mtp)\..+"
)
# Copies that draft layers carry of the model's own, and tables that follow from the configuration.
_DRAFT_COPIES: Final = re.compile(r"(embed_tokens|shared_head\.head)\.weight")
_DERIVED: Final = re.compile(r"(.+\.)?rotary_emb\.inv_freq")


def classify(name: str, num_layers: int) -> ClassifiedTensor | None:
    """Return a tensor with its class; None for what is left out of every container.

    Args:
        name: Its published name.
        num_layers: Layers of the model, draft layers not counted.

    Raises:
        KeyError: no rule knows the name.
    """
    if name in _TOP:
        return ClassifiedTensor(name, _TOP[name])
    match = _LAYER.fullmatch(name)
    if match is None:
        if _DERIVED.fullmatch(name) or _OTHER_PARTS.fullmatch(name):
            return None
        raise KeyError(name)
    layer, rest = int(match.group(1)), match.group(2)
    is_draft = layer >= num_layers
    if _DERIVED.fullmatch(rest) or (is_draft and _DRAFT_COPIES.fullmatch(rest)):
        return None
    expert = _EXPERT.fullmatch(name)
    if expert is not None:
        prefix, number, part = expert.groups()
        return ClassifiedTensor(
            name, TensorClass.EXPERT, layer, is_draft, prefix, int(number), part
        )
    for pattern, kind in _RULES:
        if pattern.fullmatch(rest):
            return ClassifiedTensor(name, kind, layer, is_draft)
    raise KeyError(name)


def classify_all(
    names: Iterable[str], num_layers: int, path: Path
) -> tuple[list[ClassifiedTensor], list[str]]:
    """Return all tensors in the order of the model, and the names of what is left out.

    Raises:
        CheckpointError: no rule knows a name; it is named.
    """
    found: list[ClassifiedTensor] = []
    left_out: list[str] = []
    for name in names:
        try:
            tensor = classify(name, num_layers)
        except KeyError:
            raise CheckpointError(
                f"tensor {name} of {path} has no place in a container: no rule knows its name",
                path=path,
                tensor=name,
                hint="the model uses a feature this version does not implement",
            ) from None
        if tensor is None:
            left_out.append(name)
        else:
            found.append(tensor)
    return sorted(found, key=_place), left_out


def _place(tensor: ClassifiedTensor) -> tuple[int, int, int, str]:
    """Sort as the model runs: embedding, layers, last norm, head; drafts at the end."""
    if tensor.name == "model.embed_tokens.weight":
        return (0, 0, 0, "")
    if tensor.layer < 0:
        return (2, 0, 0, tensor.name)
    return (3 if tensor.is_draft else 1, tensor.layer, tensor.expert, tensor.name)
