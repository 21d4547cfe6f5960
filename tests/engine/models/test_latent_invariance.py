"""Latent attention in a whole model: nothing about how it runs changes a bit of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine import kernels
from colibri_engine.kernels import Batch
from colibri_engine.models.registry import load_model
from tests.engine.models.conftest import forward_in_chunks, forward_in_company
from tests.fakes.memory_checkpoint import memory_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colibri_engine.models.base import Model

NUM_IDS = 560  # more than one segment of keys, and more than a row of 64 may look at

CASES = [
    ("deepseek_v3", "Q4_0", {}),
    ("deepseek_v3", "Q4_1", {"q_lora_rank": None}),
    ("kimi_k2", "F32", {"num_attention_heads": 20, "num_key_value_heads": 20}),
    ("glm_moe_dsa", "Q8_0", {"index_topk": 64}),
    ("glm_moe_dsa", "BF16", {"index_topk": 540}),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def family(request: pytest.FixtureRequest) -> tuple[str, str, dict[str, Any]]:
    found: tuple[str, str, dict[str, Any]] = request.param
    return found


@pytest.fixture(scope="module", params=["default", "fast", "float"])
def model(request: pytest.FixtureRequest, family: tuple[str, str, dict[str, Any]]) -> Model:
    name, type_name, changes = family
    wide: dict[str, Any] = {"q_lora_rank": 64, "kv_lora_rank": 64, "max_position_embeddings": 1024}
    checkpoint = memory_model(name, type_name=type_name, **(wide | changes))
    return load_model(checkpoint, numerics=request.param)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def ids(model: Model) -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.integers(0, model.config.vocab_size, NUM_IDS).astype(np.int32)


@pytest.fixture(scope="module")
def whole(model: Model, ids: np.ndarray) -> np.ndarray:
    """Logits of the sequence alone, in one step and on one thread."""
    kernels.set_num_threads(1)
    logits = forward_in_chunks(model, ids, NUM_IDS)
    assert np.isfinite(logits).all()
    return logits


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = kernels.num_threads()
    yield
    kernels.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [7, 512])
def test_chunks_and_threads(
    model: Model, ids: np.ndarray, whole: np.ndarray, chunk: int, threads: int
) -> None:
    kernels.set_num_threads(threads)
    np.testing.assert_array_equal(forward_in_chunks(model, ids, chunk), whole)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_row_at_a_time(model: Model, ids: np.ndarray, whole: np.ndarray, threads: int) -> None:
    kernels.set_num_threads(threads)
    cache, batch = model.make_cache(), Batch()
    batch.set([(cache, 0, NUM_IDS - 40)])
    model.forward(ids[:-40], batch, [])
    for position in range(NUM_IDS - 40, NUM_IDS):
        batch.set([(cache, position, 1)])
        logits = model.forward(ids[position : position + 1], batch, [0])
        np.testing.assert_array_equal(logits[0], whole[position])


@pytest.mark.parametrize("num_slots", [2, 4])
def test_company_in_the_step(
    model: Model, ids: np.ndarray, whole: np.ndarray, num_slots: int
) -> None:
    """Slots at other places of other sequences, prefilling and decoding."""
    kernels.set_num_threads(2)
    np.testing.assert_array_equal(forward_in_company(model, ids, num_slots), whole)


def test_instruction_sets(model: Model, ids: np.ndarray, whole: np.ndarray) -> None:
    before = kernels.active_isa()
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            logits = forward_in_chunks(model, ids[:130], 67)
            np.testing.assert_array_equal(logits, whole[:130], err_msg=isa)
    finally:
        kernels.set_isa(before)
