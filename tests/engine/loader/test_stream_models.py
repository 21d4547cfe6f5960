"""The streaming layout is read as it was written; what contradicts its description is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.layers.weights import pack
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.tiles import PackedTensor
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.container_models import rewrite, write_container
from tests.fakes.stream_models import restream

PREFIX = "model.layers.1.mlp.experts"
GATE = f"{PREFIX}.3.gate_proj.weight"
OUTPUT = "model.layers.1.self_attn.o_proj.weight"
KINDS = ["int8-row", "int4-grouped", "int3-g64", "e8-iq3-lattice", "mxfp4", "fp8-e4m3-b128"]


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return restream(write_container(tmp_path / "container").path, tmp_path / "stream")


@pytest.mark.parametrize("format_name", KINDS)
def test_a_model_gives_the_same_bits_from_either_layout(tmp_path: Path, format_name: str) -> None:
    container = write_container(tmp_path / "container", format_name=format_name).path
    path = restream(container, tmp_path / "stream")
    ids = np.arange(20, dtype=np.int32)
    wanted = forward_in_chunks(load(container, "default"), ids, 7)
    np.testing.assert_array_equal(forward_in_chunks(load(path, "default"), ids, 7), wanted)


def test_names_shapes_and_values_are_the_published_ones(tmp_path: Path) -> None:
    model = write_container(tmp_path / "container")
    path = restream(model.path, tmp_path / "stream")
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        assert set(checkpoint.names()) == set(model.weights)
        for name, wanted in model.weights.items():
            assert checkpoint.shape(name) == wanted.shape
            np.testing.assert_array_equal(checkpoint.array(name), wanted)


def test_packed_bytes_go_to_the_kernels_as_they_are(stream: Path) -> None:
    with contextlib.closing(open_checkpoint(stream)) as checkpoint:
        for name in (GATE, OUTPUT):
            packed = checkpoint.tensor(name)
            assert isinstance(packed, PackedTensor)
            matrix = pack(packed)
            np.testing.assert_array_equal(matrix.packed(), packed.packed)
            np.testing.assert_array_equal(matrix.unpack(), checkpoint.array(name))


def test_records_must_begin_a_page(stream: Path) -> None:
    rewrite(stream, lambda tensors, _: None, alignment=8)
    data = (stream / "out-00000.safetensors").read_bytes()
    assert (8 + int.from_bytes(data[:8], "little")) % 4096  # the header happens to be no page
    with pytest.raises(CheckpointError, match="does not begin at a multiple of 4096 bytes"):
        open_checkpoint(stream)


def test_a_shape_that_is_not_the_models_is_refused(stream: Path) -> None:
    config = json.loads((stream / "config.json").read_text())
    config["moe_intermediate_size"] = 16
    (stream / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"has shape \[32, 64\]; the configuration asks for"):
        load(stream, "default")
