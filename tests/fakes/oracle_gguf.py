"""Reference models as GGUF files, written with the `gguf` package: its writer, its names.

A saved checkpoint is cut into the tensors of a GGUF file as published converters do it. Each piece
knows the way back, so that a reference model can be given exactly the weights that a file of a
coarser number format holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file, save_file

from tests.fakes.tiny_checkpoint import CONTROL_TOKENS, PLAIN_ADDED_TOKENS, vocabulary
from tests.fakes.tiny_gguf import SCALE_OFFSETS, random_blocks

Floats = npt.NDArray[np.float32]
Weights = dict[str, Floats]

ARCHITECTURES = {
    "llama": "llama",
    "olmoe": "olmoe",
    "qwen3_moe": "qwen3moe",
    "glm4_moe": "glm4moe",
    "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2",
    "glm_moe_dsa": "glm-dsa",
    "gpt_oss": "gpt-oss",
}
_FINE = ("ffn_gate_inp", "indexer.proj")  # matrices that converters leave in float32


@dataclass(frozen=True)
class Piece:
    """One tensor of a file.

    Args:
        name: Its name there.
        values: float32.
        restore: From such values to published tensors.
    """

    name: str
    values: Floats
    restore: Callable[[Floats], Weights]


@dataclass(frozen=True)
class Encoded:
    """One tensor of a file in its number format.

    Args:
        piece: What was encoded.
        kind: The format.
        raw: Its bytes as rows, or the values themselves for F32 and F16.
        values: What a reader must find.
    """

    piece: Piece
    kind: Kind
    raw: npt.NDArray[Any]
    values: Floats


def pieces_of(directory: Path, *, joined: bool = False) -> list[Piece]:
    """Cut a saved checkpoint into the tensors of a GGUF file.

    Args:
        directory: The checkpoint.
        joined: Leave `kv_b_proj` of latent attention in one piece, as older files do.
    """
    config = json.loads((directory / "config.json").read_text())
    weights = load_file(directory / "model.safetensors")
    architecture = _architecture(config)
    num_blocks = config["num_hidden_layers"] + (config.get("num_nextn_predict_layers") or 0)
    names = gguf.get_tensor_name_map(architecture, num_blocks)
    pieces: list[Piece] = []
    fused: dict[str, list[str]] = {}
    for name, values in weights.items():
        if config["model_type"] == "gpt_oss" and ".experts." in name:
            pieces += _gpt_oss_experts(name, values.astype(np.float32), names)
            continue
        if name.endswith(".kv_b_proj.weight") and not joined:
            pieces += _latent_halves(name, values.astype(np.float32), names, config)
            continue
        if ".experts." in name:
            layer, _, part = name.partition(".mlp.experts.")
            fused.setdefault(f"{layer}.mlp.experts.{part.split('.', 1)[1]}", []).append(name)
            continue
        pieces += _cut(name, values.astype(np.float32), _file_name(names, name), config)
    for joint, members in fused.items():
        members.sort(key=lambda name: int(name.split(".experts.")[1].split(".")[0]))
        stacked = np.stack([weights[name].astype(np.float32) for name in members])
        pieces.append(_fused_piece(_file_name(names, joint), stacked, members))
    return pieces


def encode(
    pieces: list[Piece], kind_of: Callable[[Piece], str], seed: int = 0
) -> Iterator[Encoded]:
    """Encode every tensor; a format without an encoder gets random blocks of unit-size products.

    Args:
        pieces: What to encode.
        kind_of: The format of each matrix; vectors and the router stay float32.
        seed: Of the random blocks.
    """
    rng = np.random.default_rng(seed)
    for piece in pieces:
        is_matrix = piece.values.ndim > 1 and piece.name.endswith(".weight")
        stays = not is_matrix or any(f".{word}." in piece.name for word in _FINE)
        kind = Kind["F32" if stays else kind_of(piece)]
        if kind in (Kind.F32, Kind.F16):
            dtype = np.float32 if kind is Kind.F32 else np.float16
            raw: npt.NDArray[Any] = piece.values.astype(dtype)
            yield Encoded(piece, kind, raw, raw.astype(np.float32))
            continue
        shape = piece.values.shape
        rows = piece.values.reshape(-1, shape[-1])
        try:
            raw = quantize(rows, kind)
        except NotImplementedError:
            raw = _random_rows(kind.name, rows.shape, rng)
        values = dequantize(raw, kind).astype(np.float32).reshape(shape)
        yield Encoded(piece, kind, raw.reshape(*shape[:-1], -1), values)


def _random_rows(
    name: str, shape: tuple[int, int], rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Random blocks whose values have the spread that keeps activations of unit size."""
    raw = random_blocks(name, *shape, rng, scale=1.0)
    spread = float(dequantize(raw, Kind[name]).std())
    block_bytes = raw.shape[1] // (shape[1] // gguf.GGML_QUANT_SIZES[Kind[name]][0])
    blocks = raw.reshape(-1, block_bytes)
    for offset in SCALE_OFFSETS[name]:
        scales = np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2")
        smaller = (scales * (shape[1] ** -0.5 / spread)).astype("<f2")
        blocks[:, offset : offset + 2] = smaller.view(np.uint8)
    return raw


