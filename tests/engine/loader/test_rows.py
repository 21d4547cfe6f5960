"""Some rows of a matrix are those of the whole, in every kind of file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine.loader.base import Checkpoint
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.base import IntTensor
from tests.fakes.container_models import CONTAINER_FORMATS, write_container
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import write_hf
from tests.fakes.tiny_gguf import write_gguf_model

SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 160}


def check_rows(checkpoint: Checkpoint) -> None:
    matrices = [name for name in checkpoint.names() if len(checkpoint.shape(name)) == 2]
    assert matrices
    for name in matrices:
        whole = checkpoint.tensor(name)
        num_rows = checkpoint.shape(name)[0]
        for first in range(0, num_rows, 128):
            for count in {1, min(128, num_rows - first), num_rows - first}:
                part = checkpoint.rows(name, first, count)
                assert type(part) is type(whole)
                wanted = whole.unpack()[first : first + count]
                np.testing.assert_array_equal(part.unpack(), wanted)
                if isinstance(part, IntTensor) and isinstance(whole, IntTensor):
                    np.testing.assert_array_equal(part.codes, whole.codes[first : first + count])
    checkpoint.close()


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "F8_E4M3"])
def test_rows_of_published_checkpoints(tmp_path: Path, dtype: str) -> None:
    source = write_hf(tmp_path / "m", "glm4_moe", dtype=dtype, num_shards=2, **SIZES)
    check_rows(open_checkpoint(source.path))


def test_rows_of_fp8_with_blocks_that_do_not_divide_128(tmp_path: Path) -> None:
    source = write_hf(tmp_path / "m", "glm4_moe", dtype="F8_E4M3", fp8_block=(96, 64), **SIZES)
    check_rows(open_checkpoint(source.path))


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_1", "F16"])
@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_rows_of_gguf_files(tmp_path: Path, family: str, type_name: str) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", family, type_name=type_name, **SIZES)
    check_rows(open_checkpoint(source.path))


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_rows_of_containers(tmp_path: Path, format_name: str) -> None:
    source = write_container(tmp_path / "m", format_name=format_name, **SIZES)
    check_rows(open_checkpoint(source.path))


@pytest.mark.parametrize("format_name", ["int8-row", "int4-grouped", "e8-iq3-lattice"])
def test_rows_of_the_streaming_layout(tmp_path: Path, format_name: str) -> None:
    source = write_container(tmp_path / "m", format_name=format_name, **SIZES)
    check_rows(open_checkpoint(restream(source.path, tmp_path / "stream")))


def test_rows_of_a_packed_matrix_with_minimums(tmp_path: Path) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", "glm4_moe", type_name="Q4_1", **SIZES)
    for file in ("config.json", "tokenizer.json"):
        shutil.copy(write_hf(tmp_path / "hf", "glm4_moe", **SIZES).path / file, tmp_path / file)
    check_rows(open_checkpoint(restream(source.path, tmp_path / "stream", files=tmp_path)))
