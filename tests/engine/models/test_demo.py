"""The demo mixture: with every expert chosen it is the dense model it was cut from."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.greedy import NUM_TOKENS, PROMPTS, Prompts, decode_greedily
from colibri_engine import kernels, machine
from colibri_engine.jobs.build_demo import NUM_EXPERTS
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.quant.base import FloatTensor, StoredTensor
from tests.engine.models.conftest import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.models.base import Model


class WithoutRouting:
    """A checkpoint whose router rows are zero: every expert scores one half.

    Args:
        checkpoint: The demo's own.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.num_zeroed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._checkpoint, name)

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor, or zeros in place of a router's."""
        if not name.endswith(".mlp.gate.weight"):
            return self._checkpoint.tensor(name)
        self.num_zeroed += 1
        return FloatTensor(np.zeros(self._checkpoint.shape(name), np.float32))


def load_with_all_experts(path: Path, numerics: str) -> Model:
    """Load the demo with zeroed router rows and all experts chosen."""
    with closing(open_checkpoint(path)) as checkpoint:
        source = WithoutRouting(checkpoint)
        model = load_model(
            source,  # type: ignore[arg-type]
            numerics=numerics,
            experts_per_token=NUM_EXPERTS,
        )
        assert source.num_zeroed == model.config.num_layers - 1
    return model


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Iterator[None]:
    before = kernels.num_threads()
    kernels.set_num_threads(machine.num_usable_cores())
    yield
    kernels.set_num_threads(before)


@pytest.fixture(scope="module")
def prompts(smollm2_gguf: Path) -> Prompts:
    with closing(open_checkpoint(smollm2_gguf)) as checkpoint:
        return Prompts(checkpoint)


@pytest.fixture(scope="module", params=["default", "float"])
def models(
    request: pytest.FixtureRequest, smollm2_gguf: Path, demo_gguf: Path
) -> Mapping[str, Model]:
    return {
        "dense": load(smollm2_gguf, request.param),
        "mixture": load_with_all_experts(demo_gguf, request.param),
    }


@pytest.mark.parametrize("question", PROMPTS)
def test_all_experts_together_are_the_dense_model(
    models: Mapping[str, Model], prompts: Prompts, question: str
) -> None:
    prompt = prompts.encode(question)
    dense, mixture = (decode_greedily(model, prompt, NUM_TOKENS) for model in models.values())
    assert mixture == dense


def test_the_demo_writes_prompts_like_the_dense_model(prompts: Prompts, demo_gguf: Path) -> None:
    with closing(open_checkpoint(demo_gguf)) as checkpoint:
        demo = Prompts(checkpoint)
    for question in PROMPTS:
        np.testing.assert_array_equal(demo.encode(question), prompts.encode(question))


def test_the_demo_knows_the_capital_of_france(prompts: Prompts, demo_gguf: Path) -> None:
    model = load(demo_gguf, "default")
    ids = decode_greedily(model, prompts.encode("What is the capital of France?"), 12)
    assert "Paris" in prompts.tokenizer.decode(ids)