def restore(directory: Path, encoded: list[Encoded]) -> None:
    """Give a saved checkpoint the weights that the encoded tensors hold."""
    weights: Weights = {}
    for tensor in encoded:
        weights |= tensor.piece.restore(tensor.values)
    path = directory / "model.safetensors"
    before = load_file(path)
    assert {n: v.shape for n, v in weights.items()} == {n: v.shape for n, v in before.items()}
    contiguous = {name: np.ascontiguousarray(values) for name, values in weights.items()}
    save_file(contiguous, path, metadata={"format": "pt"})


def write(
    path: Path,
    directory: Path,
    encoded: list[Encoded],
    *,
    without: tuple[str, ...] = (),
    **writing: Any,  # noqa: ANN401 - options of the foreign writer
) -> None:
    """Write encoded tensors and the metadata of a saved checkpoint as a GGUF file.

    Args:
        path: The file; with `split_max_tensors` its name is the stem of several.
        directory: The checkpoint.
        encoded: Its tensors.
        without: Keys of the architecture that are left out.
        writing: Options of `gguf.GGUFWriter`.
    """
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[_architecture(config)], **writing)
    _add_common(writer, config)
    _add_rope(writer, config)
    _ADDED[config["model_type"]](writer, config)
    if any(".attn_kv_b." in tensor.piece.name for tensor in encoded):
        _describe_joined(writer, config)
    _add_tokenizer(writer)
    for key in without:
        del writer.kv_data[0][f"{writer.arch}.{key}"]
    for tensor in encoded:
        is_raw = tensor.raw.dtype == np.uint8
        writer.add_tensor(tensor.piece.name, tensor.raw, raw_dtype=tensor.kind if is_raw else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- names and shapes ---------------------------------------------------------------------------


def _architecture(config: dict[str, Any]) -> gguf.MODEL_ARCH:
    wanted = ARCHITECTURES[config["model_type"]]
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == wanted)


def _file_name(names: gguf.TensorNameMap, published: str) -> str:
    if published.endswith("self_attn.sinks"):
        published += ".weight"
    if published.endswith("e_score_correction_bias"):
        published = published.replace("e_score_correction_bias", "e_score_correction.bias")
    found: str | None = names.get_name(published, try_suffixes=(".weight", ".bias"))
    assert found is not None, published
    return found


def _latent_halves(
    name: str, values: Floats, names: gguf.TensorNameMap, config: dict[str, Any]
) -> list[Piece]:
    """Of each head, the key rows transposed and the value rows."""
    key_width = config["qk_nope_head_dim"]
    whole = values.reshape(config["num_attention_heads"], -1, values.shape[1]).copy()

    def keys_back(found: Floats) -> Weights:
        whole[:, :key_width] = found.swapaxes(1, 2)
        return {name: whole.reshape(values.shape)}

    def values_back(found: Floats) -> Weights:
        whole[:, key_width:] = found
        return {name: whole.reshape(values.shape)}

    keys = np.ascontiguousarray(whole[:, :key_width].swapaxes(1, 2))
    rest = np.ascontiguousarray(whole[:, key_width:])
    return [
        Piece(_file_name(names, name.replace("kv_b_proj", "k_b_proj")), keys, keys_back),
        Piece(_file_name(names, name.replace("kv_b_proj", "v_b_proj")), rest, values_back),
    ]


def _gpt_oss_experts(name: str, values: Floats, names: gguf.TensorNameMap) -> list[Piece]:
    """Gate and up, interleaved along the outputs, apart; matrices with their outputs first."""
    stem = name.removesuffix("_bias")
    suffix = ".bias" if name.endswith("_bias") else ".weight"
    transposed = values if suffix == ".bias" else values.swapaxes(1, 2)  # (E, outputs[, inputs])
    whole = transposed.copy()

    def back(found: Floats, part: slice) -> Weights:
        whole[:, part] = found
        return {name: whole if suffix == ".bias" else whole.swapaxes(1, 2)}

    def piece(published: str, part: slice) -> Piece:
        file_name = _file_name(names, published + suffix)
        values = np.ascontiguousarray(transposed[:, part])
        return Piece(file_name, values, lambda found: back(found, part))

    if stem.endswith("down_proj"):
        return [piece(stem, slice(None))]
    return [
        piece(stem.replace("gate_up_proj", "gate_proj"), slice(0, None, 2)),
        piece(stem.replace("gate_up_proj", "up_proj"), slice(1, None, 2)),
    ]


