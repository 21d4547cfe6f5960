"""Replies from the fake model: limits, stops, slots, reuse, company, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_protocol.messages import (
    Accepted,
    ExpertHits,
    ExpertMap,
    Finished,
    FinishReason,
    HardwareInfo,
    Progress,
    RequestFailed,
    TextDelta,
    TierCounts,
    TokenLogprobs,
    TurnProfile,
)
from tests.engine.engine_rig import Rig, scripted
from tests.fakes.byte_tokenizer import EOS, PAIR, USER
from tests.fakes.fake_model import FakeKvCache, FakeModel


def caches_match_histories(rig: Rig) -> None:
    for slot in rig.engine._slots.slots:
        assert isinstance(slot.cache, FakeKvCache)
        assert slot.cache.ids == slot.history.ids.tolist()


# ---- the order of messages ----


def test_a_reply_from_accept_to_done() -> None:
    rig = Rig(model=scripted(b"ok", 20), chunk_tokens=8)
    request_id = rig.submit(b"x" * 20, slot=2)
    rig.run()
    assert [type(m) for m in rig.messages] == [
        Accepted, Progress, Progress, Progress, TextDelta, TextDelta,
        TurnProfile, HardwareInfo, TierCounts, ExpertMap, ExpertHits, Finished,
    ]  # fmt: skip
    assert rig.messages[0] == Accepted(request_id, 20, 0, 2)
    assert [(m.done, m.total) for m in rig.messages if isinstance(m, Progress)] == [
        (8, 20), (16, 20), (20, 20),
    ]  # fmt: skip
    done = rig.finished(request_id)
    assert (done.prompt_tokens, done.completion_tokens, done.reused_tokens) == (20, 2, 0)
    assert (done.finish, done.stop_id, done.limited) == (FinishReason.STOP, EOS, False)


def test_the_profile_holds_the_times_of_this_reply_only() -> None:
    rig = Rig(model=scripted(b"ok", 4))
    rig.answer(b"abcd")
    rig.model.next_token = scripted(b"ok!", 4).next_token
    request_id = rig.submit(b"wxyz")
    rig.run()
    profile = [m for m in rig.messages if isinstance(m, TurnProfile)][-1]
    assert profile == TurnProfile(
        wall_s=2.0, prompt_tokens=4, completion_tokens=3, expert_disk_s=0.0, expert_wait_s=0.0,
        expert_matmul_s=0.0, attention_s=1.0, lm_head_s=0.5, num_forwards=4,
    )  # fmt: skip
    assert rig.finished(request_id).tokens_per_second == 2.0  # two more tokens within one second


# ---- limits ----


@pytest.mark.parametrize(
    ("max_tokens", "finish"),
    [(4, FinishReason.LENGTH), (5, FinishReason.LENGTH), (6, FinishReason.STOP)],
)
def test_the_finish_reason_tells_the_truth(max_tokens: int, finish: FinishReason) -> None:
    rig = Rig(model=scripted(b"12345", 2))
    request_id = rig.submit("hi", max_tokens=max_tokens)
    rig.run()
    done = rig.finished(request_id)
    assert (done.finish, done.limited) == (finish, finish is FinishReason.LENGTH)
    assert rig.data(request_id) == b"12345"[:max_tokens]
    assert done.completion_tokens == min(max_tokens, 5)


def test_without_a_wish_the_default_limit_applies() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65), max_tokens=7)
    assert rig.answer("hi") == b"A" * 7


def test_a_short_prompt_always_fits() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65), context_length=128)
    request_id = rig.submit("hi", max_tokens=128)
    rig.run()
    done = rig.finished(request_id)
    assert done.completion_tokens == 128 - 2 - 1  # prompt and reply within the context
    assert (done.finish, done.limited) == (FinishReason.LENGTH, True)


def test_a_clamped_limit_that_did_not_end_the_reply_is_not_reported() -> None:
    rig = Rig(model=scripted(b"ok", 2), context_length=128)
    request_id = rig.submit("hi", max_tokens=100_000)
    rig.run()
    assert not rig.finished(request_id).limited


@pytest.mark.parametrize(("size", "fits"), [(126, True), (127, False), (5000, False)])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(size: int, fits: bool) -> None:
    rig = Rig(context_length=128)
    request_id = rig.submit(b"x" * size, max_tokens=10)
    if fits:
        rig.run()
        assert rig.finished(request_id).completion_tokens == 1
    else:
        assert rig.of(request_id) == [RequestFailed(request_id, "CONTEXT_EXCEEDED", f"{size} 126")]
        assert rig.engine.is_idle
        assert rig.model.forwards == []


# ---- refusals ----


def test_an_empty_prompt_is_refused() -> None:
    rig = Rig()
    assert rig.failed(rig.submit("")).code == "EMPTY_PROMPT"


def test_a_prompt_with_an_id_the_model_lacks_is_refused() -> None:
    rig = Rig()
    assert rig.failed(rig.submit([1, 300])).code == "BAD_REQUEST"


@pytest.mark.parametrize(("options", "name"), [({"logit_bias": {9999: 1.0}}, "logit_bias")])
def test_options_that_cannot_be_honoured_are_named(options: dict[str, Any], name: str) -> None:
    rig = Rig()
    refusal = rig.failed(rig.submit("hi", **options))
    assert (refusal.code, name in refusal.detail) == ("BAD_REQUEST", True)
    assert rig.answer("hi")  # and the slot is free


def test_a_busy_slot_and_a_used_id_are_refused() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65))
    first = rig.submit("hi", slot=1)
    assert rig.failed(rig.submit("there", slot=1)).code == "SLOT_BUSY"
    rig._last_id = 0
    rig.submit("again", slot=2)
    assert rig.failed(first).code == "DUPLICATE_ID"
    assert rig.engine.stop(77) == [RequestFailed(77, "NOT_FOUND")]
    assert rig.engine.cancel(77) == [RequestFailed(77, "NOT_FOUND")]


# ---- stops ----


def test_a_stop_id_ends_the_reply_and_is_neither_shown_nor_kept() -> None:
    rig = Rig(model=scripted([*b"hi", USER, *b"more"], 3))
    request_id = rig.submit("abc", slot=0, stop_ids=(USER,), max_tokens=50)
    rig.run()
    done = rig.finished(request_id)
    assert (done.finish, done.stop_id, done.completion_tokens) == (FinishReason.STOP, USER, 2)
    assert rig.data(request_id) == b"hi"
    assert rig.engine._slots[0].history.ids.tolist() == [*b"abchi"]
    assert len(rig.model.forwards) == 3  # nothing was computed after it


def test_ignoring_the_end_of_the_model_keeps_the_stops_of_the_request() -> None:
    rig = Rig(model=FakeModel(next_token=lambda history: EOS if len(history) < 9 else USER))
    request_id = rig.submit("abc", ignore_eos=True, stop_ids=(USER,), max_tokens=50)
    rig.run()
    assert rig.data(request_id) == b"<eos>" * 6
    assert rig.finished(request_id).stop_id == USER


def test_output_that_begins_like_a_control_word_is_not_cut() -> None:
    rig = Rig(model=scripted(b"<|use", 2))
    assert rig.answer("hi", stop_ids=(USER,)) == b"<|use"


def test_stop_ends_a_reply_normally() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65))
    request_id = rig.submit("hi", max_tokens=100)
    rig.step(3)
    rig.keep(rig.engine.stop(request_id))
    done = rig.finished(request_id)
    assert (done.finish, done.completion_tokens, done.limited) == (FinishReason.STOPPED, 3, False)
    assert rig.engine.is_idle


def test_stop_during_prefill_ends_with_nothing_generated() -> None:
    rig = Rig(chunk_tokens=4)
    request_id = rig.submit(b"x" * 100, slot=0)
    rig.step(2)
    rig.keep(rig.engine.stop(request_id))
    assert rig.finished(request_id).completion_tokens == 0
    assert rig.finished(request_id).finish is FinishReason.STOPPED
    assert len(rig.engine._slots[0].history) == 8


@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_cancel_at_any_moment_frees_the_slot_and_keeps_its_rows_good(steps: int) -> None:
    rig = Rig(chunk_tokens=4, num_slots=1)
    prompt = b"the first prompt, 40 bytes long ........"
    request_id = rig.submit(prompt, slot=0, max_tokens=200, ignore_eos=True)
    rig.step(steps)
    rig.keep(rig.engine.cancel(request_id))
    assert rig.failed(request_id).code == "CANCELLED"
    caches_match_histories(rig)
    follow_up = prompt + b" and more"
    assert rig.answer(follow_up, slot=0) == Rig().answer(follow_up)


def test_stopping_all_ends_every_reply() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65))
    ids = [rig.submit(f"prompt {i}", max_tokens=100) for i in range(3)]
    rig.step(2)
    rig.keep(rig.engine.stop_all())
    assert all(rig.finished(i).finish is FinishReason.STOPPED for i in ids)


# ---- text ----


def test_pieces_are_whole_characters() -> None:
    text = "é😀世界"
    rig = Rig(model=scripted(text.encode(), 2))
    request_id = rig.submit("hi", max_tokens=50)
    rig.run()
    pieces = [m.payload.decode() for m in rig.of(request_id) if isinstance(m, TextDelta)]
    assert "".join(pieces) == text
    assert rig.finished(request_id).completion_tokens == len(text.encode())


def test_a_token_that_ends_inside_a_character() -> None:
    rig = Rig(model=scripted([PAIR, 0xA9], 2))
    request_id = rig.submit("hi", max_tokens=50)
    rig.run()
    pieces = [m.payload for m in rig.of(request_id) if isinstance(m, TextDelta)]
    assert pieces == [b"h", "é".encode()]


def test_a_limit_inside_a_character_lets_its_first_bytes_out() -> None:
    rig = Rig(model=scripted("hi 😀".encode(), 2))
    request_id = rig.submit("xx", max_tokens=5)
    rig.run()
    assert rig.data(request_id).decode(errors="replace") == "hi \ufffd"
    assert rig.finished(request_id).limited


# ---- log-probabilities ----


def test_logprobs_come_before_the_text_that_carries_them() -> None:
    rig = Rig(model=scripted(b"ok", 2))
    request_id = rig.submit("hi", logprobs=2)
    rig.run()
    told = [m for m in rig.of(request_id) if isinstance(m, TokenLogprobs | TextDelta)]
    assert [type(m) for m in told] == [TokenLogprobs, TextDelta] * 2
    first = told[0]
    assert isinstance(first, TokenLogprobs)
    assert (first.token_id, first.token_bytes) == (ord("o"), b"o")
    assert len(first.top) == 2
    assert first.top[0].token_id == ord("o")
    row = rig.model.logits_after(list(b"hi")).astype(np.float64)
    assert first.logprob == pytest.approx(row[ord("o")] - np.log(np.exp(row).sum()), abs=1e-5)


def test_logprobs_are_of_the_model_and_not_of_the_penalties() -> None:
    plain, biased = Rig(), Rig()
    a = plain.submit("hi", logprobs=1, max_tokens=1)
    b = biased.submit("hi", logprobs=1, max_tokens=1, logit_bias={65: 100.0})
    plain.run()
    biased.run()
    (first,) = [m for m in plain.of(a) if isinstance(m, TokenLogprobs)]
    (second,) = [m for m in biased.of(b) if isinstance(m, TokenLogprobs)]
    assert first.top == second.top
    assert second.token_id == 65
    assert second.logprob < first.logprob


# ---- reuse ----


def test_a_continued_conversation_feeds_only_what_is_new() -> None:
    rig = Rig(num_slots=2)
    first = rig.answer(b"A" * 30, slot=0)
    second = rig.answer(b"B" * 30, slot=1)
    for turn in range(3):
        for slot, opening, reply in ((0, b"A" * 30, first), (1, b"B" * 30, second)):
            prompt = opening + reply + b"!" * (turn + 1)
            request_id = rig.submit(prompt, slot=slot, max_tokens=1)
            rig.run()
            done = rig.finished(request_id)
            # all but what was never fed: the last token of a reply, and the new ones
            assert done.reused_tokens >= 30 + len(reply) - 1
            assert rig.messages[-1] is done


def test_the_last_sampled_token_counts_only_once_it_was_fed() -> None:
    rig = Rig(model=FakeModel(next_token=lambda history: 65 + len(history)), num_slots=1)
    rig.answer("ab", max_tokens=3)
    assert rig.engine._slots[0].history.ids.tolist() == [*b"ab", 67, 68]  # 69 has no row
    request_id = rig.submit([*b"ab", 67, 68, 69, 1], max_tokens=1)
    rig.run()
    assert rig.finished(request_id).reused_tokens == 4


LETTERS = st.lists(st.integers(65, 67), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    prompts=st.lists(LETTERS, min_size=2, max_size=5),
    num_slots=st.integers(1, 3),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_reuse_never_changes_an_answer(
    prompts: list[list[int]], num_slots: int, temperature: float
) -> None:
    rig = Rig(num_slots=num_slots, chunk_tokens=7)
    for prompt in prompts:
        wanted: dict[str, Any] = {"temperature": temperature, "seed": 7, "max_tokens": 5}
        assert rig.answer(prompt, **wanted) == Rig().answer(prompt, **wanted)
        caches_match_histories(rig)


@pytest.mark.parametrize("chunk_tokens", [1, 2, 3, 5, 64])
def test_the_size_of_chunks_never_changes_an_answer(chunk_tokens: int) -> None:
    prompt = b"some prompt of a few dozen bytes, in chunks"
    assert Rig(chunk_tokens=chunk_tokens).answer(prompt) == Rig(chunk_tokens=1).answer(prompt)


# ---- company ----


def test_a_seed_means_the_same_answer_alone_and_in_company() -> None:
    wanted: dict[str, Any] = {
        "temperature": 1.0, "seed": 7, "max_tokens": 20, "ignore_eos": True,
    }  # fmt: skip
    alone = Rig().answer("fixed prompt", **wanted)
    again = Rig()
    again.answer("something before", temperature=1.0, seed=3)
    assert again.answer("fixed prompt", **wanted) == alone
    company = Rig(chunk_tokens=5)
    others = [company.submit("x" * n, temperature=2.0, max_tokens=50) for n in (1, 30)]
    company.step(2)
    request_id = company.submit("fixed prompt", **wanted)
    company.step(3)
    company.submit("a late comer", top_p=0.5, temperature=0.3)
    company.run()
    assert company.data(request_id) == alone
    assert all(company.data(other) for other in others)


def test_without_a_seed_answers_differ_unless_the_process_has_one() -> None:
    free = Rig(seed=None, temperature=2.0)
    answers = {free.answer("hi", ignore_eos=True) for _ in range(4)}
    assert len(answers) > 1
    bound = Rig(seed=5, temperature=2.0)
    assert len({bound.answer("hi", ignore_eos=True) for _ in range(4)}) == 1


def test_two_replies_share_each_step() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65))
    for slot in (0, 1):
        rig.submit("hi", slot=slot, max_tokens=5)
    rig.run()
    assert rig.model.forwards == [[2, 2]] + [[1, 1]] * 4


def test_a_prompt_is_prefilled_beside_a_running_reply() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65), chunk_tokens=4)
    rig.submit("hi", max_tokens=50)
    rig.step(2)
    rig.submit(b"x" * 9, max_tokens=1)
    rig.step(3)
    assert rig.model.forwards[-3:] == [[1, 4], [1, 4], [1, 1]]


# ---- faults ----


def fails_on(token_id: int, error: Exception) -> FakeModel:
    def fault(ids: list[int]) -> None:
        if token_id in ids:
            raise error

    return FakeModel(fault=fault)


@pytest.mark.parametrize(
    ("error", "code"),
    [(MemoryError("no memory for 3 rows"), "OUT_OF_MEMORY"), (RuntimeError("kernel"), "INTERNAL")],
)
def test_a_fault_ends_only_the_request_it_belongs_to(error: Exception, code: str) -> None:
    rig = Rig(model=fails_on(ord("!"), error))
    good = rig.submit("a good prompt", max_tokens=12, ignore_eos=True)
    rig.step(2)
    bad = rig.submit("boom!")
    rig.run()
    assert rig.failed(bad).code == code
    assert str(error) in rig.failed(bad).detail
    assert rig.data(good) == Rig().answer("a good prompt", max_tokens=12, ignore_eos=True)
    caches_match_histories(rig)
    assert rig.answer("boom") == Rig().answer("boom")


def test_a_fault_in_the_middle_of_a_prompt_keeps_what_was_computed_before() -> None:
    rig = Rig(model=fails_on(ord("!"), RuntimeError("kernel")), chunk_tokens=8)
    bad = rig.submit(b"x" * 20 + b"!" + b"x" * 20, slot=0)
    rig.run()
    assert rig.failed(bad).code == "INTERNAL"
    caches_match_histories(rig)
    assert rig.engine._slots[0].history.ids.tolist() == [*b"x" * 16]
    request_id = rig.submit(b"x" * 30, slot=0)
    rig.run()
    assert rig.finished(request_id).reused_tokens == 16


def test_no_memory_for_a_prompt_is_refused_before_it_is_accepted() -> None:
    rig = Rig(num_slots=1)
    rig.engine._slots.free_bytes = lambda: 64_000_000 + 64 * 8
    refusal = rig.of(rig.submit(b"x" * 100))
    assert [type(m) for m in refusal] == [RequestFailed]
    assert rig.failed(1).code == "OUT_OF_MEMORY"
    assert "COLI_CTX" in rig.failed(1).detail
    assert rig.answer("short")


@pytest.mark.parametrize("is_native", [False, True])
def test_no_memory_while_decoding_ends_that_reply(is_native: bool) -> None:
    rig = Rig(num_slots=2, model=FakeModel(next_token=lambda _: 65))
    bad = rig.submit(b"x" * 60, slot=0, max_tokens=50)
    good = rig.submit(b"y" * 10, slot=1, max_tokens=50)
    rig.step(5)
    if is_native:  # the system had some when it was asked
        cache = rig.engine._slots[0].cache
        assert isinstance(cache, FakeKvCache)
        cache.max_capacity = 64
    else:
        rig.engine._slots.free_bytes = lambda: 0
    rig.run()
    assert rig.failed(bad).code == "OUT_OF_MEMORY"
    assert rig.finished(good).completion_tokens == 50
    caches_match_histories(rig)


# ---- telemetry ----


def test_experts_are_told_with_tier_heat_and_hits() -> None:
    model = scripted(b"", 3)
    model.routing_counts = np.zeros((2, 5), np.int64)
    rig = Rig(model=model)
    request_id = rig.submit([5, 5, 7])  # experts 0, 0 and 2 of every layer
    rig.run()
    (tiers,) = [m for m in rig.messages if isinstance(m, TierCounts)]
    assert (tiers.vram, tiers.ram, tiers.disk) == (0, 10, 0)
    (map_,) = [m for m in rig.messages if isinstance(m, ExpertMap)]
    ram = 1 << 6
    assert (map_.rows, map_.cols) == (2, 5)
    assert list(map_.cells) == [ram | 2, ram, ram | 1, ram, ram] * 2
    (hits,) = [m for m in rig.messages if isinstance(m, ExpertHits)]
    assert hits.bits == bytes([0b10100101, 0])
    assert rig.finished(request_id).hit_percent == 100.0
    rig.submit([1, 1, 1], slot=3)
    rig.run()
    last = [m for m in rig.messages if isinstance(m, ExpertHits)][-1]
    assert last.bits == bytes([0b01000010, 0])  # since the line before


def test_a_draft_layer_is_one_more_row_of_the_map() -> None:
    model = scripted(b"", 3)
    model.routing_counts = np.zeros((2, 5), np.int64)
    model.draft_counts = np.zeros(5, np.int64)
    telemetry = Rig(model=model).engine.telemetry
    model.draft_counts[3] += 4
    assert (telemetry.tiers().ram, telemetry.expert_map().rows) == (15, 3)
    assert list(telemetry.expert_map().cells[10:]) == [64, 64, 64, 64 | 3, 64]
    assert telemetry.expert_hits().bits == (1 << 13).to_bytes(2, "little")
    assert telemetry.hit_percent(telemetry.baseline()) == 0.0  # a guess is no demand


def test_heat_stays_within_its_six_bits() -> None:
    model = FakeModel()
    model.routing_counts = np.array([[0, 1, 2, 3, 4, 2**40, 2**52]], np.int64)
    cells = Rig(model=model).engine.telemetry.expert_map().cells
    assert [cell & 63 for cell in cells] == [0, 1, 2, 2, 3, 41, 53]


def test_raw_counters_add_up() -> None:
    rig = Rig(model=FakeModel(next_token=lambda _: 65), num_slots=2)
    rig.answer("abcd", max_tokens=3)
    rig.answer("abcd", max_tokens=3, slot=0)
    rig.submit("", slot=0)
    rig.keep(rig.engine.cancel(rig.submit("zz")))
    report = rig.engine.report()
    expected = {
        "num_accepted": 3, "num_refused": 1, "num_finished": 2, "num_cancelled": 1,
        "num_failed": 0, "prompt_tokens": 10, "reused_tokens": 3, "completion_tokens": 6,
        "num_forwards": 6, "num_rows": 4 + 2 + 1 + 2,
    }  # fmt: skip
    assert {name: report[name] for name in expected} == expected
    slots = report["slots"]
    assert isinstance(slots, list)
    assert [slot["busy"] for slot in slots] == [False, False]
