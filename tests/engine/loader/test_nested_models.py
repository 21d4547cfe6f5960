"""A language model inside another one is opened, run and converted as if it stood alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError, UnsupportedModel
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from tests.engine.conversion.rig import convert, values, weight_files, write_source
from tests.fakes.tiny_checkpoint import TinyCheckpoint, write_json

SPELLINGS = {
    "model.language_model.": "lm_head.weight",
    "language_model.model.": "language_model.lm_head.weight",
}


def nest(flat: TinyCheckpoint, directory: Path, prefix: str, extra: tuple[str, ...]) -> None:
    """Copy a checkpoint with its names behind a prefix, beside tensors of other parts."""
    directory.mkdir()
    for path in flat.path.iterdir():
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            renamed: dict[str, Any] = {_nested(n, prefix): entry for n, entry in header.items()}
            end = max(e["data_offsets"][1] for n, e in header.items() if n != "__metadata__")
            if path.name.startswith("model-00001"):
                for name in extra:
                    span = [end, end + 8]
                    renamed[name] = {"dtype": "F32", "shape": [2], "data_offsets": span}
                    end += 8
                    data += bytes(8)
            text = json.dumps(renamed).encode()
            data = len(text).to_bytes(8, "little") + text + data[8 + length :]
        elif path.name.endswith("index.json"):
            continue
        (directory / path.name).write_bytes(data)
    config = dict(flat.config)
    quantization = config.pop("quantization_config", None)
    outer: dict[str, Any] = {"model_type": "sees_and_hears", "text_config": config}
    if quantization is not None:
        outer["quantization_config"] = quantization
    write_json(directory / "config.json", outer)


def _nested(name: str, prefix: str) -> str:
    if name.startswith("lm_head.weight"):
        return name.replace("lm_head.weight", SPELLINGS[prefix])
    return prefix + name.removeprefix("model.") if name.startswith("model.") else name


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3"])
@pytest.mark.parametrize("prefix", SPELLINGS)
def test_it_opens_runs_and_converts(tmp_path: Path, prefix: str, dtype: str) -> None:
    flat = write_source(tmp_path / "flat", dtype)
    extra = ("model.visual.patch_embed.proj.weight", "vision_tower.norm.weight")
    nest(flat, tmp_path / "nested", prefix, extra)
    found = values(tmp_path / "nested")
    assert found.keys() == flat.weights.keys()
    for name, array in flat.weights.items():
        np.testing.assert_array_equal(found[name], array)
    convert(tmp_path / "nested", tmp_path / "out")
    convert(flat.path, tmp_path / "wanted")
    assert weight_files(tmp_path / "out") == weight_files(tmp_path / "wanted")
    checkpoint = open_checkpoint(tmp_path / "out")
    assert checkpoint.config["model_type"] == "glm4_moe"
    load_model(checkpoint)
    checkpoint.close()


def test_a_tensor_that_fits_nothing_is_still_refused(tmp_path: Path) -> None:
    flat = write_source(tmp_path / "flat")
    nest(flat, tmp_path / "nested", "model.language_model.", ("model.adapter.weight",))
    with pytest.raises(CheckpointError, match=r"model\.adapter\.weight"):
        convert(tmp_path / "nested", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_model_inside_is_refused_by_the_outer_name(tmp_path: Path) -> None:
    flat = write_source(tmp_path / "flat")
    nest(flat, tmp_path / "nested", "model.language_model.", ())
    write_json(
        tmp_path / "nested" / "config.json",
        {"model_type": "sees_and_hears", "text_config": {"model_type": "nobody_knows"}},
    )
    with pytest.raises(UnsupportedModel, match="'sees_and_hears'"):
        open_checkpoint(tmp_path / "nested")
