"""Tiny random models as GGUF files, written by our own writer.

Every writer returns the weights a reader must find, as float32 under their published names, after
whatever rounding the file's number format does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colibri_engine.loader.gguf import TYPES
from colibri_engine.loader.gguf_writer import MetadataValue, TensorPlan, write_gguf
from colibri_engine.quant.registry import FORMATS
from tests.fakes.tiny_checkpoint import (
    CHAT_TEMPLATE,
    CONTROL_TOKENS,
    PLAIN_ADDED_TOKENS,
    Floats,
    TinyCheckpoint,
    Weights,
    tiny_config,
    tiny_weights,
    vocabulary,
)

ARCHITECTURES = {
    "llama": "llama",
    "olmoe": "olmoe",
    "qwen3_moe": "qwen3moe",
    "glm4_moe": "glm4moe",
}

_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_GGUF_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf_model(
    path: Path,
    family: str = "llama",
    *,
    type_name: str = "Q8_0",
    seed: int = 0,
    metadata: dict[str, MetadataValue | None] | None = None,
    leave_out: tuple[str, ...] = (),
    num_parts: int = 1,
    **changes: object,
) -> TinyCheckpoint:
    """Write a model as one GGUF file.

    Args:
        path: The file.
        family: A key of `ARCHITECTURES`.
        type_name: Number format of the matrices, router excepted; a type without `pack` gets
            random blocks. The width of every matrix must be a whole number of blocks.
        seed: Of the weights.
        metadata: Pairs that are added or replaced; None as a value leaves one out.
        leave_out: Tensors, by their name in the file, that are not written.
        num_parts: Files; with more than one, `path` gives their stem.
        changes: Configuration keys that differ from `tiny_config`.
    """
    config = tiny_config(family, **changes)
    rng = np.random.default_rng(seed + 1)
    plans: list[TensorPlan] = []
    expected: Weights = {}
    fused: dict[str, list[tuple[str, Floats]]] = {}

    def add(stored_name: str, values: Floats) -> Floats:
        is_matrix = values.ndim > 1 and "ffn_gate_inp" not in stored_name
        chosen = type_name if is_matrix else "F32"
        raw, found = encode_gguf(values, chosen, rng)
        if stored_name not in leave_out:
            plans.append(TensorPlan(stored_name, values.shape, chosen, lambda: raw))
        return found

    for name, values in tiny_weights(config, seed).items():
        stored_name = _gguf_name(name, family)
        if stored_name.endswith("_exps.weight"):
            fused.setdefault(stored_name, []).append((name, values))
        elif family == "llama" and (".attn_q." in stored_name or ".attn_k." in stored_name):
            part = "attention" if ".attn_q." in stored_name else "key_value"
            heads = config[f"num_{part}_heads"]
            found = add(stored_name, _interleave(values, heads))
            expected[name] = _deinterleave(found, heads)
        else:
            expected[name] = add(stored_name, values)
    for stored_name, members in fused.items():
        found = add(stored_name, np.stack([values for _, values in members]))
        expected |= {name: found[place] for place, (name, _) in enumerate(members)}
    pairs = gguf_metadata(config) | (metadata or {})
    kept = {key: value for key, value in pairs.items() if value is not None}
    if num_parts == 1:
        write_file(path, kept, plans)
        return TinyCheckpoint(path, config, expected)
    paths = [part_path(path, number, num_parts) for number in range(num_parts)]
    for number, home in enumerate(paths):
        place: dict[str, MetadataValue] = {
            "split.no": number,
            "split.count": num_parts,
            "split.tensors.count": len(plans),
        }
        write_file(home, place if number else place | kept, plans[number::num_parts])
    return TinyCheckpoint(paths[0], config, expected)


def part_path(path: Path, number: int, num_parts: int) -> Path:
    """Return the name of part `number` (from 0) of a model that would be `path` in one piece."""
    return path.with_name(f"{path.stem}-{number + 1:05d}-of-{num_parts:05d}.gguf")


def write_file(path: Path, metadata: dict[str, MetadataValue], plans: list[TensorPlan]) -> None:
    """Write one GGUF file."""
    with path.open("wb") as file:
        for _ in write_gguf(file, metadata, plans):
            pass


def encode_gguf(
    values: Floats, type_name: str, rng: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return the bytes of a tensor in one GGUF type, and what a reader must find."""
    number_format = FORMATS[type_name.lower()]
    rows = values.reshape(-1, values.shape[-1])
    if number_format.pack is not None:
        raw = number_format.pack(rows)
    else:
        raw = random_blocks(type_name, rows.shape[0], rows.shape[1], rng)
    return raw, number_format.unpack(raw).reshape(values.shape)


