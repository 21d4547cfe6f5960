"""Drafts change no token and no logit on real kernels: tiny models of every architecture, the demo.

TOKEN lines carry log-probabilities of the whole row, so that equal lines are equal logits: a row
verified among others has the bits of a row computed alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.engine_config import DraftConfig
from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.speculation.cost import FixedDepth
from colibri_engine.speculation.drafting import Drafting
from colibri_protocol.messages import Finished, TokenLogprobs
from tests.engine.model_rig import GREEDY, SAMPLED, Ids, prompt_of, start, submit
from tests.fakes.scripted_drafter import ScriptedDrafter
from tests.fakes.tiny_checkpoint import VOCAB_SIZE, write_hf
from tests.fakes.tiny_gguf import write_gguf_model
from tests.fakes.tiny_variants import write_variant

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.engine import Engine

NGRAM = DraftConfig(source="ngram", tokens=5)
MODELS = (
    "llama q8_0", "glm4_moe bf16", "gpt_oss f32", "deepseek_v3 f32", "glm_moe_dsa f32",
    "olmoe f32", "qwen3_moe f32",
)  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    family, number_format = request.param.split()
    if number_format == "q8_0":
        return write_gguf_model(directory / "tiny.gguf", family, type_name="Q8_0").path
    if family == "gpt_oss":
        return write_variant(directory / "tiny", family)
    return write_hf(directory / "tiny", family, dtype=number_format.upper()).path


def lines(engine: Engine, request_id: int, prompt: Ids, **options: Any) -> list[TokenLogprobs]:  # noqa: ANN401
    """Return the TOKEN lines of one request, run alone."""
    messages = submit(engine, request_id, prompt, logprobs=4, **options)
    while not any(isinstance(m, Finished) for m in messages):
        messages += engine.step()
    return [m for m in messages if isinstance(m, TokenLogprobs)]


def drafts_of(engine: Engine) -> dict[str, dict[str, int]]:
    return engine.report()["drafts"]  # type: ignore[return-value]


def foreseen(answer: Ids, seed: int) -> ScriptedDrafter:
    """Proposes the known answer, with a wrong token now and then."""
    rng = np.random.default_rng(seed)

    def guess(history: list[int], limit: int) -> list[int]:
        place = next((i for i in range(len(answer), 0, -1) if history[-i:] == answer[:i]), 0)
        ids = [*answer[place : place + limit], *rng.integers(0, VOCAB_SIZE, limit).tolist()]
        if rng.random() < 0.6:
            ids[int(rng.integers(limit))] = int(rng.integers(VOCAB_SIZE))
        return ids

    return ScriptedDrafter(guess)


@pytest.mark.parametrize("options", [GREEDY, SAMPLED, {**SAMPLED, "frequency_penalty": 1.5}])
def test_half_right_drafts_change_neither_tokens_nor_logits(
    model_path: Path, options: dict[str, Any]
) -> None:
    prompt = prompt_of(40)
    plain = lines(start(model_path), 1, prompt, max_tokens=40, **options)
    engine = start(model_path)
    drafter = foreseen([m.token_id for m in plain], seed=5)
    engine._drafting = Drafting([drafter], VOCAB_SIZE, FixedDepth(6))
    assert lines(engine, 1, prompt, max_tokens=40, **options) == plain
    counts = drafts_of(engine)["ngram"]
    assert 0 < counts["accepted"] < counts["drafted"]
    slot = engine._slots[0]
    assert slot.cache.length == len(slot.history) == 40 + 39


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
def test_drafts_from_the_history_change_no_token(model_path: Path, options: dict[str, Any]) -> None:
    prompt = prompt_of(12) * 3
    plain = lines(start(model_path), 1, prompt, max_tokens=60, **options)
    engine = start(model_path, drafts=NGRAM)
    assert lines(engine, 1, prompt, max_tokens=60, **options) == plain


def test_several_replies_with_drafts_beside_a_prompt(model_path: Path) -> None:
    prompts = {i: prompt_of(9, seed=i) * 3 for i in range(1, 5)}
    wanted = {
        i: [m.token_id for m in lines(start(model_path), i, p, max_tokens=30, seed=i)]
        for i, p in prompts.items()
    }
    engine = start(model_path, num_slots=4, prefill_chunk=4, drafts=NGRAM)
    messages = []
    for request_id, prompt in prompts.items():
        options: dict[str, Any] = {"max_tokens": 30, "seed": request_id}
        messages += submit(engine, request_id, prompt, **options)
        for _ in range(4):
            messages += engine.step()
    while not engine.is_idle:
        messages += engine.step()
    found = {
        i: [m.token_id for m in messages if isinstance(m, TokenLogprobs) and m.id == i]
        for i in prompts
    }
    assert found == wanted


def test_rejected_rows_leave_no_trace_in_the_routing_counts(model_path: Path) -> None:
    prompt = prompt_of(20)
    plain = start(model_path)
    answer = [m.token_id for m in lines(plain, 1, prompt, max_tokens=30, **GREEDY)]
    engine = start(model_path)
    engine._drafting = Drafting([foreseen(answer, seed=1)], VOCAB_SIZE, FixedDepth(6))
    lines(engine, 1, prompt, max_tokens=30, **GREEDY)
    assert drafts_of(engine)["ngram"]["drafted"] > 0
    np.testing.assert_array_equal(engine._model.routing_counts, plain._model.routing_counts)


def test_a_verified_row_has_the_bits_of_a_row_alone(model_path: Path) -> None:
    checkpoint = open_checkpoint(model_path)
    try:
        model = load_model(checkpoint)
    finally:
        checkpoint.close()
    ids = np.array(prompt_of(24), np.int32)
    cache, alone = model.make_cache(), []
    batch = Batch()
    for place in range(24):
        batch.set([(cache, place, 1)])
        alone.append(model.forward(ids[place : place + 1], batch, [0])[0].copy())
    cache = model.make_cache()
    wrong = (ids + 1) % VOCAB_SIZE
    for place, right in ((0, 3), (3, 1), (4, 5), (9, 2), (11, 8), (19, 5)):
        fed = np.concatenate([ids[place : place + right], wrong[place + right : place + 8]])
        batch.set([(cache, place, fed.size)])
        logits = model.forward(fed, batch, list(range(fed.size)))
        np.testing.assert_array_equal(logits[:right], np.array(alone[place : place + right]))
        cache.truncate(place + right)


def test_a_recurrent_model_is_refused_drafts_that_were_asked_for(tmp_path: Path) -> None:
    path = write_variant(tmp_path / "tiny", "inkling")
    with pytest.raises(UnsupportedModel, match=r"inkling.* cannot take a wrong guess back"):
        start(path, drafts=NGRAM)
    engine = start(path, drafts=DraftConfig(source="auto"))
    prompt = prompt_of(12) * 3
    plain = lines(start(path), 1, prompt, **GREEDY)
    assert lines(engine, 1, prompt, **GREEDY) == plain


# ---- real weights ----

REPETITIVE = "def add_one(x):\n    return x + 1\n\ndef add_two(x):\n    return x + 2\n\ndef add_"


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_demo_says_the_same_with_drafts(
    demo_gguf: Path, depth: int, options: dict[str, Any]
) -> None:
    engine = start(demo_gguf)
    prompt = _encode(demo_gguf, REPETITIVE)
    plain = lines(engine, 1, prompt, max_tokens=48, **options)
    drafted = start(demo_gguf, drafts=DraftConfig(source="ngram", tokens=depth))
    assert lines(drafted, 1, prompt, max_tokens=48, **options) == plain
    if options is GREEDY:
        assert drafts_of(drafted)["ngram"]["accepted"] >= 10


def _encode(path: Path, text: str) -> Ids:
    from colibri_engine.tokenizer import Tokenizer

    checkpoint = open_checkpoint(path)
    try:
        return Tokenizer(checkpoint.tokenizer).encode_text(text)
    finally:
        checkpoint.close()
