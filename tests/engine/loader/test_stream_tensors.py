"""The streaming layout: read as it lies, refused when it contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.container_tensors import ContainerTensors
from colibri_engine.quant.base import IntTensor, StoredTensor
from colibri_engine.quant.tiles import PackedTensor
from tests.engine.conversion.rig import convert, options, values, write_source
from tests.fakes.container_models import write_container

EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


@pytest.fixture
def container(tmp_path: Path) -> Path:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out", options(shard_bytes=100_000))
    return tmp_path / "out"


def rewrite(container: Path, name: str, change: Any) -> None:  # noqa: ANN401 - a function
    """Change the header of the file that holds a tensor: `change(metadata, entry)`."""
    for path in container.glob("*.safetensors"):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        if name not in header:
            continue
        change(header["__metadata__"], header[name])
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 4096)  # records begin pages
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        return
    pytest.fail(f"no file holds {name}")


def test_matrices_arrive_as_they_lie_in_the_file(container: Path) -> None:
    checkpoint = open_checkpoint(container)
    tensor = checkpoint.tensor(EXPERT)
    assert isinstance(tensor, PackedTensor)
    assert tensor.shape == checkpoint.shape(EXPERT) == (80, 128)
    np.testing.assert_array_equal(tensor.unpack(), checkpoint.array(EXPERT))
    checkpoint.close()


def test_some_rows_are_those_of_the_whole(container: Path) -> None:
    checkpoint = open_checkpoint(container)
    for name in checkpoint.names():
        if len(checkpoint.shape(name)) != 2:
            continue
        whole = checkpoint.array(name)
        for first in range(0, whole.shape[0], 16):
            for count in {1, 16, 17, whole.shape[0] - first} & {*range(whole.shape[0] - first + 1)}:
                found = checkpoint.rows(name, first, count).unpack()
                np.testing.assert_array_equal(found, whole[first : first + count])
    checkpoint.close()


def test_a_record_of_another_size_is_refused(container: Path) -> None:
    def change(metadata: dict[str, str], entry: dict[str, Any]) -> None:
        del entry
        body = json.loads(metadata["colibri.experts"])
        record = body["model.layers.1.mlp.experts"]
        record["parts"]["down_proj"]["rest"] = 4096  # right in itself, but not of this tensor
        record["bytes"] += 4096
        metadata["colibri.experts"] = json.dumps(body)

    rewrite(container, "model.layers.1.mlp.experts.3", change)
    with pytest.raises(CheckpointError, match=r"experts\.\d.*bytes of U8"):
        open_checkpoint(container)


def test_a_record_of_another_type_is_refused(container: Path) -> None:
    rewrite(container, "model.layers.1.mlp.experts.3", lambda _, e: e.update(dtype="I8"))
    with pytest.raises(CheckpointError, match=r"experts\.3.* of I8, described are .* of U8"):
        open_checkpoint(container)


def test_a_description_without_its_tensor_is_refused(container: Path) -> None:
    def change(metadata: dict[str, str], entry: dict[str, Any]) -> None:
        del entry
        body = json.loads(metadata["colibri.matrices"])
        body["model.layers.7.self_attn.o_proj.weight"] = next(iter(body.values()))
        metadata["colibri.matrices"] = json.dumps(body)

    rewrite(container, "lm_head.weight", change)
    with pytest.raises(CheckpointError, match=r"layers\.7\.self_attn.* but is not there"):
        open_checkpoint(container)


def test_a_newer_layout_is_refused_by_name(container: Path) -> None:
    rewrite(container, "lm_head.weight", lambda m, _: m.update({"colibri.layout": "stream-2"}))
    with pytest.raises(CheckpointError, match="'stream-2', which is not supported"):
        open_checkpoint(container)


def test_a_scale_that_is_no_number_is_refused(container: Path) -> None:
    checkpoint = open_checkpoint(container)
    tensor = checkpoint.tensor(EXPERT)
    checkpoint.close()
    assert isinstance(tensor, PackedTensor)
    scales = tensor.packed[tensor.layout.codes_nbytes :]
    for path in container.glob("*.safetensors"):
        data = path.read_bytes()
        if scales.tobytes() in data:
            damaged = scales.copy()
            damaged.view(np.float32)[3] = np.nan
            path.write_bytes(data.replace(scales.tobytes(), damaged.tobytes(), 1))
    again = open_checkpoint(container)
    with pytest.raises(CheckpointError, match="scale that is not finite"):
        again.tensor(EXPERT)
    with pytest.raises(CheckpointError, match="scale that is not finite"):
        again.rows(EXPERT, 0, 80)
    again.close()


def test_a_missing_file_is_named(container: Path) -> None:
    assert values(container)
    next(container.glob("model-00002-of-*")).unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-\d+\.safetensors is missing"):
        open_checkpoint(container)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"levels": [0] * 15}, "levels other than 16 bytes"),
        ({"levels": [0] * 15 + [256]}, "levels other than 16 bytes"),
        ({"levels": [0] * 15 + [True]}, "levels other than 16 bytes"),
        ({"levels": None}, "levels other than 16 bytes"),
        ({"levels": "0123456789abcdef"}, "levels other than 16 bytes"),
        ({"levels": [0] * 16, "bits": 8}, "levels other than 16 bytes"),
        ({"levels": [0] * 16, "bits": 4, "zero": 256}, "zero point 256"),
        ({"scales": "F8_E8M0"}, "F8_E8M0 without levels"),
        ({"scales": "F8_E8M0", "levels": [0] * 16, "bits": 4, "zero": None}, "without levels"),
    ],
)
def test_levels_that_cannot_be_are_refused(
    container: Path, changes: dict[str, Any], problem: str
) -> None:
    def change(metadata: dict[str, str], entry: dict[str, Any]) -> None:
        del entry
        body = json.loads(metadata["colibri.matrices"])
        body["lm_head.weight"].update(changes)
        metadata["colibri.matrices"] = json.dumps(body)

    rewrite(container, "lm_head.weight", change)
    with pytest.raises(CheckpointError, match=problem):
        open_checkpoint(container)


def test_levels_and_scales_of_one_byte_stand_in_the_file_as_in_memory(tmp_path: Path) -> None:
    source = write_container(tmp_path / "source", format_name="mxfp4")
    convert(source.path, tmp_path / "out")
    name = next(name for name in source.weights if ".experts.0.up_proj." in name)
    checkpoint = open_checkpoint(tmp_path / "out")
    tensor = checkpoint.tensor(name)
    checkpoint.close()
    assert isinstance(tensor, PackedTensor)
    assert (tensor.layout.bits, tensor.layout.scale_bytes) == (4, 1)
    np.testing.assert_array_equal(tensor.unpack(), source.weights[name])


def test_what_was_written_with_codes_of_eight_bits_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_container(tmp_path / "source", format_name="mxfp4")
    read_rows = ContainerTensors.read_rows

    def read_widened(self: ContainerTensors, name: str, first: int, count: int) -> StoredTensor:
        stored = read_rows(self, name, first, count)
        return stored.widened() if isinstance(stored, IntTensor) else stored

    with monkeypatch.context() as patch:
        patch.setattr(ContainerTensors, "read_rows", read_widened)
        convert(source.path, tmp_path / "out")
    name = next(name for name in source.weights if ".experts.0.up_proj." in name)
    checkpoint = open_checkpoint(tmp_path / "out")
    tensor = checkpoint.tensor(name)
    checkpoint.close()
    assert isinstance(tensor, PackedTensor)
    assert (tensor.layout.bits, tensor.layout.levels) == (8, None)
    np.testing.assert_array_equal(tensor.unpack(), source.weights[name])
