"""Which tensor of a GGUF file is which tensor of a published checkpoint.

The names on the left are facts of the GGUF format, those on the right of Hugging Face
checkpoints. Fused expert tensors show up as one matrix per expert, and rows that `llama` files hold
in interleaved-rotary order are listed with what undoes it. The halves into which newer files cut
`kv_b_proj` keep their shapes, all heads below each other: `k_b_proj`, whose heads are transposed,
and `v_b_proj`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.loader.gguf import GgufTensor

_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_ATTENTION: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_QK_NORMS: Final = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_MLP: Final = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FFN_NORM: Final = {"ffn_norm": "post_attention_layernorm"}
_POST_NORM: Final = {"post_attention_norm": "post_attention_layernorm"}
_GATE: Final = {"ffn_gate_inp": "mlp.gate"}
_SHARED: Final = {
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_DRAFT: Final = {
    "nextn.eh_proj": "eh_proj",
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.embed_tokens": "embed_tokens",
    "nextn.shared_head_head": "shared_head.head",
    "nextn.shared_head_norm": "shared_head.norm",
}
_LATENT: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_output": "self_attn.o_proj",
}
_INDEXER: Final = {
    "indexer.attn_q_b": "self_attn.indexer.wq_b",
    "indexer.attn_k": "self_attn.indexer.wk",
    "indexer.k_norm": "self_attn.indexer.k_norm",
    "indexer.proj": "self_attn.indexer.weights_proj",
}
_DEEPSEEK2: Final = {**_LATENT, **_MLP, **_FFN_NORM, **_GATE, **_SHARED, **_DRAFT}

# Blocks of a layer whose `.weight` and `.bias` keep their last part.
_BLOCKS: Final = {
    "llama": {**_ATTENTION, **_MLP, **_FFN_NORM},
    "olmoe": {**_ATTENTION, **_QK_NORMS, **_FFN_NORM, **_GATE},
    "qwen3moe": {**_ATTENTION, **_QK_NORMS, **_FFN_NORM, **_GATE},
    "glm4moe": {
        **_ATTENTION, **_QK_NORMS, **_MLP, **_POST_NORM, **_GATE, **_SHARED, **_DRAFT,
    },
    "deepseek2": _DEEPSEEK2,
    "glm-dsa": {**_DEEPSEEK2, **_INDEXER},
    "gpt-oss": {**_ATTENTION, **_POST_NORM, "ffn_gate_inp": "mlp.router"},
}  # fmt: skip

# Tensors of a layer whose whole name changes.
_CORRECTION: Final = {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
_RENAMED: Final[dict[str, dict[str, str]]] = {
    "glm4moe": _CORRECTION,
    "deepseek2": _CORRECTION,
    "glm-dsa": _CORRECTION,
    "gpt-oss": {"attn_sinks.weight": "self_attn.sinks"},
}

# Fused expert tensors: the projections that share their rows, in that order.
_EXPERTS: Final = {
    "ffn_gate_exps": ("gate_proj",),
    "ffn_up_exps": ("up_proj",),
    "ffn_down_exps": ("down_proj",),
    "ffn_gate_up_exps": ("gate_proj", "up_proj"),
}
_DENSE: Final = frozenset({"llama"})
_MAX_EXPERTS: Final = 4096
_LAYER: Final = re.compile(r"blk\.(0|[1-9][0-9]{0,3})\.(.+)\.(weight|bias)")
_HALVES: Final = {"attn_k_b": "self_attn.k_b_proj", "attn_v_b": "self_attn.v_b_proj"}
_LATENTS: Final = frozenset({"deepseek2", "glm-dsa"})

# Derived data that the configuration already carries.
ROPE_FACTORS: Final = "rope_freqs.weight"
_UNUSED: Final = re.compile(r"blk\.[0-9]+\.attn_rot_embd(\.weight)?|rope_freqs\.weight")


@dataclass(frozen=True, slots=True)
class TensorView:
    """Part of a stored tensor, under its published name.

    Args:
        tensor: The stored tensor.
        shape: Sizes, outermost first.
        first_row: First row, outer dimensions counted as one.
        num_rows: How many rows.
        rotary_heads: Heads whose rows are in interleaved order, or 0.
    """

    tensor: GgufTensor
    shape: tuple[int, ...]
    first_row: int
    num_rows: int
    rotary_heads: int = 0


def published_views(
    architecture: str, tensors: Mapping[str, GgufTensor], *, num_heads: int, num_kv_heads: int
) -> dict[str, TensorView]:
    """Return every tensor under its published name.

    Args:
        architecture: The file's `general.architecture`.
        tensors: The file's tensors by name.
        num_heads: Query heads.
        num_kv_heads: Key heads.

    Raises:
        UnsupportedModel: a tensor is not part of the architecture.
    """
    views: dict[str, TensorView] = {}
    rotary = {"attn_q": num_heads, "attn_k": num_kv_heads} if architecture == "llama" else {}
    for name, tensor in tensors.items():
        if name in _TOP:
            views[_TOP[name]] = _whole(tensor)
            continue
        match = _LAYER.fullmatch(name)
        if match is None:
            if _UNUSED.fullmatch(name):
                continue
            raise _unknown(name, architecture)
        layer, block, suffix = match.groups()
        prefix = f"model.layers.{layer}."
        table = _BLOCKS[architecture]
        renamed = _RENAMED.get(architecture, {}).get(f"{block}.{suffix}")
        if block in table and len(tensor.shape) <= 2:
            views[f"{prefix}{table[block]}.{suffix}"] = _whole(tensor, rotary.get(block, 0))
        elif renamed is not None:
            views[prefix + renamed] = _whole(tensor)
        elif block in _EXPERTS and architecture not in _DENSE:
            views |= _expert_views(tensor, f"{prefix}mlp.experts", architecture)
        elif architecture in _LATENTS and block in _HALVES and len(tensor.shape) == 3:
            heads, rows, inputs = tensor.shape
            views[f"{prefix}{_HALVES[block]}.{suffix}"] = TensorView(
                tensor, (heads * rows, inputs), 0, heads * rows
            )
        elif not _UNUSED.fullmatch(name):
            raise _unknown(name, architecture)
    return views


def _expert_views(tensor: GgufTensor, prefix: str, architecture: str) -> dict[str, TensorView]:
    """Cut a fused tensor, (experts, rows, inputs) or (experts, biases), into its experts' parts."""
    _, _, rest = tensor.name.split(".", 2)
    block, suffix = rest.rsplit(".", 1)
    parts = _EXPERTS[block]
    rank = 3 if suffix == "weight" else 2
    if len(tensor.shape) != rank or tensor.shape[0] > _MAX_EXPERTS:
        raise _unknown(tensor.name, architecture)
    num_rows = tensor.shape[1] if rank == 3 else 1
    if num_rows % len(parts) or (rank == 2 and len(parts) > 1):
        raise _unknown(tensor.name, architecture)
    step = num_rows // len(parts)
    shape = (step, tensor.shape[2]) if rank == 3 else (tensor.shape[1],)
    return {
        f"{prefix}.{expert}.{part}.{suffix}": TensorView(
            tensor, shape, expert * num_rows + place * step, step
        )
        for expert in range(tensor.shape[0])
        for place, part in enumerate(parts)
    }


def _whole(tensor: GgufTensor, rotary_heads: int = 0) -> TensorView:
    num_rows = 1
    for size in tensor.shape[:-1]:
        num_rows *= size
    return TensorView(tensor, tensor.shape, 0, num_rows, rotary_heads)


def _unknown(name: str, architecture: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"the tensor {name} is not part of the architecture {architecture} as implemented here",
        hint="the file holds a variant of the model that is not supported",
    )
