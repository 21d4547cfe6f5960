"""Rows in a step, company, threads and instruction sets never change a bit of the logits.

Architectures with latent attention are in `test_latent_invariance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.models.registry import MODULES
from tests.engine.models.conftest import forward_in_chunks, forward_in_company, load
from tests.engine.models.test_latent_invariance import CASES as LATENT_CASES
from tests.fakes.tiny_gguf import write_gguf_model
from tests.fakes.tiny_variants import CONFIGS as VARIANTS
from tests.fakes.tiny_variants import write_variant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from colibri_engine.models.base import Model

NUM_IDS = 150  # crosses a softmax block, a row panel and two key blocks
MANY_IDS = 530  # more than a whole step takes

# Formats with blocks of 256 need matrices that are whole blocks wide.
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "head_dim": 32}
CASES = [
    ("llama", "Q4_0", {}),
    ("llama", "Q4_1", {}),
    ("llama", "Q8_0", {}),
    ("llama", "Q2_K", WIDE),
    ("llama", "Q3_K", WIDE),
    ("llama", "Q4_K", WIDE),
    ("llama", "Q6_K", WIDE),
    ("llama", "F16", {}),
    ("olmoe", "Q4_1", {}),
    ("qwen3_moe", "Q8_0", {}),
    ("qwen3_moe", "Q6_K", {**WIDE, "moe_intermediate_size": 256}),
    ("glm4_moe", "Q8_0", {}),
    ("glm4_moe", "BF16", {}),
    ("gpt_oss", "MXFP4", {}),
    ("inkling", "F32", {}),
]


def test_every_architecture_is_here() -> None:
    families = {name for name, *_ in (*CASES, *LATENT_CASES)}
    found = {MODULES.get(name, name) for name in families}
    assert found == {*MODULES.values()}


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family, type_name, changes = request.param
    if family in VARIANTS:
        return write_variant(tmp_path, family, mxfp4=type_name == "MXFP4")
    path = tmp_path / "model.gguf"
    write_gguf_model(path, family, type_name=type_name, max_position_embeddings=1024, **changes)
    return path


@pytest.fixture(params=["default", "fast", "float"])
def model(request: pytest.FixtureRequest, checkpoint: Path) -> Model:
    return load(checkpoint, request.param)


@pytest.fixture
def ids(model: Model) -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.integers(0, model.config.vocab_size, NUM_IDS).astype(np.int32)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = kernels.num_threads()
    yield
    kernels.set_num_threads(before)


def test_one_row_at_a_time_equals_many(model: Model, ids: np.ndarray) -> None:
    whole = forward_in_chunks(model, ids, NUM_IDS)
    assert np.isfinite(whole).all()
    for chunk in (1, 8, 67):
        np.testing.assert_array_equal(forward_in_chunks(model, ids, chunk), whole)


def test_chunks_of_a_long_sequence_change_nothing(model: Model, ids: np.ndarray) -> None:
    many = np.resize(ids, MANY_IDS)
    whole = forward_in_chunks(model, many, 512)
    np.testing.assert_array_equal(forward_in_chunks(model, many, 7), whole)


@pytest.mark.parametrize("num_slots", [2, 4])
def test_company_in_the_step_changes_nothing(model: Model, ids: np.ndarray, num_slots: int) -> None:
    alone = forward_in_chunks(model, ids, NUM_IDS)
    np.testing.assert_array_equal(forward_in_company(model, ids, num_slots), alone)


def test_thread_count_changes_nothing(model: Model, ids: np.ndarray) -> None:
    kernels.set_num_threads(1)
    alone = forward_in_chunks(model, ids, 64)
    for threads in (2, 5):
        kernels.set_num_threads(threads)
        np.testing.assert_array_equal(forward_in_chunks(model, ids, 64), alone)


def test_instruction_set_changes_nothing(model: Model, ids: np.ndarray) -> None:
    results = {}
    before = kernels.active_isa()
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            results[isa] = forward_in_chunks(model, ids[:70], 33)
    finally:
        kernels.set_isa(before)
    for isa, logits in results.items():
        np.testing.assert_array_equal(logits, results["scalar"], err_msg=isa)
