"""A container's way into the streaming layout and back: no byte differs, and no logit either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.conversion.options import Layout
from colibri_engine.errors import BadChoice, CheckpointError
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.quant import fp8_b128
from tests.engine.conversion.rig import (
    convert,
    formats,
    logits,
    options,
    rounded,
    stored_tensors,
    values,
    weight_files,
    write_source,
)
from tests.fakes.container_models import CONTAINER_FORMATS, rewrite, write_container
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import StoredArray

CONTAINER_SIZES: dict[str, Any] = {"hidden_size": 256, "moe_intermediate_size": 128}
SHARD_BYTES = 100_000
EXPERT = "model.layers.1.mlp.experts.2.down_proj.weight"


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_matrices_of_a_container_are_kept(tmp_path: Path, format_name: str) -> None:
    source = write_container(tmp_path / "source", format_name=format_name, **CONTAINER_SIZES)
    convert(source.path, tmp_path / "stream")
    found = values(tmp_path / "stream")
    assert formats(tmp_path / "stream")[EXPERT] == format_name
    for name, array in source.weights.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
@pytest.mark.parametrize("width", [80, 256])  # of experts; blocks of e8 and fp8 ragged, and whole
def test_a_container_written_elsewhere_comes_back_tensor_for_tensor(
    tmp_path: Path, format_name: str, width: int
) -> None:
    stamped = format_name == "mxfp4"  # which is read from stamps only
    sizes = CONTAINER_SIZES | {"moe_intermediate_size": width}
    source = write_container(tmp_path / "source", format_name=format_name, stamped=stamped, **sizes)
    convert(source.path, tmp_path / "stream")
    convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))
    assert stored_tensors(tmp_path / "pairs") == stored_tensors(source.path)


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_there_and_back_and_there_again_no_byte_differs(tmp_path: Path, format_name: str) -> None:
    """Files, not only tensors, of what we wrote ourselves; also from stream to stream."""
    source = write_container(tmp_path / "source", format_name=format_name, **CONTAINER_SIZES)
    shards: dict[str, Any] = {"shard_bytes": SHARD_BYTES}
    convert(source.path, tmp_path / "pairs", options(Layout.PAIRS, **shards))
    convert(tmp_path / "pairs", tmp_path / "stream", options(**shards))
    convert(tmp_path / "stream", tmp_path / "again", options(**shards))
    convert(tmp_path / "again", tmp_path / "back", options(Layout.PAIRS, **shards))
    assert len(weight_files(tmp_path / "pairs")) > 2
    assert weight_files(tmp_path / "back") == weight_files(tmp_path / "pairs")
    assert weight_files(tmp_path / "again") == weight_files(tmp_path / "stream")


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
@pytest.mark.parametrize("family", ["glm4_moe", "glm_moe_dsa"])  # grouped keys, and latents
def test_either_layout_gives_the_same_logits(tmp_path: Path, format_name: str, family: str) -> None:
    source = write_container(
        tmp_path / "source", family, format_name=format_name, **CONTAINER_SIZES
    )
    convert(source.path, tmp_path / "stream")
    convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))
    assert stored_tensors(tmp_path / "pairs") == stored_tensors(source.path)
    ids = np.arange(20, dtype=np.int32)
    np.testing.assert_array_equal(logits(tmp_path / "stream", ids), logits(source.path, ids))


def with_scales_in_bytes(directory: Path) -> None:
    """Turn the fp8 matrices of a container into those with scales that are powers of two."""

    def change(tensors: dict[str, StoredArray], metadata: dict[str, str]) -> None:
        stamps = json.loads(metadata["colibri.fmt"])
        for name, format_name in stamps.items():
            if format_name == fp8_b128.FORMAT.name:
                _, shape, data = tensors[f"{name}.qs"]
                exponents = np.frombuffer(data, np.uint32) >> 23
                tensors[f"{name}.qs"] = ("U8", shape, exponents.astype(np.uint8).tobytes())

    rewrite(directory, change)


def test_fp8_scales_in_bytes_come_back_as_bytes(tmp_path: Path) -> None:
    source = write_container(
        tmp_path / "source", format_name=fp8_b128.FORMAT.name, **CONTAINER_SIZES
    )
    with_scales_in_bytes(source.path)
    assert formats(source.path)[EXPERT] == fp8_b128.FORMAT_UE8M0.name
    convert(source.path, tmp_path / "stream")
    for name, array in values(source.path).items():
        np.testing.assert_array_equal(values(tmp_path / "stream")[name], array, err_msg=name)
    convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))
    assert stored_tensors(tmp_path / "pairs") == stored_tensors(source.path)


def test_a_stream_without_what_e8_needs_for_the_way_back_is_refused(tmp_path: Path) -> None:
    """Of earlier versions: it runs, and is rounded where nothing else was asked for."""
    source = write_container(tmp_path / "source", format_name="e8-iq3-lattice", **CONTAINER_SIZES)
    restream(source.path, tmp_path / "stream", format_name="e8-iq3-lattice")
    with pytest.raises(BadChoice, match="e8-iq3-lattice, which --layout pairs cannot keep"):
        convert(tmp_path / "stream", tmp_path / "out", options(Layout.PAIRS, xbits="keep"))
    convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))
    found = values(tmp_path / "pairs")[EXPERT]
    np.testing.assert_array_equal(found, rounded(source.weights[EXPERT], 4))


@pytest.mark.parametrize("format_name", ["e8-iq3-lattice", "fp8-e4m3-b128"])
def test_what_is_kept_for_the_way_back_must_fit_the_codes(tmp_path: Path, format_name: str) -> None:
    """A byte of the codes differs: no blocks of the old layout have them."""
    source = write_container(tmp_path / "source", format_name=format_name, **CONTAINER_SIZES)
    convert(source.path, tmp_path / "stream")
    path = next((tmp_path / "stream").glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    record = 8 + int.from_bytes(data[:8], "little")  # the first expert's, its codes first
    if format_name == "e8-iq3-lattice":
        data[record] ^= 1
    else:  # the scale of its first row, no longer that of its block
        codes = CONTAINER_SIZES["moe_intermediate_size"] * CONTAINER_SIZES["hidden_size"]
        data[record + codes + 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"same blocks|no entry|not those of"):
        convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))


def test_a_published_fp8_model_can_keep_its_bytes_in_records(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", "F8_E4M3", hidden_size=256)
    chosen: dict[str, Any] = {"xbits": "fp8", "attn_bits": "fp8", "shard_bytes": SHARD_BYTES}
    convert(source.path, tmp_path / "stream", options(**chosen))
    checkpoint = open_checkpoint(tmp_path / "stream")
    assert isinstance(checkpoint, HfCheckpoint)
    assert "model.layers.1.mlp.experts" in checkpoint.stored_experts()
    checkpoint.close()
    np.testing.assert_array_equal(values(tmp_path / "stream")[EXPERT], source.weights[EXPERT])
    convert(tmp_path / "stream", tmp_path / "pairs", options(Layout.PAIRS))
    convert(source.path, tmp_path / "direct", options(Layout.PAIRS, xbits="fp8", attn_bits="fp8"))
    found, wanted = stored_tensors(tmp_path / "pairs"), stored_tensors(tmp_path / "direct")
    assert {n: t for n, t in found.items() if ".experts." in n} == {
        n: t for n, t in wanted.items() if ".experts." in n
    }
