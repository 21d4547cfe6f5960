"""Drafts where experts are read as they are needed: the same replies with one slot per layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.engine_config import DraftConfig, MemoryConfig
from colibri_engine.layers.expert_sets import StreamedExperts
from colibri_engine.models.glm_moe_dsa import Model
from colibri_engine.speculation.cost import CostPolicy
from tests.engine.model_rig import GREEDY, SAMPLED, prompt_of, start
from tests.engine.speculation.test_drafts_on_models import drafts_of, lines
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from pathlib import Path

NO_ROOM = MemoryConfig(cap=1, may_raise=False)
PROMPT = prompt_of(12) * 3


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    return restream(
        write_container(directory / "container", "glm_moe_dsa").path, directory / "stream"
    )


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
@pytest.mark.parametrize(
    "drafts",
    [
        DraftConfig(source="mtp", tokens=2),
        DraftConfig(source="ngram", tokens=4),
        DraftConfig(source="auto"),
    ],
)
def test_the_same_replies_whatever_drafts(
    stream: Path, drafts: DraftConfig, options: dict[str, Any]
) -> None:
    plain = lines(start(stream), 1, PROMPT, max_tokens=60, **options)
    engine = start(stream, drafts=drafts, memory=NO_ROOM)
    assert isinstance(engine._model, Model)
    mixture = engine._model._layers[-1].mixture
    assert mixture is not None
    assert isinstance(mixture.experts, StreamedExperts)
    assert engine._model.can_draft == (drafts.source != "ngram")
    assert lines(engine, 1, PROMPT, max_tokens=60, **options) == plain
    if drafts.source != "ngram":  # a random model seldom repeats itself
        assert drafts_of(engine)["mtp"]["drafted"] > 0


def test_the_experts_of_the_draft_layer_are_on_the_map(stream: Path) -> None:
    plain = start(stream, drafts=DraftConfig(source="ngram", tokens=4)).telemetry
    engine = start(stream, drafts=DraftConfig(source="mtp", tokens=2), memory=NO_ROOM)
    telemetry = engine.telemetry
    rows = plain.expert_map().rows
    assert engine._model.mixture_layers == [1, 2, 3]
    lines(engine, 1, PROMPT, max_tokens=60, **SAMPLED)
    shown = telemetry.expert_map()
    assert shown.rows == rows + 1
    cells = np.frombuffer(shown.cells, np.uint8).reshape(shown.rows, shown.cols)
    assert (cells[-1] & 63).any()  # it was asked
    tiers = telemetry.tiers()
    assert (tiers.ram, tiers.disk) == ((cells >> 6).sum(), (cells >> 6 == 0).sum())


def test_the_cost_of_reading_is_measured(stream: Path) -> None:
    engine = start(stream, drafts=DraftConfig(source="auto"), memory=NO_ROOM)
    lines(engine, 1, PROMPT, max_tokens=60, **SAMPLED)
    policy = engine._drafting._policy
    assert isinstance(policy, CostPolicy)
    assert policy.reads is not None
    expected = [policy.reads.seconds(rows) for rows in (1, 2, 4, 8)]
    assert 0 < expected[0] <= expected[1] <= expected[2] <= expected[3]


def test_guesses_leave_the_counts_of_use_as_they_were(stream: Path) -> None:
    counts = []
    for drafts in (DraftConfig(source="off"), DraftConfig(source="mtp", tokens=3)):
        engine = start(stream, drafts=drafts, memory=NO_ROOM)
        lines(engine, 1, PROMPT, max_tokens=30, **SAMPLED)
        counts.append(engine._model.routing_counts)
    np.testing.assert_array_equal(counts[0], counts[1])