def _plain_piece(file_name: str, values: Floats, published: str) -> Piece:
    return Piece(file_name, values, lambda found: {published: found})


def _fused_piece(file_name: str, stacked: Floats, members: list[str]) -> Piece:
    return Piece(file_name, stacked, lambda found: dict(zip(members, found, strict=True)))


def _cut(name: str, values: Floats, file_name: str, config: dict[str, Any]) -> list[Piece]:
    if config["model_type"] == "llama" and (".q_proj." in name or ".k_proj." in name):
        part = "attention" if ".q_proj." in name else "key_value"
        heads = config[f"num_{part}_heads"]
        pairs = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2)

        def halves(found: Floats) -> Weights:
            split = found.reshape(heads, -1, 2, *found.shape[1:]).swapaxes(1, 2)
            return {name: split.reshape(found.shape)}

        return [Piece(file_name, pairs.reshape(values.shape), halves)]
    return [_plain_piece(file_name, values, name)]


# ---- metadata -----------------------------------------------------------------------------------


def _add_common(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_block_count(
        config["num_hidden_layers"] + (config.get("num_nextn_predict_layers") or 0)
    )
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast", 32.0))
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow", 1.0))
        if rope.get("mscale_all_dim"):
            assert rope["mscale"] == rope["mscale_all_dim"], "files hold only one of them"
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
        if rope.get("attention_factor") is not None:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    else:
        assert rope["rope_type"] == "default", rope


def _add_heads(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    head_dim = config["head_dim"]
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    share = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(head_dim * share))


def _add_llama(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_heads(writer, config)


def _add_softmax_router(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_heads(writer, config)
    writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("clip_qkv") is not None:
        writer.add_clamp_kqv(config["clip_qkv"])


def _add_noaux_router(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config.get("num_nextn_predict_layers"):
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def _add_glm4(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_heads(writer, config)
    _add_noaux_router(writer, config)


def _add_latent(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Latent attention as the newer files describe it: one head as wide as latent and rope."""
    latent, rope_width = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_head_count_kv(1)
    writer.add_key_length(latent + rope_width)
    writer.add_value_length(latent)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope_width)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rope_width)
    _add_noaux_router(writer, config)


def _describe_joined(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Latent attention as the older files describe it: heads of their real sizes."""
    pairs = writer.kv_data[0]
    for key in ("key_length_mla", "value_length_mla"):
        del pairs[f"{writer.arch}.attention.{key}"]
    real = {
        "head_count_kv": config["num_attention_heads"],
        "key_length": config["qk_nope_head_dim"] + config["qk_rope_head_dim"],
        "value_length": config["v_head_dim"],
    }
    for key, value in real.items():
        pairs[f"{writer.arch}.attention.{key}"].value = value


def _add_glm_dsa(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_latent(writer, config)
    writer.add_indexer_head_count(config["index_n_heads"])
    writer.add_indexer_key_length(config["index_head_dim"])
    writer.add_indexer_top_k(config["index_topk"])
    if "indexer_types" in config:
        kinds = [kind == "full" for kind in config["indexer_types"]]
        writer.add_array("glm-dsa.attention.indexer.types", kinds)


def _add_gpt_oss(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_heads(writer, config)
    assert config["swiglu_limit"] == 7.0, "files do not say"
    writer.add_sliding_window(config["sliding_window"])
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    if slides != [i % 2 == 0 for i in range(len(slides))]:
        writer.add_sliding_window_pattern(slides)
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])


_ADDED: dict[str, Callable[[gguf.GGUFWriter, dict[str, Any]], None]] = {
    "llama": _add_llama,
    "olmoe": _add_softmax_router,
    "qwen3_moe": _add_softmax_router,
    "glm4_moe": _add_glm4,
    "deepseek_v3": _add_latent,
    "kimi_k2": _add_latent,
    "glm_moe_dsa": _add_glm_dsa,
    "gpt_oss": _add_gpt_oss,
}


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """Add a vocabulary smaller than the reference models' 256 embedding rows."""
    tokens, merges = vocabulary()
    letters = set("".join(first + second for first, second in merges))
    added = [*CONTROL_TOKENS, *PLAIN_ADDED_TOKENS]
    plain = [token for token in tokens if token not in added and set(token) <= letters]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(added + plain)
    writer.add_token_types(
        [3] * len(CONTROL_TOKENS) + [4] * len(PLAIN_ADDED_TOKENS) + [1] * len(plain)
    )
    writer.add_token_merges([f"{first} {second}" for first, second in merges])
