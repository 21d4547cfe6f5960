"""The draft layer is fed every true row once, in order, and never keeps a guessed one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.engine_config import DraftConfig
from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch
from colibri_engine.models.base import DraftStep
from colibri_engine.models.glm_moe_dsa import Model
from colibri_engine.speculation.base import Source
from colibri_engine.speculation.cost import FixedDepth
from colibri_engine.speculation.drafting import (
    GUARD_REST_STEPS,
    REST_STEPS,
    Drafting,
    Guard,
)
from colibri_engine.speculation.mtp import LONGEST_TAIL, MtpDrafter, Window
from tests.engine.engine_rig import Rig
from tests.engine.model_rig import GREEDY, SAMPLED, prompt_of, start
from tests.engine.speculation.test_drafted_replies import PENALIZED
from tests.engine.speculation.test_drafts_on_models import drafts_of, lines
from tests.engine.test_engine import caches_match_histories
from tests.fakes.byte_tokenizer import VOCAB_SIZE
from tests.fakes.fake_draft_model import FakeDraftModel
from tests.fakes.fake_model import FakeBatch
from tests.fakes.tiny_checkpoint import write_hf

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.engine import Engine


def rig_with(model: FakeDraftModel, depth: int = 3, **changes: Any) -> tuple[Rig, MtpDrafter]:  # noqa: ANN401
    drafter = MtpDrafter(model, FakeBatch(), 2048)  # type: ignore[arg-type]
    drafting = Drafting([drafter], VOCAB_SIZE, FixedDepth(depth))
    return Rig(model=model, drafting=drafting, context_length=2048, **changes), drafter


def sometimes_wrong(model: FakeDraftModel) -> None:
    def guess(history: list[int], depth: int) -> int:
        right = int(model.logits_after(history).argmax())
        return right if (len(history) + depth) % 3 else (right + 1) % VOCAB_SIZE

    model.guess = guess


def windows_are_true(rig: Rig, drafter: MtpDrafter) -> None:
    """Every row in a window belongs to the slot's history, without a gap up to its end."""
    model = rig.model
    assert isinstance(model, FakeDraftModel)
    for slot_idx, window in drafter._windows.items():
        history = rig.engine._slots[slot_idx].history.ids.tolist()
        assert window.ids.ids.tolist() == history
        cache: Any = window.cache
        tail = [int(n) for states in window.tail for n in states[:, 0]]
        assert window.base + cache.length + len(tail) == len(history)
        for place, number in enumerate(cache.ids, window.base):
            assert model.histories[number] == history[: place + 2]
        for place, number in enumerate(tail, window.base + cache.length):
            assert model.histories[number] == history[: place + 1]


# ---- one reply ----


def test_right_guesses_save_steps() -> None:
    model = FakeDraftModel()
    rig, drafter = rig_with(model)
    assert rig.answer("hello", max_tokens=33) == Rig().answer("hello", max_tokens=33)
    assert rig.model.forwards[1:] == [[4]] * 8
    assert model.num_drafts == 8 * 3
    windows_are_true(rig, drafter)


@pytest.mark.parametrize("options", [GREEDY, SAMPLED, PENALIZED])
@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("chunk", [3, 64])
def test_rejected_guesses_leave_no_row(depth: int, chunk: int, options: dict[str, Any]) -> None:
    model = FakeDraftModel()
    sometimes_wrong(model)
    rig, drafter = rig_with(model, depth, chunk_tokens=chunk)
    request_id = rig.submit("hello you", max_tokens=50, **options)
    while not rig.has_ended(request_id):
        rig.step()
        windows_are_true(rig, drafter)
    assert rig.data(request_id) == Rig().answer("hello you", max_tokens=50, **options)
    caches_match_histories(rig)


def test_a_long_prompt_costs_the_layer_its_last_part_only() -> None:
    model = FakeDraftModel()
    rig, drafter = rig_with(model, chunk_tokens=100)
    prompt = bytes(np.random.default_rng(1).integers(0, 255, 1500).tolist())
    rig.submit(prompt, slot=0, max_tokens=13)
    rig.run()
    assert drafter._windows[0].base == 1500 - LONGEST_TAIL
    windows_are_true(rig, drafter)
    assert rig.model.forwards[-1] == [4]


# ---- turn after turn ----


def test_a_second_turn_goes_on_in_the_same_window() -> None:
    model = FakeDraftModel()
    sometimes_wrong(model)
    rig, drafter = rig_with(model)
    prompt = b"hello"
    for _ in range(4):
        reply = rig.answer(prompt, slot=0, max_tokens=20)
        windows_are_true(rig, drafter)
        assert drafter._windows[0].base == 0
        prompt = prompt + reply + b" and then?"


