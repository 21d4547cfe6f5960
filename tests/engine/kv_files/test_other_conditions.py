"""Where experts lie, how many threads there are, which instructions: no part of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from colibri_engine import kernels
from colibri_engine.engine_config import DraftConfig, MemoryConfig
from tests.engine.kv_files.resume_rig import ask, fresh, saving
from tests.engine.model_rig import prompt_of
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE_SLOT = MemoryConfig(cap=1, may_raise=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    source = write_container(tmp_path / "container", n_routed_experts=8).path
    return restream(source, tmp_path / "stream")


@pytest.fixture
def any_isa() -> Iterator[None]:
    """The instruction set in force comes back after the test."""
    before = kernels.active_isa()
    yield
    kernels.set_isa(before)


@pytest.mark.usefixtures("any_isa")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"memory": ONE_SLOT}),
        ({"memory": ONE_SLOT}, {}),
        ({"num_threads": 1}, {"num_threads": 2}),
        ({"isa": "scalar"}, {"isa": kernels.available_isas()[0]}),
        ({"prefill_chunk": 7}, {"prefill_chunk": 64}),
        ({"drafts": DraftConfig("ngram", 3)}, {"memory": ONE_SLOT}),
        ({"num_slots": 1}, {"num_slots": 3}),
        ({"context_length": 400}, {"context_length": 600}),
    ],
    ids=["streamed", "resident", "threads", "isa", "chunk", "drafts", "slots", "context"],
)
def test_a_start_under_other_conditions_goes_on_with_the_same_bits(
    before: dict[str, Any], after: dict[str, Any], model: Path
) -> None:
    prompt = prompt_of(90)
    with saving(model, **before) as engine:
        reply = ask(engine, prompt).ids
    longer = [*prompt, *reply, *prompt_of(9, seed=3)]
    with saving(model, **after) as engine:
        turn = ask(engine, longer)
    assert turn.num_reused == 101
    assert turn.same_as(fresh(model, longer))
