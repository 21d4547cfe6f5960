"""Quantized latent projections: logits equal the reference on the values the codes stand for."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from tests.engine.models.conftest import forward_in_chunks
from tests.fakes.memory_checkpoint import MemoryCheckpoint, stored_as
from tests.fakes.oracle_models import Oracle, ask, make
from tests.fakes.tiny_checkpoint import tokenizer_json, write_json, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle

# A format with a zero point keeps the codes of a transposed half, one with minimums is unpacked.
CASES = [
    (model, type_name)
    for model in ("deepseek_v3-wide-latents", "glm_moe_dsa-wide-latents")
    for type_name in ("Q8_0", "Q4_1")
]


def requantize(model: Any, directory: Path, type_name: str) -> MemoryCheckpoint:  # noqa: ANN401
    """Save a model, quantize its matrices, and leave their exact values in the files."""
    model.save_pretrained(directory)
    write_json(directory / "tokenizer.json", tokenizer_json())
    with closing(open_checkpoint(directory)) as checkpoint:
        config = dict(checkpoint.config)
        stored = {
            name: stored_as(
                checkpoint.tensor(name).unpack(), "F32" if ".mlp.gate." in name else type_name
            )
            for name in checkpoint.names()
        }
    exact = {
        name: ("F32", tensor.shape, np.ascontiguousarray(tensor.unpack()).tobytes())
        for name, tensor in stored.items()
    }
    write_safetensors(directory / "model.safetensors", exact, {"format": "pt"})
    return MemoryCheckpoint(config, stored)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def quantized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[MemoryCheckpoint, Oracle]:
    name, type_name = request.param
    directory = tmp_path_factory.mktemp(name)
    model = make(name)
    checkpoint = requantize(model, directory, type_name)
    reference = type(model).from_pretrained(directory, attn_implementation="eager")
    reference = reference.float().eval()
    reference.set_experts_implementation("eager")
    return checkpoint, ask(reference, directory)


def test_float_numerics_equal_the_reference(quantized: tuple[MemoryCheckpoint, Oracle]) -> None:
    checkpoint, oracle = quantized
    model = load_model(checkpoint, numerics="float")  # type: ignore[arg-type]
    logits = forward_in_chunks(model, oracle.ids, 7)
    assert np.abs(logits - oracle.logits).max() <= 1e-4


def test_default_numerics_choose_the_same_tokens(
    quantized: tuple[MemoryCheckpoint, Oracle],
) -> None:
    checkpoint, oracle = quantized
    model = load_model(checkpoint, numerics="default")  # type: ignore[arg-type]
    logits = forward_in_chunks(model, oracle.ids, 7)
    # 16-bit activations are off by 2^-15 of their group's largest value; logits are about 1.
    assert np.abs(logits - oracle.logits).max() <= 5e-3
    np.testing.assert_array_equal(logits.argmax(axis=1), oracle.logits.argmax(axis=1))
