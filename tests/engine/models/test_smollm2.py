"""Real weights, real questions: greedy tokens equal transformers' in float32."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is not installed; run: scripts/setup oracle")
pytest.importorskip(
    "transformers", reason="transformers is not installed; run: scripts/setup oracle"
)

from benchmarks.greedy import NUM_TOKENS, PROMPTS, Prompts, Reference, decode_greedily
from colibri_engine import kernels, machine
from colibri_engine.loader.checkpoint import open_checkpoint
from tests.engine.models.conftest import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from colibri_engine.models.base import Model

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def reference(smollm2_gguf: Path) -> Reference:
    return Reference(smollm2_gguf)


@pytest.fixture(scope="module")
def prompts(smollm2_gguf: Path) -> Prompts:
    with closing(open_checkpoint(smollm2_gguf)) as checkpoint:
        return Prompts(checkpoint)


@pytest.fixture(scope="module")
def write_prompt(smollm2_gguf: Path) -> Callable[[str], list[int]]:
    """Transformers' own way from a question to the ids of a prompt."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )

    def write(question: str) -> list[int]:
        ids: list[int] = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
        )
        return ids

    return write


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Iterator[None]:
    before = kernels.num_threads()
    kernels.set_num_threads(machine.num_usable_cores())
    yield
    kernels.set_num_threads(before)


@pytest.fixture(scope="module", params=["default", "float"])
def model(request: pytest.FixtureRequest, smollm2_gguf: Path) -> Model:
    return load(smollm2_gguf, request.param)


@pytest.mark.parametrize("question", PROMPTS)
def test_greedy_tokens_equal_the_reference(
    reference: Reference, prompts: Prompts, model: Model, question: str
) -> None:
    prompt = prompts.encode(question)
    ids = decode_greedily(model, prompt, NUM_TOKENS)
    found = reference.judge(prompt, ids)
    assert found.num_equal == NUM_TOKENS, (
        f"token {found.num_equal} differs; the reference's two best were {found.narrowest:.1e} "
        "nats apart at the closest"
    )


@pytest.mark.parametrize("question", PROMPTS)
def test_the_prompt_is_the_one_transformers_writes(
    write_prompt: Callable[[str], list[int]], prompts: Prompts, question: str
) -> None:
    assert prompts.encode(question).tolist() == write_prompt(question)
