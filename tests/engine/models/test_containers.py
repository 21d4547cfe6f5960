"""Logits from every container format equal the reference run on the dequantized weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test")
pytest.importorskip("transformers", reason="transformers is not installed; run: make test")

from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.container_models import CONTAINER_FORMATS, write_container
from tests.fakes.oracle_models import reference_logits
from tests.fakes.tiny_checkpoint import write_checkpoint

pytestmark = pytest.mark.oracle

MAX_LOGIT_DIFFERENCE = 1e-4
IDS = np.random.default_rng(7).integers(0, 256, 24).astype(np.int32)

# Wide enough for whole blocks of every format.
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 256,
    "head_dim": 64,
    "vocab_size": 512,
}


@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_logits_equal_the_reference(tmp_path: Path, format_name: str) -> None:
    container = write_container(tmp_path / "packed", format_name=format_name, **SIZES)
    plain = write_checkpoint(tmp_path / "plain", container.config, container.weights)
    wanted = reference_logits(plain, IDS)
    for chunk in (1, 7, len(IDS)):
        found = forward_in_chunks(load(container.path, "float"), IDS, chunk)
        assert np.abs(found - wanted).max() <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("format_name", ["int4-grouped", "e8-iq3-lattice"])
def test_default_numerics_stay_close(tmp_path: Path, format_name: str) -> None:
    container = write_container(tmp_path / "packed", format_name=format_name, **SIZES)
    plain = write_checkpoint(tmp_path / "plain", container.config, container.weights)
    found = forward_in_chunks(load(container.path, "default"), IDS, len(IDS))
    wanted = reference_logits(plain, IDS)
    assert np.abs(found - wanted).max() <= 0.02
    np.testing.assert_array_equal(found.argmax(axis=1), wanted.argmax(axis=1))
