"""Tiny models in the streaming layout, made from what another directory holds."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import TypeAlias

from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.container_writer import StreamContents, StreamShard
from colibri_engine.loader.stream_layout import PARTS, ExpertRecord
from colibri_engine.quant.base import FloatTensor, Fp8Tensor, IntTensor
from colibri_engine.quant.tiles import TileLayout

_EXPERT = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)\.(\w+)\.weight")
Matrix: TypeAlias = IntTensor | Fp8Tensor

_FLOAT_TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}


def restream(
    source: Path,
    directory: Path,
    files: Path | None = None,
    num_shards: int = 1,
    format_name: str = "test",
) -> Path:
    """Write a model whose experts are integers or fp8 in the streaming layout.

    Args:
        source: The model.
        directory: Made if absent; returned.
        files: Where its configuration and tokenizer are, if not in `source`.
        num_shards: Weight files; every layer has experts in all of them.
        format_name: What the files say of matrices before they were packed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    experts: dict[tuple[str, int], dict[str, Matrix]] = {}
    matrices: dict[str, Matrix] = {}
    floats: dict[str, FloatTensor] = {}
    with contextlib.closing(open_checkpoint(source)) as checkpoint:
        for name in checkpoint.names():
            tensor = checkpoint.tensor(name)
            assert isinstance(tensor, FloatTensor | Fp8Tensor | IntTensor)
            match = _EXPERT.fullmatch(name)
            if isinstance(tensor, FloatTensor):
                floats[name] = tensor
            elif match is None:
                matrices[name] = tensor
            else:
                prefix, number, part = match.groups()
                experts.setdefault((prefix, int(number)), {})[part] = tensor
    for shard_number in range(num_shards):
        is_first = shard_number == 0
        here = {key: parts for key, parts in experts.items() if key[1] % num_shards == shard_number}
        path = directory / f"out-{shard_number:05d}.safetensors"
        rest = (matrices, floats) if is_first else ({}, {})
        _write_shard(path, here, *rest, format_name)
    for file in ("config.json", "tokenizer.json"):
        shutil.copy((files or source) / file, directory / file)
    return directory


def _write_shard(
    path: Path,
    experts: dict[tuple[str, int], dict[str, Matrix]],
    matrices: dict[str, Matrix],
    floats: dict[str, FloatTensor],
    format_name: str,
) -> None:
    contents = StreamContents()
    for (prefix, number), parts in experts.items():
        layouts = {part: (TileLayout.of(parts[part]), format_name) for part in PARTS}
        contents.add_expert(prefix, number, ExpertRecord.of(layouts))
    for name, matrix in matrices.items():
        contents.add_matrix(name, TileLayout.of(matrix), format_name)
    for name, tensor in floats.items():
        contents.add_floats(name, _FLOAT_TYPES[str(tensor.array.dtype)], tensor.shape)
    with StreamShard(path, contents) as shard:
        for (prefix, number), parts in experts.items():
            shard.write_expert(f"{prefix}.{number}", parts)
        for name, matrix in matrices.items():
            shard.write_matrix(name, matrix)
        for name, tensor in floats.items():
            shard.write_floats(name, tensor.array)
        shard.finish()
