"""Sizes from headers are those of the loaded model, and nothing but headers is read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.planning.model_sizes import ModelSizes, model_sizes
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import write_hf
from tests.fakes.tiny_gguf import write_gguf_model
from tests.fakes.tiny_variants import write_variant

FAMILIES = ("llama", "olmoe", "qwen3_moe", "glm4_moe", "deepseek_v3", "glm_moe_dsa")
VARIANTS = ("gpt_oss", "inkling")


def check(path: Path) -> ModelSizes:
    """Compare with the loaded model; return what the headers said."""
    with closing(open_checkpoint(path)) as checkpoint:
        sizes = model_sizes(checkpoint)
        model = load_model(checkpoint, with_draft_layer=False)
    cache = model.make_cache()
    cache.reserve(1)
    assert sizes.position_bytes == -(-cache.nbytes // cache.capacity)
    # Halves of latents take other padding in matrices this small; records end at a whole page.
    held = sizes.resident_bytes + sizes.expert_bytes
    assert held == pytest.approx(model.resident_bytes, rel=0.12)
    assert (len(sizes.expert_layers) > 0) == (model.config.num_experts > 0)
    return sizes


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_of_floats(tmp_path: Path, family: str) -> None:
    path = write_hf(tmp_path / "model", family).path
    sizes = check(path)
    assert not sizes.streams
    assert set(sizes.token) <= {"f32", "bf16", "f16"}


@pytest.mark.parametrize("family", ["llama", "glm_moe_dsa"])
def test_a_directory_of_fp8(tmp_path: Path, family: str) -> None:
    sizes = check(write_hf(tmp_path / "model", family, dtype="F8_E4M3").path)
    assert "fp8" in sizes.token


@pytest.mark.parametrize("family", VARIANTS)
def test_published_variants(tmp_path: Path, family: str) -> None:
    sizes = check(write_variant(tmp_path / "model", family))
    assert not sizes.streams


@pytest.mark.parametrize("type_name", ["Q4_0", "Q8_0", "Q4_1"])
def test_a_gguf_file(tmp_path: Path, type_name: str) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", "glm4_moe", type_name=type_name).path
    with closing(open_checkpoint(path)) as checkpoint:
        sizes = model_sizes(checkpoint)
        model = load_model(checkpoint)
    assert sizes.resident_bytes + sizes.expert_bytes == model.resident_bytes
    assert sizes.expert_bytes == model.expert_bytes


def test_a_container_streams(tmp_path: Path) -> None:
    source = write_gguf_model(tmp_path / "m.gguf", "glm4_moe", type_name="Q4_0").path
    files = write_hf(tmp_path / "files", "glm4_moe").path
    path = restream(source, tmp_path / "stream", files)
    with closing(open_checkpoint(path)) as checkpoint:
        sizes = model_sizes(checkpoint)
        model = load_model(checkpoint)
    assert sizes.streams
    assert sizes.resident_bytes == model.resident_bytes - model.expert_bytes
    # Records end at a whole page.
    count = sum(layer.num_experts for layer in sizes.expert_layers)
    assert model.expert_bytes <= sizes.expert_bytes < model.expert_bytes + 4096 * count
    assert all(layer.expert_bytes % 4096 == 0 for layer in sizes.expert_layers)
    read_per_token = sum(amount.nbytes for amount in sizes.token.values())
    assert read_per_token < sizes.resident_bytes  # of the embedding one row


def test_a_tied_head_is_read_by_every_token(tmp_path: Path) -> None:
    tied = write_hf(tmp_path / "a", "llama", tie_word_embeddings=True).path
    with closing(open_checkpoint(tied)) as checkpoint:
        sizes = model_sizes(checkpoint)
    assert sum(amount.nbytes for amount in sizes.token.values()) == sizes.resident_bytes
    assert sum(amount.nbytes for amount in sizes.head.values()) > 0


def test_weights_are_not_read(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "model", "olmoe").path
    with closing(open_checkpoint(path)) as checkpoint:
        before = model_sizes(checkpoint)
    for file in path.glob("*.safetensors"):  # a header that stays, and holes behind it
        data = file.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        with file.open("r+b") as opened:
            opened.truncate(start)
            opened.truncate(len(data))
    with closing(open_checkpoint(path)) as checkpoint:
        assert model_sizes(checkpoint) == before
