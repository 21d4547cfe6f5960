"""How the files of an architecture spell and pack what its model reads: one function for each.

A function is given the tensors of the files with their shapes and returns the parts to show; what
it leaves out is shown as it is stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from colibri_engine.loader.parts import Part, PartTensors
from colibri_engine.loader.stacks import Stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from colibri_engine.loader.shards import ShardSet

# Where the published names of Inkling and those of transformers differ; applied in this order.
_INKLING_SPELLINGS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^model\.(?:llm|language_model)\.", "model."),
        (r"^model\.embed\.weight$", "model.embed_tokens.weight"),
        (r"^model\.embed_norm\.weight$", "model.embed_tokens.embed_norm.weight"),
        (r"^model\.unembed\.weight$", "lm_head.weight"),
        (r"\.attn_norm\.", ".input_layernorm."),
        (r"\.mlp_norm\.", ".post_attention_layernorm."),
        (r"\.attn\.w([qkvr])_d[uv]\.", r".self_attn.\1_proj."),
        (r"\.attn\.wo_ud\.", ".self_attn.o_proj."),
        (r"\.attn\.", ".self_attn."),
        (r"_sconv\.weight$", "_sconv.conv1d.weight"),
        (r"\.mlp\.w13_dn\.weight$", ".mlp.w13_weight"),
        (r"\.mlp\.w2_md\.", ".mlp.down_proj."),
        (r"\.shared_experts\.shared_w", ".shared_experts.w"),
        (r"\.w2_weight$", ".down_proj"),
        (r"\.gate\.bias$", ".gate.e_score_correction_bias"),
    )
)
_INKLING: Final = re.compile(r"(?:model\.(?:layers|embed_tokens|norm)\.|lm_head\.).+")
_INKLING_STACK: Final = re.compile(
    r"(.+\.(?:shared_)?experts)\.(w13_weight|gate_up_proj|gate_proj|up_proj|down_proj)"
)

_MAX_EXPERTS: Final = 1 << 16

_GPT_OSS: Final = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(gate_up|down)_proj(_bias)?")


def published_parts(model_type: str, shards: ShardSet, names: Collection[str]) -> PartTensors:
    """Return what to show of the files of one architecture; nothing for most.

    Args:
        model_type: The architecture.
        shards: The files.
        names: Tensors in them that no other source claims.

    Raises:
        CheckpointError: blocks and scales in the files do not belong together.
    """
    stacks = Stacks(shards, names)
    show = _SHOWN.get(model_type)
    return PartTensors(stacks, {} if show is None else show(stacks))


def _gpt_oss(stacks: Stacks) -> dict[str, Part]:
    """Stacks of experts: gate and up interleaved; floats as [inputs, outputs], blocks not."""
    parts: dict[str, Part] = {}
    for name, shape in stacks.shapes.items():
        match = _GPT_OSS.fullmatch(name)
        if match is None:
            continue
        prefix, kind, is_bias = match.groups()
        transposed = not is_bias and name not in stacks.blocks
        if len(shape) != (2 if is_bias else 3) or not _is_stack(shape):
            continue  # refused where the model looks for its parts
        sizes = shape[:0:-1] if transposed else shape[1:]  # outputs first
        projections = ("gate_proj", "up_proj") if kind == "gate_up" else ("down_proj",)
        of = len(projections)
        if sizes[0] % of:
            continue
        own = (sizes[0] // of, *sizes[1:])
        last = "bias" if is_bias else "weight"
        for expert in range(shape[0]):
            for place, projection in enumerate(projections):
                parts[f"{prefix}.{expert}.{projection}.{last}"] = Part(
                    name, own, expert, place, of, interleaved=True, transposed=transposed
                )
    return parts


def _inkling(stacks: Stacks) -> dict[str, Part]:
    """Two spellings; gate and up interleaved (w13) or one after the other (gate_up_proj)."""
    parts: dict[str, Part] = {}
    for stored, shape in stacks.shapes.items():
        name = stored
        for pattern, replacement in _INKLING_SPELLINGS:
            name = pattern.sub(replacement, name)
        stack = _INKLING_STACK.fullmatch(name)
        if stack is not None and len(shape) == 3 and _is_stack(shape):
            prefix, kind = stack.groups()
            for expert in range(shape[0]):
                parts |= _gate_up(stored, f"{prefix}.{expert}", kind, shape[1:], expert)
        elif name.endswith(".mlp.w13_weight") and len(shape) == 2:
            prefix, _, kind = name.rpartition(".")
            parts |= _gate_up(stored, prefix, kind, shape, None)
        elif _INKLING.fullmatch(name):
            parts[name] = Part(stored, shape)
    return parts


def _is_stack(shape: tuple[int, ...]) -> bool:
    """Return whether these can be experts: an empty tensor may claim any number of them."""
    return shape[0] <= _MAX_EXPERTS and 0 not in shape


def _gate_up(
    stored: str, prefix: str, kind: str, shape: tuple[int, ...], index: int | None
) -> dict[str, Part]:
    """Return what one matrix of a gated block holds: gate and up, or one projection."""
    if kind not in ("w13_weight", "gate_up_proj"):
        return {f"{prefix}.{kind}.weight": Part(stored, shape, index)}
    if shape[0] % 2:
        return {}
    own = (shape[0] // 2, *shape[1:])
    return {
        f"{prefix}.{projection}_proj.weight": Part(
            stored, own, index, place, of=2, interleaved=kind == "w13_weight"
        )
        for place, projection in enumerate(("gate", "up"))
    }


_SHOWN: Final[dict[str, Callable[[Stacks], dict[str, Part]]]] = {
    "gpt_oss": _gpt_oss,
    "inkling_mm_model": _inkling,
    "inkling_text": _inkling,
}
