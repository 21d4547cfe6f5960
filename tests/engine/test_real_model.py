"""The engine on real kernels and tiny models: reuse, chunks, company and copies change no token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from colibri_protocol.messages import (
    ExpertMap,
    TierCounts,
    TurnProfile,
)
from tests.engine.model_rig import GREEDY, SAMPLED, prompt_of, start, submit, tokens
from tests.fakes.tiny_checkpoint import VOCAB_SIZE, write_hf
from tests.fakes.tiny_gguf import write_gguf_model
from tests.fakes.tiny_variants import write_variant

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=["llama f32", "glm4_moe bf16", "llama q8_0", "gpt_oss f32"])
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    family, number_format = request.param.split()
    if number_format == "q8_0":
        return write_gguf_model(directory / "tiny.gguf", family, type_name="Q8_0").path
    if family == "gpt_oss":
        return write_variant(directory / "tiny", family)
    return write_hf(directory / "tiny", family, dtype=number_format.upper()).path


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_the_size_of_chunks_changes_no_token(
    model_path: Path, chunk: int, options: dict[str, Any]
) -> None:
    prompt = prompt_of(70)
    whole, _ = tokens(start(model_path), 1, prompt, **options)
    chunked, _ = tokens(start(model_path, prefill_chunk=chunk), 1, prompt, **options)
    assert chunked == whole


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
def test_reuse_changes_no_token(model_path: Path, options: dict[str, Any]) -> None:
    long, short, edited = prompt_of(90), prompt_of(90)[:30], prompt_of(90)
    edited[50] = edited[50] % (VOCAB_SIZE - 8) + 8
    engine = start(model_path)
    reused = []
    for request_id, prompt in enumerate((long, short, long, long, edited, long + short), 1):
        found, done = tokens(engine, request_id, prompt, 0, **options)
        cold, _ = tokens(start(model_path), 1, prompt, 0, **options)
        assert found == cold
        reused.append(done.reused_tokens)
    assert reused[0] == 0
    assert reused[1:4] == [29, 30, 89]
    assert reused[4] == 50


def test_rows_copied_from_another_slot_change_no_token(model_path: Path) -> None:
    engine = start(model_path, num_slots=2)
    opening = prompt_of(300)  # more than one block of the cache
    tokens(engine, 1, [*opening, 9], 0, **GREEDY)
    prompt = opening[:277] + prompt_of(20, seed=5)
    found, done = tokens(engine, 2, prompt, 1, **GREEDY)
    assert done.reused_tokens == 277
    assert found == tokens(start(model_path), 1, prompt, **GREEDY)[0]
    again, done = tokens(engine, 3, [*opening, 9, 10], 0, **GREEDY)  # the donor is unharmed
    assert done.reused_tokens == 301
    assert again == tokens(start(model_path), 1, [*opening, 9, 10], **GREEDY)[0]


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
def test_company_changes_no_token(model_path: Path, options: dict[str, Any]) -> None:
    prompt = prompt_of(40)
    alone, _ = tokens(start(model_path), 1, prompt, **options)
    engine = start(model_path, num_slots=4, prefill_chunk=9)
    for request_id, size in ((1, 3), (2, 150)):
        submit(engine, request_id, prompt_of(size, request_id), max_tokens=200, temperature=1.3)
    for _ in range(4):
        engine.step()
    found, _ = tokens(engine, 3, prompt, **options)
    assert found == alone


def test_a_cancelled_prompt_leaves_rows_that_are_good(model_path: Path) -> None:
    prompt = prompt_of(100)
    engine = start(model_path, prefill_chunk=16)
    submit(engine, 1, prompt, 0)
    for _ in range(3):
        engine.step()
    engine.cancel(1)
    found, done = tokens(engine, 2, prompt, 0, **GREEDY)
    assert done.reused_tokens == 48
    assert found == tokens(start(model_path), 1, prompt, **GREEDY)[0]


def test_the_profile_adds_up(model_path: Path) -> None:
    engine = start(model_path)
    messages = submit(engine, 1, prompt_of(50), max_tokens=5)
    while not engine.is_idle:
        messages += engine.step()
    (profile,) = [m for m in messages if isinstance(m, TurnProfile)]
    assert (profile.prompt_tokens, profile.completion_tokens, profile.num_forwards) == (50, 5, 5)
    parts = profile.attention_s + profile.lm_head_s + profile.expert_matmul_s
    assert 0 < parts <= profile.wall_s
    (tiers,) = [m for m in messages if isinstance(m, TierCounts)]
    (heat,) = [m for m in messages if isinstance(m, ExpertMap)]
    assert tiers.ram == heat.rows * heat.cols == len(heat.cells)
    if tiers.ram:
        assert profile.expert_matmul_s > 0
        assert any(cell & 63 for cell in heat.cells)