@pytest.mark.parametrize("turn", ["cut back", "copied", "another", "too short"])
def test_a_window_begins_anew_behind_what_it_cannot_know(turn: str) -> None:
    model = FakeDraftModel()
    sometimes_wrong(model)
    rig, drafter = rig_with(model)
    opening = b"a long opening that both conversations share, word for word. "
    first = rig.answer(opening, slot=0, max_tokens=30)
    prompt, slot, base = {
        "cut back": (opening + first[:9] + b"!", 0, len(opening) + 9),
        "copied": (opening + first + b"!", 1, len(opening) + 29),
        "another": (b"something else", 0, 0),
        "too short": (opening[:7], 0, 6),
    }[turn]
    request_id = rig.submit(prompt, slot=slot, max_tokens=30)
    rig.run()
    assert rig.data(request_id) == Rig().answer(prompt, max_tokens=30)
    windows_are_true(rig, drafter)
    assert drafter._windows[slot].base == base


def test_requests_without_drafts_in_between_do_not_confuse_a_window() -> None:
    model = FakeDraftModel()
    rig, drafter = rig_with(model)
    prompt, reply = b"hello", b""
    for bound in (None, 0, None, 0, 0, None):
        options = {} if bound is None else {"draft": bound}
        reply = rig.answer(prompt, slot=0, max_tokens=9, **options)
        if bound is None:
            windows_are_true(rig, drafter)
        prompt = prompt + reply + b"?"
    assert Rig().answer(prompt[: -len(reply) - 1], max_tokens=9) == reply


