"""Tiny random models on disk, as directories of safetensors files; `tiny_gguf` writes GGUF files.

No reference library is needed. Every writer returns the weights a reader must find, as float32
under their published names, after whatever rounding the file's number format does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colibri_engine.quant.e4m3 import E4M3, scale_blocks
from colibri_engine.quant.registry import FORMATS
from colibri_engine.tokenizer import _BYTES

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Weights = dict[str, Floats]

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>")
PLAIN_ADDED_TOKENS = ("<think>", "</think>")
MERGED = ("he", "ll", "hell", "hello", "Ġt", "Ġw", "or", "Ġwor", "ld", "Ġworld", "in", "Ġa", "20")


@dataclass
class TinyCheckpoint:
    """What was written.

    Args:
        path: The directory or file.
        config: As in `config.json`.
        weights: Published name -> values a reader must find.
    """

    path: Path
    config: dict[str, Any]
    weights: Weights = field(default_factory=dict)


# ---- tokenizer ----------------------------------------------------------------------------------


def vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Return tokens by id, control tokens first, and merges of a byte-level BPE."""
    tokens = [*CONTROL_TOKENS, *PLAIN_ADDED_TOKENS, *_BYTES]
    merges: list[tuple[str, str]] = []
    for merged in MERGED:
        known = set(tokens)
        cut = next(
            place
            for place in range(len(merged) - 1, 0, -1)
            if merged[:place] in known and merged[place:] in known
        )
        merges.append((merged[:cut], merged[cut:]))
        tokens.append(merged)
    return tokens, merges


def tokenizer_json() -> dict[str, Any]:
    """Return the contents of a `tokenizer.json` with the split rule of SmolLM2."""
    tokens, merges = vocabulary()
    ids = {token: place for place, token in enumerate(tokens)}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token in CONTROL_TOKENS,
            }
            for token in (*CONTROL_TOKENS, *PLAIN_ADDED_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": [" ".join(pair) for pair in merges],
        },
    }


VOCAB_SIZE = len(vocabulary()[0])


# ---- configurations and weights -----------------------------------------------------------------


# What each family adds to or changes in the common configuration.
_LATENT: dict[str, Any] = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 32,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
}


_SPARSE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "index_topk": 8,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "index_topk_freq": 2,
    "index_skip_topk_offset": 2,
    "num_nextn_predict_layers": 1,
}


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "olmoe": {
        "num_key_value_heads": 4,
        "intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
    },
    "qwen3_moe": {
        "head_dim": 32,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
    },
    "glm4_moe": {
        "head_dim": 32,
        "attention_bias": True,
        "use_qk_norm": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 0,
    },
    "deepseek_v3": _LATENT,
    "kimi_k2": _LATENT,
    "glm_moe_dsa": {**_LATENT, **_SPARSE},
}


def is_mixture(config: dict[str, Any], layer: int) -> bool:
    """Tell whether a layer of the model is a mixture of experts."""
    if config["model_type"] == "llama":
        return False
    return layer >= int(config.get("first_k_dense_replace", 0))


