"""A draft layer has experts, too: streamed or in memory, its guesses are the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from colibri_engine.fixtures.geometry import build_config
from colibri_engine.fixtures.writing import write_fixture
from colibri_engine.kernels import Batch
from colibri_engine.models.base import DraftStep
from tests.engine.experts.streaming_rig import Logits, load_resident, load_streamed

if TYPE_CHECKING:
    from colibri_engine.models.base import DraftModel, Model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "mini"
    write_fixture(directory, build_config("glm-5.2-mini", 3, 12), "int4-g64", lambda *_: None)
    return directory


def guesses(model: Model) -> list[Logits]:
    """Return the logits of the model and of its draft layer over a prompt and some tokens."""
    drafting = cast("DraftModel", model)
    cache, draft_cache = model.make_cache(), drafting.make_draft_cache()
    batch = Batch()
    found = []
    ids = np.arange(40, 60, dtype=np.int32)
    for _ in range(5):
        rows = list(range(len(ids)))
        batch.set([(cache, cache.length, len(ids))])
        logits = model.forward(ids, batch, rows).copy()
        hidden = drafting.final_hidden(rows)
        following = np.append(ids[1:], logits[-1].argmax()).astype(np.int32)
        batch.set([(draft_cache, draft_cache.length, len(ids))])
        draft = drafting.draft(DraftStep(following, hidden), batch, rows)
        found += [logits, draft.logits.copy(), draft.hidden]
        ids = following[-1:]
    return found


@pytest.mark.parametrize("capacity", [1, 4])
def test_guesses_are_the_same_bits(path: Path, capacity: int) -> None:
    wanted = guesses(load_resident(path))
    model, store = load_streamed(path, capacity)
    for found, expected in zip(guesses(model), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [layer.model_layer for layer in store.layers] == [1, 2, 3]
    sizes = {layer.records.nbytes for layer in store.layers}
    assert len(sizes) == 2  # the draft layer's experts are wider, and have slots of their own
    assert len({id(layer.pool) for layer in store.layers}) == 2