# ---- company ----


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_several_replies_are_guessed_for_in_one_call(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = FakeDraftModel()
    sometimes_wrong(model)
    rig, _ = rig_with(model, chunk_tokens=5)
    wanted: dict[int, bytes] = {}
    prompts: list[bytes] = []
    for _ in range(7):
        prompt = bytes(rng.integers(97, 100, int(rng.integers(1, 20))))
        if prompts and rng.random() < 0.5:
            prompt = prompts[int(rng.integers(len(prompts)))] + prompt
        prompt = prompt[-60:]  # of the rig's context
        prompts.append(prompt)
        while all(slot.request_id is not None for slot in rig.engine._slots.slots):
            rig.step()
        options = [GREEDY, SAMPLED][int(rng.integers(2))]
        size = int(rng.integers(1, 20))
        request_id = rig.submit(prompt, max_tokens=size, **options)
        wanted[request_id] = Rig().answer(prompt, max_tokens=size, **options)
        rig.step(int(rng.integers(6)))
        if rng.random() < 0.2 and not rig.has_ended(request_id):
            rig.keep(rig.engine.cancel(request_id))
            del wanted[request_id]
    rig.run()
    assert {request_id: rig.data(request_id) for request_id in wanted} == wanted
    caches_match_histories(rig)


def test_one_call_guesses_for_all() -> None:
    model = FakeDraftModel()
    rig, _ = rig_with(model, depth=2)
    for place in range(4):
        rig.submit(bytes([97 + place]) * 5, max_tokens=40)
    rig.step(2)  # the prompts, then a first drafted step
    before = model.num_drafts
    rig.step()
    assert model.num_drafts - before == 2
    assert rig.model.forwards[-1] == [3] * 4


# ---- what breaks ----


def test_a_layer_that_breaks_costs_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeDraftModel()

    def fault() -> None:
        raise ValueError("broken weights")

    model.draft_fault = fault
    rig, _ = rig_with(model)
    assert rig.answer("hello") == Rig().answer("hello")
    assert "no drafts from mtp for" in caplog.text


def test_lack_of_memory_passes() -> None:
    model = FakeDraftModel()
    countdown = [3]

    def fault() -> None:
        countdown[0] -= 1
        if countdown[0] > 0:
            raise MemoryError("no room for the draft cache")

    model.draft_fault = fault
    rig, drafter = rig_with(model)
    size = 3 * REST_STEPS
    assert rig.answer("hello", max_tokens=size) == Rig().answer("hello", max_tokens=size)
    assert rig.model.forwards[2 * REST_STEPS + 3 : -1] == [[4]] * 15
    windows_are_true(rig, drafter)


@pytest.mark.parametrize("percent", [0, 60, 70])
def test_a_guard_gives_a_layer_that_is_often_wrong_a_rest(percent: int) -> None:
    model = FakeDraftModel()
    sometimes_wrong(model)  # of two guesses, both, one or none come true: 55 %
    guard = Guard(Source.MTP, percent, 10) if percent else None
    drafter = MtpDrafter(model, FakeBatch(), 2048)  # type: ignore[arg-type]
    drafting = Drafting([drafter], VOCAB_SIZE, FixedDepth(2), guard)
    rig = Rig(model=model, drafting=drafting, context_length=2048)
    size = GUARD_REST_STEPS + 100
    assert rig.answer("hello", max_tokens=size) == Rig(context_length=2048).answer(
        "hello", max_tokens=size
    )
    rows = [step[0] for step in rig.model.forwards[1:]]
    if percent == 0:
        assert set(rows[:-2]) == {3}
    else:
        assert rows[: 10 + GUARD_REST_STEPS] == [3] * 10 + [1] * GUARD_REST_STEPS
        assert rows[10 + GUARD_REST_STEPS] == 3
    windows_are_true(rig, drafter)


# ---- the real layer ----


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    return write_hf(
        directory / "glm", "glm_moe_dsa", index_share_for_mtp_iteration=True, dtype="BF16"
    ).path


@pytest.mark.parametrize("options", [GREEDY, SAMPLED])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_real_layer_changes_no_token(
    model_path: Path, depth: int, options: dict[str, Any]
) -> None:
    prompt = prompt_of(40)
    plain = lines(start(model_path), 1, prompt, max_tokens=40, **options)
    engine = start(model_path, drafts=DraftConfig(source="mtp", tokens=depth))
    assert lines(engine, 1, prompt, max_tokens=40, **options) == plain
    assert drafts_of(engine)["mtp"]["drafted"] > 30


def window_of(engine: Engine) -> Window:
    drafter = engine._drafting._drafters[0]
    assert isinstance(drafter, MtpDrafter)
    return drafter._windows[0]


@pytest.mark.parametrize("depth", [1, 3])
def test_the_cache_after_rejections_is_that_of_a_computation_from_scratch(
    model_path: Path, depth: int
) -> None:
    engine = start(model_path, drafts=DraftConfig(source="mtp", tokens=depth), prefill_chunk=7)
    lines(engine, 1, prompt_of(40), max_tokens=40, **SAMPLED)
    counts, window = drafts_of(engine)["mtp"], window_of(engine)
    assert counts["accepted"] < counts["drafted"]
    model = engine._model
    assert isinstance(model, Model)
    ids = window.ids.ids.copy()
    batch = Batch()
    batch.set([(model.make_cache(), 0, len(ids))])
    model.forward(ids, batch, [0])
    hidden = model.final_hidden(range(len(ids)))
    num_tail = window.num_tail
    np.testing.assert_array_equal(np.concatenate(window.tail), hidden[-num_tail:])
    fed = len(ids) - num_tail
    assert window.cache.length == fed > 60
    scratch = model.make_draft_cache()
    batch.set([(scratch, 0, fed)])
    model.draft(DraftStep(ids[1 : fed + 1], hidden[:fed]), batch, [0])
    guesses = []
    for cache in (window.cache, scratch):
        place, size = fed - 9, num_tail + 8
        cache.truncate(place)
        batch.set([(cache, place, size)])
        rest = DraftStep(ids[place + 1 :], hidden[place:-1])
        found = model.draft(rest, batch, list(range(size)))
        guesses.append((found.logits.copy(), found.hidden))
    np.testing.assert_array_equal(guesses[0][0], guesses[1][0])
    np.testing.assert_array_equal(guesses[0][1], guesses[1][1])


def test_without_a_use_for_it_the_layer_is_not_loaded(model_path: Path) -> None:
    for drafts, is_loaded in (
        (DraftConfig(source="auto"), True),
        (DraftConfig(source="off"), False),
        (DraftConfig(source="auto", has_mtp=False), False),
        (DraftConfig(source="ngram"), False),
        (DraftConfig(source="auto", tokens=0), False),
    ):
        model = start(model_path, drafts=drafts)._model
        assert isinstance(model, Model)
        assert model.can_draft == is_loaded


def test_a_model_without_the_layer_is_refused_it_by_name(tmp_path: Path) -> None:
    path = write_hf(tmp_path / "llama").path
    with pytest.raises(UnsupportedModel, match=r"drafts from mtp .* llama has no draft layer"):
        start(path, drafts=DraftConfig(source="mtp"))
    for drafts, reason in (
        (DraftConfig(source="mtp", has_mtp=False), "COLI_MTP is 0"),
        (DraftConfig(source="grammar", grammar_tokens=0), "COLI_GRAMMAR_DRAFT is 0"),
        (DraftConfig(source="ngram", tokens=0), "COLI_DRAFT_TOKENS is 0"),
    ):
        with pytest.raises(UnsupportedModel, match=reason):
            start(path, drafts=drafts)
    assert start(path, drafts=DraftConfig(source="auto")).report()["drafts"].keys() == {  # type: ignore[attr-defined]
        "grammar", "ngram",
    }  # fmt: skip
