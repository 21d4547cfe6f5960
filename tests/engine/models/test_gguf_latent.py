"""Latent attention in GGUF files: both ways to keep `kv_b_proj`, draft layers, indexers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="gguf is not installed; run: make test")

from colibri_engine.kernels import Batch
from colibri_engine.models.base import DraftStep
from colibri_engine.models.glm_moe_dsa import Model
from tests.engine.conversion.rig import convert
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes import oracle_gguf
from tests.fakes.tiny_checkpoint import write_hf

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

LENGTH = 24  # beyond the positions that a row of the sparse model may look at


@pytest.fixture(scope="module")
def ids() -> npt.NDArray[np.int32]:
    return np.random.default_rng(5).integers(0, 250, LENGTH).astype(np.int32)


def written(directory: Path, family: str, *, joined: bool = False, **writing: Any) -> Path:  # noqa: ANN401
    """Write a tiny model as a directory, and as a GGUF file of the same values beside it."""
    write_hf(directory, family)
    path = directory / ("joined.gguf" if joined else "split.gguf")
    pieces = oracle_gguf.pieces_of(directory, joined=joined)
    oracle_gguf.write(path, directory, list(oracle_gguf.encode(pieces, lambda _: "F32")), **writing)
    return path


@pytest.mark.parametrize("family", ["deepseek_v3", "glm_moe_dsa"])
@pytest.mark.parametrize("joined", [False, True], ids=["halves", "joined"])
def test_a_file_gives_the_bits_of_the_directory(
    tmp_path: Path, family: str, joined: bool, ids: npt.NDArray[np.int32]
) -> None:
    path = written(tmp_path, family, joined=joined)
    want = forward_in_chunks(load(tmp_path, "float"), ids, LENGTH)
    np.testing.assert_array_equal(forward_in_chunks(load(path, "float"), ids, 5), want)


KINDS = ["full", "full", "shared", "full", "shared", "full"]  # as the tiny model's two keys say


@pytest.mark.parametrize("listed", [True, False])
def test_shared_indexers_are_known_from_the_list_or_from_the_tensors(
    tmp_path: Path, listed: bool, ids: npt.NDArray[np.int32]
) -> None:
    write_hf(tmp_path, "glm_moe_dsa", num_hidden_layers=6, indexer_types=KINDS)
    encoded = list(oracle_gguf.encode(oracle_gguf.pieces_of(tmp_path), lambda _: "F32"))
    without = () if listed else ("attention.indexer.types",)
    oracle_gguf.write(tmp_path / "m.gguf", tmp_path, encoded, without=without)
    want = forward_in_chunks(load(tmp_path, "float"), ids, LENGTH)
    found = forward_in_chunks(load(tmp_path / "m.gguf", "float"), ids, LENGTH)
    np.testing.assert_array_equal(found, want)


def draft(model: object, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Return the (LENGTH, V) logits of the draft layer over any hidden states."""
    assert isinstance(model, Model)
    size = model.config.attention.hidden_size
    hidden = np.random.default_rng(3).standard_normal((LENGTH, size)).astype(np.float32)
    batch = Batch()
    batch.set([(model.make_draft_cache(), 0, LENGTH)])
    return model.draft(DraftStep(ids, hidden), batch, list(range(LENGTH))).logits.copy()


def test_the_draft_layer_of_a_file_is_that_of_the_directory(
    tmp_path: Path, ids: npt.NDArray[np.int32]
) -> None:
    path = written(tmp_path, "glm_moe_dsa")
    want = draft(load(tmp_path, "float"), ids)
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(draft(load(path, "float"), ids), want)


def test_a_container_made_of_a_file_with_halves_gives_its_bits(
    tmp_path: Path, ids: npt.NDArray[np.int32]
) -> None:
    whole_blocks: dict[str, Any] = {"q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32}
    source = tmp_path / "source"
    write_hf(source, "glm_moe_dsa", **whole_blocks)
    encoded = list(oracle_gguf.encode(oracle_gguf.pieces_of(source), lambda _: "Q8_0"))
    oracle_gguf.write(tmp_path / "m.gguf", source, encoded)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    want = forward_in_chunks(load(tmp_path / "m.gguf", "default"), ids, LENGTH)
    found = forward_in_chunks(load(tmp_path / "out", "default"), ids, LENGTH)
    np.testing.assert_array_equal(found, want)
