"""Every architecture with experts gives the same bits when they are read as they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; run: scripts/setup oracle")
pytest.importorskip(
    "transformers", reason="transformers is not installed; run: scripts/setup oracle"
)

from tests.engine.conversion.rig import convert, options
from tests.engine.experts.streaming_rig import (
    conversation,
    load_resident,
    load_streamed,
    run_steps,
)
from tests.fakes.oracle_models import CONFIGS, build_only

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle

DENSE = {"llama", "qwen3"}
NAMES = sorted(name for name in CONFIGS if name not in DENSE and "-" not in name)


@pytest.mark.parametrize("name", NAMES)
def test_streamed_and_resident_experts_give_the_same_bits(tmp_path: Path, name: str) -> None:
    build_only(name, tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "stream", options())
    resident = load_resident(tmp_path / "stream")
    steps = conversation(resident.config.vocab_size)
    wanted = run_steps(resident, steps)
    for capacity in (1, 3):
        model, store = load_streamed(tmp_path / "stream", capacity)
        for found, expected in zip(run_steps(model, steps), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
        counts = model.routing_counts
        assert counts is not None
        assert len(store.layers) == len(counts)
        assert model.mixture_layers == store.model_layers
        assert store.counters.bytes_read > 0
        assert model.resident_bytes < resident.resident_bytes
