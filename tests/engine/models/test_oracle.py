"""Logits and greedy ids equal transformers' on tiny random models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: scripts/setup oracle")
pytest.importorskip(
    "transformers", reason="transformers is not installed; run: scripts/setup oracle"
)

from colibri_engine.kernels import Batch
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.oracle_models import CONFIGS, NUM_GREEDY, Oracle, build

if TYPE_CHECKING:
    from colibri_engine.models.base import Model

pytestmark = pytest.mark.oracle

MAX_LOGIT_DIFFERENCE = 1e-4


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return build(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(oracle: Oracle) -> Model:
    return load(oracle.path, "float")


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 1000])
def test_logits_equal_the_reference_in_any_chunks(oracle: Oracle, model: Model, chunk: int) -> None:
    logits = forward_in_chunks(model, oracle.ids, chunk)
    assert np.abs(logits - oracle.logits).max() <= MAX_LOGIT_DIFFERENCE


def test_chunks_change_no_bit(oracle: Oracle, model: Model) -> None:
    whole = forward_in_chunks(model, oracle.ids, len(oracle.ids))
    for chunk in (1, 2, 3, 5, 7):
        np.testing.assert_array_equal(forward_in_chunks(model, oracle.ids, chunk), whole)


def test_greedy_ids_equal_the_reference(oracle: Oracle, model: Model) -> None:
    cache, batch = model.make_cache(), Batch()
    length = oracle.num_prompt
    ids = list(oracle.ids[:length])
    batch.set([(cache, 0, length)])
    logits = model.forward(oracle.ids[:length], batch, [length - 1])
    for position in range(length, length + NUM_GREEDY):
        ids.append(int(logits[0].argmax()))
        batch.set([(cache, position, 1)])
        logits = model.forward(np.array(ids[-1:], np.int32), batch, [0])
    assert ids == oracle.ids.tolist()


def test_two_sequences_in_one_step_equal_two_alone(oracle: Oracle, model: Model) -> None:
    first, second = oracle.ids, oracle.ids[::-1].copy()
    alone = [forward_in_chunks(model, ids, 7) for ids in (first, second)]
    caches, batch = [model.make_cache(), model.make_cache()], Batch()
    together: list[list[np.ndarray]] = [[], []]
    for start in range(0, len(first), 7):
        parts = [ids[start : start + 7] for ids in (first, second)]
        batch.set([(cache, start, len(p)) for cache, p in zip(caches, parts, strict=True)])
        rows = sum(len(p) for p in parts)
        logits = model.forward(np.concatenate(parts), batch, list(range(rows))).copy()
        together[0].append(logits[: len(parts[0])])
        together[1].append(logits[len(parts[0]) :])
    for want, got in zip(alone, together, strict=True):
        np.testing.assert_array_equal(np.concatenate(got), want)