def tiny_config(family: str, **changes: object) -> dict[str, Any]:
    """Return the configuration of a tiny model of `family`, a key of `FAMILIES`."""
    config: dict[str, Any] = {
        "model_type": family,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return config | FAMILIES[family] | changes


class _WeightDrawer:
    """Draws the weights of one model, in the order of the file."""

    def __init__(self, config: dict[str, Any], seed: int) -> None:
        self.config = config
        self.weights: Weights = {}
        self._rng = np.random.default_rng(seed)

    def draw(self, name: str, *shape: int, scale: float, mean: float = 0.0) -> None:
        values = mean + scale * self._rng.standard_normal(shape)
        self.weights[name] = values.astype(np.float32)

    def matrix(self, name: str, outputs: int, inputs: int) -> None:
        self.draw(f"{name}.weight", outputs, inputs, scale=inputs**-0.5)

    def norm(self, name: str, width: int) -> None:
        self.draw(f"{name}.weight", width, scale=0.1, mean=1.0)

    def attention(self, prefix: str) -> None:
        config = self.config
        C, D = config["hidden_size"], config["head_dim"]
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
        heads["v"] = heads["k"]
        for part, count in heads.items():
            self.matrix(f"{prefix}.{part}_proj", count * D, C)
            if config["attention_bias"]:
                self.draw(f"{prefix}.{part}_proj.bias", count * D, scale=0.1)
            if part != "v" and (width := self._norm_width(count)):
                self.norm(f"{prefix}.{part}_norm", width)
        self.matrix(f"{prefix}.o_proj", C, heads["q"] * D)

    def _norm_width(self, num_heads: int) -> int:
        """Channels over which q or k is normalised; 0 where the model does not."""
        config = self.config
        if config["model_type"] == "olmoe":
            return num_heads * int(config["head_dim"])
        has_norm = config["model_type"] == "qwen3_moe" or config.get("use_qk_norm")
        return int(config["head_dim"]) if has_norm else 0

    def latent_attention(self, prefix: str) -> None:
        config = self.config
        C, H, R = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
        key, turned = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        queries = C
        if config["q_lora_rank"]:
            queries = config["q_lora_rank"]
            self.matrix(f"{prefix}.q_a_proj", queries, C)
            self.norm(f"{prefix}.q_a_layernorm", queries)
        name = "q_b_proj" if config["q_lora_rank"] else "q_proj"
        self.matrix(f"{prefix}.{name}", H * (key + turned), queries)
        self.matrix(f"{prefix}.kv_a_proj_with_mqa", R + turned, C)
        self.norm(f"{prefix}.kv_a_layernorm", R)
        self.matrix(f"{prefix}.kv_b_proj", H * (key + config["v_head_dim"]), R)
        self.matrix(f"{prefix}.o_proj", C, H * config["v_head_dim"])

    def indexer(self, prefix: str) -> None:
        config = self.config
        heads, dim = config["index_n_heads"], config["index_head_dim"]
        self.matrix(f"{prefix}.wq_b", heads * dim, config["q_lora_rank"])
        self.matrix(f"{prefix}.wk", dim, config["hidden_size"])
        self.norm(f"{prefix}.k_norm", dim)
        self.draw(f"{prefix}.k_norm.bias", dim, scale=0.1)
        self.matrix(f"{prefix}.weights_proj", heads, config["hidden_size"])

    def layer(self, layer: int) -> None:
        config, prefix = self.config, f"model.layers.{layer}"
        C, L = config["hidden_size"], config["num_hidden_layers"]
        self.norm(f"{prefix}.input_layernorm", C)
        if "kv_lora_rank" in config:
            self.latent_attention(f"{prefix}.self_attn")
        else:
            self.attention(f"{prefix}.self_attn")
        if "index_topk" in config:
            past = max(layer - config["index_skip_topk_offset"] + 1, 0)
            if past % config["index_topk_freq"] == 0 or layer == L:
                self.indexer(f"{prefix}.self_attn.indexer")
        self.norm(f"{prefix}.post_attention_layernorm", C)
        if is_mixture(config, layer):
            self.mixture(f"{prefix}.mlp")
        else:
            self.mlp(f"{prefix}.mlp", config["intermediate_size"])

    def draft_layer(self, layer: int) -> None:
        prefix, C = f"model.layers.{layer}", self.config["hidden_size"]
        self.layer(layer)
        self.norm(f"{prefix}.enorm", C)
        self.norm(f"{prefix}.hnorm", C)
        self.matrix(f"{prefix}.eh_proj", C, 2 * C)
        self.norm(f"{prefix}.shared_head.norm", C)

    def mlp(self, prefix: str, width: int) -> None:
        C = self.config["hidden_size"]
        self.matrix(f"{prefix}.gate_proj", width, C)
        self.matrix(f"{prefix}.up_proj", width, C)
        self.matrix(f"{prefix}.down_proj", C, width)

    def mixture(self, prefix: str) -> None:
        config = self.config
        E = config["n_routed_experts" if "n_routed_experts" in config else "num_experts"]
        F = config.get("moe_intermediate_size", config["intermediate_size"])
        self.matrix(f"{prefix}.gate", E, config["hidden_size"])
        if "n_shared_experts" in config:
            self.draw(f"{prefix}.gate.e_score_correction_bias", E, scale=0.2)
            self.mlp(f"{prefix}.shared_experts", F * config["n_shared_experts"])
        for expert in range(E):
            self.mlp(f"{prefix}.experts.{expert}", F)


def tiny_weights(config: dict[str, Any], seed: int = 0) -> Weights:
    """Return random weights that give logits of about unit size.

    Matrices N(0, 1 / inputs), the embedding N(0, 1) or N(0, 1 / width) when tied, norms
    1 + 0.1 N, biases 0.1 N, the router's correction 0.2 N.
    """
    drawer = _WeightDrawer(config, seed)
    C, V, L = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    tied = config["tie_word_embeddings"]
    drawer.draw("model.embed_tokens.weight", V, C, scale=C**-0.5 if tied else 1.0)
    for layer in range(L):
        drawer.layer(layer)
    for draft in range(config.get("num_nextn_predict_layers", 0)):
        drawer.draft_layer(L + draft)
    drawer.norm("model.norm", C)
    if not tied:
        drawer.matrix("lm_head", V, C)
    return drawer.weights


# ---- safetensors --------------------------------------------------------------------------------

StoredArray = tuple[str, tuple[int, ...], bytes]  # dtype, shape, data


def write_safetensors(
    path: Path,
    tensors: dict[str, StoredArray],
    metadata: dict[str, str] | None = None,
    *,
    alignment: int = 8,
) -> None:
    """Write one safetensors file, its data beginning at a multiple of `alignment`."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % alignment)
    body = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def store_float(values: Floats, dtype: str) -> tuple[StoredArray, Floats]:
    """Return values as F32, F16 or BF16, and what a reader must find."""
    number_format = FORMATS[dtype.lower()]
    assert number_format.pack is not None
    raw = number_format.pack(values.reshape(1, -1))
    return (dtype, values.shape, raw.tobytes()), number_format.unpack(raw).reshape(values.shape)


def store_fp8(values: Floats, block: tuple[int, int]) -> tuple[StoredArray, StoredArray, Floats]:
    """Return codes and block scales of a matrix, and the exact product."""
    rows, columns = (-(-size // step) for size, step in zip(values.shape, block, strict=True))
    scales = np.empty((rows, columns), np.float32)
    for row in range(rows):
        for column in range(columns):
            part = values[
                row * block[0] : (row + 1) * block[0], column * block[1] : (column + 1) * block[1]
            ]
            scales[row, column] = np.abs(part).max() / 448
    scaled = scale_blocks(values.copy(), (1 / scales).astype(np.float32), block)
    order = np.argsort(E4M3[:127])  # codes of the values from 0 to 448, ascending
    nearest = np.abs(np.abs(scaled)[..., None] - E4M3[order]).argmin(axis=-1)
    codes = (order[nearest] | np.where(scaled < 0, 0x80, 0)).astype(np.uint8)
    exact = scale_blocks(E4M3[codes], scales, block)
    return (
        ("F8_E4M3", values.shape, codes.tobytes()),
        ("F32", scales.shape, scales.tobytes()),
        exact,
    )


def store_mxfp4(values: Floats) -> tuple[Bytes, Bytes, Floats]:
    """Return stacks of matrices (E, O, I) as blocks (E, O, I / 32, 16), scales, and exact values.

    The even input of a pair stands in the low nibble; a scale is a power of two, biased by 127.
    """
    groups = values.reshape(*values.shape[:2], -1, 32)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    exponent = np.floor(np.log2(largest)) - 2  # the largest code is 6 = 1.5 * 2^2
    steps = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scaled = groups / 2.0**exponent
    codes = np.abs(np.abs(scaled)[..., None] - steps).argmin(axis=-1)
    exact = np.sign(scaled) * steps[codes] * 2.0**exponent
    nibbles = (codes | np.where(scaled < 0, 8, 0)).astype(np.uint8)
    blocks = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    scales = (exponent[..., 0] + 127).astype(np.uint8)
    return blocks, scales, exact.reshape(values.shape).astype(np.float32)


def write_hf(
    directory: Path,
    family: str = "llama",
    *,
    dtype: str = "F32",
    num_shards: int = 1,
    seed: int = 0,
    fp8_block: tuple[int, int] = (128, 128),
    **changes: object,
) -> TinyCheckpoint:
    """Write a model directory as published on Hugging Face.

    Args:
        directory: Made if absent.
        family: A key of `FAMILIES`.
        dtype: "F32", "F16", "BF16", or "F8_E4M3" (matrices of the layers in fp8, else BF16).
        num_shards: Weight files; with more than one comes an index.
        seed: Of the weights.
        fp8_block: Rows and columns that share an fp8 scale.
        changes: Configuration keys that differ from `tiny_config`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = tiny_config(family, **changes)
    stored: dict[str, StoredArray] = {}
    expected: Weights = {}
    for name, values in tiny_weights(config, seed).items():
        in_layer = name.startswith("model.layers.") and ".mlp.gate." not in name
        if dtype == "F8_E4M3" and values.ndim == 2 and in_layer:
            stored[name], stored[f"{name}_scale_inv"], expected[name] = store_fp8(values, fp8_block)
        else:
            keep = name.endswith("e_score_correction_bias")
            plain = "F32" if keep else "BF16" if dtype == "F8_E4M3" else dtype
            stored[name], expected[name] = store_float(values, plain)
    if dtype == "F8_E4M3":
        config["quantization_config"] = {
            "quant_method": "fp8",
            "weight_block_size": list(fp8_block),
            "activation_scheme": "dynamic",
        }
    _write_shards(directory, stored, num_shards)
    write_json(directory / "config.json", config)
    write_json(
        directory / "generation_config.json",
        {"eos_token_id": [2, 0], "do_sample": True, "temperature": 0.7},
    )
    write_json(directory / "tokenizer.json", tokenizer_json())
    write_json(
        directory / "tokenizer_config.json",
        {
            "bos_token": "<|im_start|>",
            "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    return TinyCheckpoint(directory, config, expected)


def write_checkpoint(
    directory: Path,
    config: dict[str, Any],
    weights: Weights,
    stored: dict[str, StoredArray] | None = None,
) -> Path:
    """Write these weights as float32 in the published layout; return the directory.

    Args:
        directory: Made if absent.
        config: Contents of `config.json`.
        weights: By published name.
        stored: Tensors beside them, as they are to stand in the file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    plain = {name: store_float(values, "F32")[0] for name, values in weights.items()}
    _write_shards(directory, plain | (stored or {}), 1)
    write_json(directory / "config.json", config)
    write_json(directory / "tokenizer.json", tokenizer_json())
    return directory


def write_json(path: Path, body: object) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")


def _write_shards(directory: Path, stored: dict[str, StoredArray], num_shards: int) -> None:
    if num_shards == 1:
        write_safetensors(directory / "model.safetensors", stored, {"format": "pt"})
        return
    homes: dict[str, str] = {}
    names = list(stored)
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = {name: stored[name] for name in names[shard::num_shards]}
        write_safetensors(directory / file, part, {"format": "pt"})
        homes.update(dict.fromkeys(part, file))
    total = sum(len(data) for _, _, data in stored.values())
    write_json(
        directory / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": homes},
    )
