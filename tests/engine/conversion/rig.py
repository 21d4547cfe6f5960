"""Sources to convert, and conversions run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colibri_engine.conversion.convert import Conversion
from colibri_engine.conversion.options import Bits, ConvertOptions, Layout, Precision
from colibri_engine.conversion.quantize import quantize
from colibri_engine.conversion.targets import rounded_target
from colibri_engine.kernels import Batch
from colibri_engine.loader.base import Checkpoint
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.safetensors import SafetensorsFile
from colibri_engine.models.registry import load_model
from colibri_engine.quant.base import FloatTensor
from tests.fakes.tiny_checkpoint import (
    Floats,
    StoredArray,
    TinyCheckpoint,
    Weights,
    store_float,
    tiny_config,
    tiny_weights,
    tokenizer_json,
    write_hf,
    write_json,
    write_safetensors,
)

# Wide enough for groups of 64 and for several tiles, with one width that no group divides.
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "moe_intermediate_size": 80,
    "intermediate_size": 192,
    "n_routed_experts": 4,
}


class Told:
    """Keeps what a conversion reports."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.done: list[tuple[int, int]] = []
        self.files: list[str] = []

    def progress(self, done: int, total: int) -> None:
        self.done.append((done, total))

    def file_progress(self, name: str, place: tuple[int, int], done: int, total: int) -> None:
        assert 1 <= place[0] <= place[1]
        if done == total:
            self.files.append(name)

    def note(self, text: str) -> None:
        self.notes.append(text)


def options(
    layout: Layout = Layout.STREAM,
    *,
    group_size: int | None = None,
    shard_bytes: int = 5_000_000_000,
    with_mtp: bool = True,
    **bits: str,
) -> ConvertOptions:
    """Return options; bits as the command line has them, `ebits="4"`."""
    chosen = {name: Bits.parse(name, text) for name, text in bits.items()}
    return ConvertOptions(
        layout=layout,
        precision=Precision(group_size=group_size, **chosen),
        shard_bytes=shard_bytes,
        with_mtp=with_mtp,
        min_free_bytes=0,
        num_threads=2,
    )


def convert(
    source: Path, out: Path, chosen: ConvertOptions | None = None, *, verify: bool = False
) -> Told:
    """Convert and return what was told."""
    told = Told()
    checkpoint = open_checkpoint(source)
    try:
        Conversion(checkpoint, out, chosen or options()).run(told, verify=verify)
    finally:
        checkpoint.close()
    return told


def values(path: Path) -> Weights:
    """Return every tensor of a model as float32."""
    checkpoint = open_checkpoint(path)
    try:
        return {name: checkpoint.array(name) for name in checkpoint.names()}
    finally:
        checkpoint.close()


def formats(path: Path) -> dict[str, str]:
    """Return the number format of every tensor of a model."""
    checkpoint: Checkpoint = open_checkpoint(path)
    try:
        return {name: checkpoint.format_name(name) for name in checkpoint.names()}
    finally:
        checkpoint.close()


def logits(path: Path, ids: npt.NDArray[np.int32]) -> Floats:
    """Return the (len(ids), V) logits of a model, with floats as activations."""
    checkpoint = open_checkpoint(path)
    try:
        model = load_model(checkpoint, numerics="float")
    finally:
        checkpoint.close()
    batch = Batch()
    batch.set([(model.make_cache(), 0, len(ids))])
    return np.array(model.forward(ids, batch, range(len(ids))))


def weight_files(directory: Path) -> dict[str, bytes]:
    """Return the contents of the weight files by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.safetensors"))}


def write_source(directory: Path, dtype: str = "BF16", **changes: object) -> TinyCheckpoint:
    """Write a glm4_moe checkpoint of two layers, in three files."""
    return write_hf(directory, "glm4_moe", dtype=dtype, num_shards=3, **(SIZES | dict(changes)))


def write_drafting(directory: Path, ratio: float = 1.0) -> TinyCheckpoint:
    """Write a glm4_moe checkpoint with a draft layer.

    Args:
        directory: Made if absent.
        ratio: How much smaller the embedding half of `eh_proj` is than its hidden half.
    """
    config = tiny_config("glm4_moe", **SIZES)
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    weights = tiny_weights(config | {"num_hidden_layers": layers + 1})
    prefix = f"model.layers.{layers}"
    rng = np.random.default_rng(7)
    projection = rng.standard_normal((hidden, 2 * hidden)).astype(np.float32)
    projection[:, :hidden] /= ratio
    weights[f"{prefix}.eh_proj.weight"] = projection
    for name in ("enorm", "hnorm", "shared_head.norm"):
        weights[f"{prefix}.{name}.weight"] = np.ones(hidden, np.float32)
    weights[f"{prefix}.embed_tokens.weight"] = weights["model.embed_tokens.weight"]
    weights[f"{prefix}.shared_head.head.weight"] = weights["lm_head.weight"]
    return write_weights(directory, config | {"num_nextn_predict_layers": 1}, weights)


def write_weights(directory: Path, config: dict[str, Any], weights: Weights) -> TinyCheckpoint:
    """Write float32 weights as a checkpoint of one file."""
    directory.mkdir(parents=True, exist_ok=True)
    stored: dict[str, StoredArray] = {
        name: store_float(array, "F32")[0] for name, array in weights.items()
    }
    write_safetensors(directory / "model.safetensors", stored)
    write_json(directory / "config.json", config)
    write_json(directory / "tokenizer.json", tokenizer_json())
    return TinyCheckpoint(directory, config, weights)


def rounded(array: Floats, bits: int, group_size: int | None = None) -> Floats:
    """Return what a converter makes of a matrix."""
    target = rounded_target(bits, (array.shape[0], array.shape[1]), group_size)
    assert target.layout is not None
    assert target.layout.zero is not None
    return quantize(FloatTensor(array), bits, target.group, target.layout.zero).unpack()


def stored_tensors(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Return type and bytes of every tensor of the weight files."""
    stored: dict[str, tuple[str, bytes]] = {}
    for path in directory.glob("*.safetensors"):
        file = SafetensorsFile(path)
        for name, entry in file.entries.items():
            stored[name] = (entry.dtype, file.read(entry).tobytes())
        file.close()
    return stored
