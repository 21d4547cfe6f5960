"""What a step carries: fairness, chunk budget, and invariants over random lives of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.sampling import Sampler, SamplingParams
from colibri_engine.scheduler import Scheduler, Segment
from colibri_engine.sequence import Sequence


def sequence(request_id: int, num_prompt: int, num_reused: int = 0) -> Sequence:
    prompt = np.zeros(num_prompt, np.int32)
    return Sequence(
        request_id=request_id,
        slot_idx=request_id,
        prompt=prompt,
        sampler=Sampler(SamplingParams(seed=1), 10, prompt),
        stop_ids=frozenset(),
        max_new_tokens=5,
        num_logprobs=None,
        num_reused=num_reused,
        accepted_at=0.0,
        baseline={},
    )


def run(plan: list[Segment]) -> None:
    """What the engine does with a plan, as far as the scheduler can see."""
    for segment in plan:
        segment.sequence.num_fed += segment.num_rows


def shape(plan: list[Segment]) -> list[tuple[int, int, int, bool]]:
    return [(s.sequence.request_id, s.start, s.num_rows, s.wants_logits) for s in plan]


def test_an_idle_scheduler_plans_nothing() -> None:
    assert Scheduler(8).plan() == []


def test_a_prompt_goes_in_chunks_and_the_last_gives_logits() -> None:
    scheduler = Scheduler(4)
    scheduler.add(sequence(1, 10))
    steps = []
    for _ in range(4):
        plan = scheduler.plan()
        steps += shape(plan)
        run(plan)
    assert steps == [(1, 0, 4, False), (1, 4, 4, False), (1, 8, 2, True), (1, 10, 1, True)]


def test_reused_rows_are_not_fed_again() -> None:
    scheduler = Scheduler(64)
    scheduler.add(sequence(1, 10, num_reused=9))
    assert shape(scheduler.plan()) == [(1, 9, 1, True)]


def test_decoding_replies_get_a_row_in_every_step_beside_a_long_prompt() -> None:
    scheduler = Scheduler(4)
    for request_id in (1, 2):
        scheduler.add(sequence(request_id, 1))
    run(scheduler.plan())
    scheduler.add(sequence(3, 9))
    for step in range(2):
        plan = scheduler.plan()
        assert shape(plan)[:2] == [(1, 1 + step, 1, True), (2, 1 + step, 1, True)]
        assert shape(plan)[2] == (3, 4 * step, 4, False)
        run(plan)


def test_a_short_prompt_does_not_wait_behind_a_long_one() -> None:
    scheduler = Scheduler(8)
    scheduler.add(sequence(1, 1000))
    run(scheduler.plan())
    scheduler.add(sequence(2, 3))
    assert shape(scheduler.plan()) == [(2, 0, 3, True), (1, 8, 5, False)]


def test_more_prompts_than_rows_take_turns() -> None:
    scheduler = Scheduler(2)
    for request_id in range(5):
        scheduler.add(sequence(request_id, 4))
    served = [0] * 5
    for _ in range(8):
        plan = scheduler.plan()
        for segment in plan:
            served[segment.sequence.request_id] += segment.num_rows
        run(plan)
        assert max(served) - min(served) <= 1 or max(served) == 4


def test_a_removed_sequence_is_gone_from_the_next_step() -> None:
    scheduler = Scheduler(8)
    first, second = sequence(1, 20), sequence(2, 20)
    scheduler.add(first)
    scheduler.add(second)
    run(scheduler.plan())
    scheduler.remove(first)
    assert shape(scheduler.plan()) == [(2, 4, 8, False)]
    assert scheduler.get(1) is None
    assert len(scheduler) == 1


def test_two_sequences_never_share_a_slot() -> None:
    scheduler = Scheduler(8)
    scheduler.add(sequence(1, 4))
    other = sequence(2, 4)
    other.slot_idx = 1
    with pytest.raises(AssertionError):
        scheduler.add(other)


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Scheduler(0)


@given(
    chunk=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60)), min_size=1, max_size=12),
    data=st.data(),
)
def test_invariants_of_every_step(
    chunk: int, arrivals: list[tuple[int, int]], data: st.DataObject
) -> None:
    scheduler = Scheduler(chunk)
    waiting: dict[int, list[Any]] = {}
    for request_id, (step, num_prompt) in enumerate(arrivals):
        waiting.setdefault(step, []).append(sequence(request_id, num_prompt))
    starved: dict[int, int] = {}
    for step in range(40):
        for arrived in waiting.pop(step, []):
            scheduler.add(arrived)
        running = list(scheduler)
        plan = scheduler.plan()
        by_id = {segment.sequence.request_id: segment for segment in plan}
        assert len(by_id) == len(plan)  # no sequence twice
        prefilling = [s for s in running if s.num_unfed]
        for current in running:
            segment = by_id.get(current.request_id)
            if current.num_unfed == 0:
                assert segment is not None
                assert segment[1:] == (current.num_fed, 1, True)
                continue
            starved[current.request_id] = 0 if segment else starved.get(current.request_id, 0) + 1
            assert starved[current.request_id] <= len(prefilling) // chunk + len(arrivals)
            if segment is not None:
                assert segment.start == current.num_fed
                assert 1 <= segment.num_rows <= current.num_unfed
                assert segment.wants_logits == (segment.num_rows == current.num_unfed)
        prompt_rows = sum(by_id[s.request_id].num_rows for s in prefilling if s.request_id in by_id)
        assert prompt_rows == min(chunk, sum(s.num_unfed for s in prefilling))
        run(plan)
        for current in running:  # some end, some are cancelled at any moment
            if data.draw(st.integers(0, 9)) == 0:
                scheduler.remove(current)
