"""Drafts change no token, whatever they are: the engine on the fake model.

The fake model's logits follow from the exact ids in the cache, so a row that should have been cut
back, or a token chosen from the wrong row, changes the reply.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.engine_config import MAX_DRAFTED_ROWS
from colibri_engine.errors import EngineError
from colibri_engine.speculation.base import Source
from colibri_engine.speculation.cost import FixedDepth
from colibri_engine.speculation.drafting import REST_STEPS, Drafting
from colibri_engine.speculation.ngram import NgramDrafter
from colibri_protocol.messages import FinishReason, TextDelta, TokenLogprobs, TurnProfile
from tests.engine.engine_rig import Rig, scripted
from tests.engine.test_engine import caches_match_histories
from tests.fakes.byte_tokenizer import EOS, USER, VOCAB_SIZE
from tests.fakes.fake_model import FakeModel
from tests.fakes.scripted_drafter import ScriptedDrafter

GREEDY: dict[str, Any] = {"temperature": 0.0}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7, "top_p": 0.9, "top_k": 50}
PENALIZED: dict[str, Any] = {
    "temperature": 0.7, "seed": 3, "repetition_penalty": 1.3, "frequency_penalty": 0.4,
    "presence_penalty": 0.2, "min_p": 0.001, "logit_bias": {65: 4.0},
}  # fmt: skip


def drafting(drafter: Any, depth: int = 8) -> Drafting:  # noqa: ANN401 - any drafter
    return Drafting([drafter], VOCAB_SIZE, FixedDepth(depth))


def oracle(model: FakeModel) -> ScriptedDrafter:
    """A drafter that knows what a greedy reply will be."""

    def guess(history: list[int], limit: int) -> list[int]:
        ids = list(history)
        for _ in range(limit):
            ids.append(int(model.logits_after(ids).argmax()))
        return ids[len(history) :]

    return ScriptedDrafter(guess)


def now_and_then_right(model: FakeModel) -> ScriptedDrafter:
    """Right for some tokens, then wrong."""
    right = oracle(model)

    def guess(history: list[int], limit: int) -> list[int]:
        ids = right.guess(history, limit)
        place = len(history) % 4
        return [*ids[:place], *((token + 1) % VOCAB_SIZE for token in ids[place:])]

    return ScriptedDrafter(guess)


# ---- the same tokens ----


@pytest.mark.parametrize("options", [GREEDY, SAMPLED, PENALIZED])
@pytest.mark.parametrize("depth", [1, 3, 8])
@pytest.mark.parametrize("make", [oracle, now_and_then_right])
def test_drafts_change_no_token(make: Any, depth: int, options: dict[str, Any]) -> None:  # noqa: ANN401
    plain = Rig().answer("hello", max_tokens=60, logprobs=2, **options)
    model = FakeModel()
    rig = Rig(model=model, drafting=drafting(make(model), depth))
    assert rig.answer("hello", max_tokens=60, logprobs=2, **options) == plain
    caches_match_histories(rig)


def test_log_probabilities_are_the_same_with_drafts() -> None:
    plain, model = Rig(), FakeModel()
    plain.answer("hello", max_tokens=40, logprobs=3, **SAMPLED)
    drafted = Rig(model=model, drafting=drafting(now_and_then_right(model)))
    drafted.answer("hello", max_tokens=40, logprobs=3, **SAMPLED)
    of_both = [
        [m for m in rig.messages if isinstance(m, TokenLogprobs | TextDelta)]
        for rig in (plain, drafted)
    ]
    assert of_both[0] == of_both[1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_garbage_changes_no_token(data: st.DataObject) -> None:
    def garbage(history: list[int], limit: int) -> list[int]:
        return data.draw(st.lists(st.integers(-5, VOCAB_SIZE + 5), max_size=limit + 3))

    options = data.draw(st.sampled_from([GREEDY, SAMPLED, PENALIZED]))
    rig = Rig(drafting=drafting(ScriptedDrafter(garbage), data.draw(st.integers(1, 64))))
    prompt = data.draw(st.binary(min_size=1, max_size=40))
    assert rig.answer(prompt, max_tokens=12, **options) == Rig().answer(
        prompt, max_tokens=12, **options
    )
    caches_match_histories(rig)


def test_a_right_draft_saves_steps() -> None:
    model = FakeModel()
    rig = Rig(model=model, drafting=drafting(oracle(model), 4))
    plain = Rig().answer("hello", max_tokens=21)
    assert rig.answer("hello", max_tokens=21) == plain
    assert rig.model.forwards == [[5], [5], [5], [5], [5]]
    profile = next(m for m in rig.messages if isinstance(m, TurnProfile))
    assert (profile.completion_tokens, profile.num_forwards) == (21, 5)
    counts = rig.engine.report()["drafts"]
    assert counts == {"ngram": {"proposals": 4, "drafted": 16, "accepted": 16}}


# ---- ends ----


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_the_cap_falls_inside_a_draft(max_tokens: int) -> None:
    model = FakeModel()
    rig = Rig(model=model, drafting=drafting(oracle(model), 8))
    request_id = rig.submit("hello", slot=0, max_tokens=max_tokens)
    rig.run()
    plain = Rig()
    plain_id = plain.submit("hello", slot=0, max_tokens=max_tokens)
    plain.run()
    assert rig.data(request_id) == plain.data(plain_id)
    done = rig.finished(request_id)
    assert (done.completion_tokens, done.finish) == (max_tokens, FinishReason.LENGTH)
    histories = [r.engine._slots[0].history.ids.tolist() for r in (rig, plain)]
    assert histories[0] == histories[1]
    caches_match_histories(rig)


@pytest.mark.parametrize("place", range(6))
def test_a_stop_token_falls_inside_a_draft(place: int) -> None:
    reply = [*b"abcdefgh"]
    reply.insert(place, USER)
    model = scripted(reply, 2)
    rig = Rig(model=model, drafting=drafting(oracle(model), 5))
    request_id = rig.submit("hi", slot=0, stop_ids=(USER,), max_tokens=50)
    rig.run()
    done = rig.finished(request_id)
    assert (done.finish, done.stop_id, done.completion_tokens) == (FinishReason.STOP, USER, place)
    assert rig.data(request_id) == b"abcdefgh"[:place]
    assert rig.engine._slots[0].history.ids.tolist() == [*b"hi", *b"abcdefgh"[:place]]
    caches_match_histories(rig)


def test_the_end_of_the_context_is_not_passed() -> None:
    model = FakeModel(next_token=lambda _: 65)
    rig = Rig(model=model, context_length=64, drafting=drafting(oracle(model), 64))
    request_id = rig.submit("hi", max_tokens=1000)
    rig.run()
    assert rig.finished(request_id).completion_tokens == 64 - 2 - 1
    assert rig.data(request_id) == b"A" * 61


def test_stop_and_cancel_between_drafted_steps() -> None:
    model = FakeModel(next_token=lambda _: 65)
    rig = Rig(model=model, drafting=drafting(oracle(model), 3))
    stopped, cancelled = rig.submit("hi", max_tokens=100), rig.submit("ho", max_tokens=100)
    rig.step(3)  # the prompts, then two drafted steps
    rig.keep(rig.engine.stop(stopped))
    rig.keep(rig.engine.cancel(cancelled))
    assert rig.finished(stopped).completion_tokens == 1 + 4 + 4
    assert rig.failed(cancelled).code == "CANCELLED"
    caches_match_histories(rig)
    assert rig.answer(b"hiAAA") == b"A" * 8


# ---- company ----


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_several_replies_draft_side_by_side(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = FakeModel()
    rig = Rig(model=model, chunk_tokens=4, drafting=drafting(now_and_then_right(model), 5))
    wanted: dict[int, bytes] = {}
    for _ in range(8):
        prompt = bytes(rng.integers(0, 256, int(rng.integers(1, 30))))
        options = [GREEDY, SAMPLED, PENALIZED][int(rng.integers(3))]
        size = int(rng.integers(1, 20))
        while all(slot.request_id is not None for slot in rig.engine._slots.slots):
            rig.step()
        request_id = rig.submit(prompt, max_tokens=size, **options)
        wanted[request_id] = Rig().answer(prompt, max_tokens=size, **options)
        rig.step(int(rng.integers(3)))
    rig.run()
    assert {request_id: rig.data(request_id) for request_id in wanted} == wanted
    caches_match_histories(rig)


def test_drafts_of_all_replies_share_the_rows_of_a_step() -> None:
    model = FakeModel(next_token=lambda _: 65)
    rig = Rig(model=model, num_slots=4, drafting=drafting(oracle(model), 64))
    ids = [rig.submit(bytes([65 + i]), max_tokens=100) for i in range(4)]
    rig.step(2)
    assert rig.model.forwards[-1] == [1 + MAX_DRAFTED_ROWS // 4] * 4
    rig.run()
    assert {rig.data(request_id) for request_id in ids} == {b"A" * 100}


def test_a_request_bounds_its_own_drafts() -> None:
    model = FakeModel(next_token=lambda _: 65)
    for bound, rows in ((0, 1), (2, 3), (None, 7)):
        rig = Rig(model=model, drafting=drafting(oracle(model), 6))
        options = {} if bound is None else {"draft": bound}
        rig.submit("hi", max_tokens=50, **options)
        rig.step(2)
        assert rig.model.forwards[-1] == [rows]


# ---- what breaks ----


def test_a_drafter_that_raises_costs_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    def broken(history: list[int], limit: int) -> list[int]:
        raise ValueError("no idea")

    rig = Rig(drafting=drafting(ScriptedDrafter(broken)))
    assert rig.answer("hello") == Rig().answer("hello")
    assert "no drafts from ngram for 64 steps" in caplog.text
    assert len(caplog.records) == 1


def test_a_drafter_that_failed_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel(next_token=lambda _: 65)
    failures = [True, False]

    def guess(history: list[int], limit: int) -> list[int]:
        if failures and failures.pop(0):
            raise EngineError("a disk hiccup", code="hiccup")
        return [65] * limit

    rig = Rig(model=model, drafting=drafting(ScriptedDrafter(guess), 3))
    assert rig.answer("hi", max_tokens=100) == b"A" * 100
    assert rig.model.forwards[1 : REST_STEPS + 3] == [[1]] * (REST_STEPS + 1) + [[4]]


def test_a_step_that_fails_with_drafts_is_made_without_them() -> None:
    model = FakeModel(next_token=lambda _: 65)

    def fault(ids: list[int]) -> None:
        if len(ids) > 2:
            raise MemoryError("no room for so many rows")

    model.fault = fault
    rig = Rig(model=model, drafting=drafting(oracle(model), 4))
    assert rig.answer("hi") == b"A" * 8
    caches_match_histories(rig)


def test_rejected_rows_are_not_counted_as_use_of_experts() -> None:
    counts = []
    for make in (None, now_and_then_right):
        model = FakeModel(routing_counts=np.zeros((2, 8), np.int64))
        rig = Rig(model=model, drafting=None if make is None else drafting(make(model), 6))
        rig.answer("hello", max_tokens=40, **SAMPLED)
        counts.append(model.routing_counts)
    np.testing.assert_array_equal(counts[0], counts[1])


def test_tiers_are_told_every_token() -> None:
    told: list[tuple[int, int]] = []

    class Tiers:
        def after_step(self, num_rows: int, num_tokens: int) -> None:
            told.append((num_rows, num_tokens))

        def end_turn(self) -> None:
            pass

    model = FakeModel()
    rig = Rig(model=model, drafting=drafting(oracle(model), 4))
    rig.engine._tiers = Tiers()  # type: ignore[assignment]
    rig.answer("hello", max_tokens=21)
    assert told == [(5, 1), (5, 5), (5, 5), (5, 5), (5, 5)]


def test_state_that_cannot_be_cut_back_is_not_drafted_for() -> None:
    model = FakeModel(has_state=True)
    rig = Rig(model=model, drafting=drafting(now_and_then_right(model)))
    assert rig.answer("hello", max_tokens=30) == Rig().answer("hello", max_tokens=30)
    assert all(rows == [1] for rows in rig.model.forwards[1:])


# ---- what the drafters see ----


def test_drafters_see_the_rows_that_stay() -> None:
    model = FakeModel()
    drafter = now_and_then_right(model)
    rig = Rig(model=model, chunk_tokens=3, drafting=drafting(drafter, 6))
    request_id = rig.submit("hello", slot=0, max_tokens=20)
    rig.run()
    position = 0
    for item in drafter.committed:
        assert (item.sequence.request_id, item.start) == (request_id, position)
        position += item.num_rows
    assert position == len(rig.engine._slots[0].history)


def test_repeated_text_is_drafted_from_the_history() -> None:
    line = b"the cat sat on the mat. "
    model = FakeModel(next_token=lambda history: line[(len(history) - 48) % len(line)])
    rig = Rig(model=model, chunk_tokens=64, drafting=drafting(NgramDrafter(), 6))
    assert rig.answer(line * 2, max_tokens=96) == line * 4
    counts = rig.engine._drafting._counts[Source.NGRAM]
    assert counts.accepted == counts.drafted > 70
    assert len(rig.model.forwards) < 20


def test_an_end_token_may_be_guessed() -> None:
    model = scripted(b"abab", 4)
    rig = Rig(model=model, drafting=drafting(ScriptedDrafter(lambda _, limit: [EOS] * limit)))
    assert rig.answer("abab", max_tokens=30) == b"abab"