# Where a block keeps its float16 scales.
SCALE_OFFSETS = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


def random_blocks(
    type_name: str, rows: int, columns: int, rng: np.random.Generator, scale: float = 1e-3
) -> npt.NDArray[np.uint8]:
    """Return rows of random blocks: any codes, small finite scales of either sign."""
    block_size, block_bytes = next(block for name, *block in TYPES.values() if name == type_name)
    blocks = rng.integers(0, 256, (rows * columns // block_size, block_bytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[type_name]:
        scales = (scale * rng.standard_normal(len(blocks))).astype("<f2")
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def gguf_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a GGUF file with this configuration."""
    family = config["model_type"]
    arch = ARCHITECTURES[family]
    tokens, merges = vocabulary()
    kinds = [3] * len(CONTROL_TOKENS) + [4] * len(PLAIN_ADDED_TOKENS)
    kinds += [1] * (len(tokens) - len(kinds))
    rope = config["rope_parameters"]
    pairs: dict[str, Any] = {
        "general.architecture": arch,
        "general.name": f"tiny {family}",
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": config["head_dim"],
        f"{arch}.attention.value_length": config["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.rope.freq_base": rope["rope_theta"],
        f"{arch}.rope.dimension_count": int(
            config["head_dim"] * rope.get("partial_rotary_factor", 1.0)
        ),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    return pairs | _expert_metadata(config, arch)


def _expert_metadata(config: dict[str, Any], arch: str) -> dict[str, Any]:
    if config["model_type"] == "llama":
        return {}
    pairs = {
        f"{arch}.expert_used_count": config["num_experts_per_tok"],
        f"{arch}.expert_weights_norm": config["norm_topk_prob"],
    }
    if config["model_type"] != "glm4_moe":
        width = config.get("moe_intermediate_size", config["intermediate_size"])
        return pairs | {
            f"{arch}.expert_count": config["num_experts"],
            f"{arch}.expert_feed_forward_length": width,
        }
    return pairs | {
        f"{arch}.leading_dense_block_count": config["first_k_dense_replace"],
        f"{arch}.expert_count": config["n_routed_experts"],
        f"{arch}.expert_shared_count": config["n_shared_experts"],
        f"{arch}.expert_feed_forward_length": config["moe_intermediate_size"],
        f"{arch}.expert_weights_scale": config["routed_scaling_factor"],
        f"{arch}.expert_gating_func": 2,
    }


def _gguf_name(name: str, family: str) -> str:
    if name in _GGUF_TOP:
        return _GGUF_TOP[name]
    _, _, layer, rest = name.split(".", 3)
    if rest == "mlp.gate.e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    body, suffix = rest.rsplit(".", 1)
    if body.startswith("mlp.experts."):
        part = body.rsplit(".", 1)[1].removesuffix("_proj")
        return f"blk.{layer}.ffn_{part}_exps.weight"
    if body == "post_attention_layernorm":
        return f"blk.{layer}.{'post_attention' if family == 'glm4_moe' else 'ffn'}_norm.{suffix}"
    return f"blk.{layer}.{_GGUF_LAYER[body]}.{suffix}"


def _interleave(values: Floats, heads: int) -> Floats:
    """Reorder head rows from halves to neighbouring pairs, as llama files hold them."""
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _deinterleave(values: Floats, heads: int) -> Floats:
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
