"""Memory is shared out to the byte, and what cannot be held is refused with its figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.errors import InsufficientMemory
from colibri_engine.experts.budget import (
    GB,
    MemoryBudget,
    Needs,
    StreamedLayers,
    fits,
    place,
    step_bytes,
)
from colibri_engine.machine import Memory

MB = 1_000_000


def budget(nbytes: int) -> MemoryBudget:
    return MemoryBudget(nbytes, "test")


def layers(sizes: list[int], num_experts: int = 64, per_token: int = 8) -> StreamedLayers:
    return StreamedLayers(sizes, num_experts, per_token)


def test_the_budget_is_a_share_of_what_is_available() -> None:
    found = MemoryBudget.of(Memory(64 * GB, 50 * GB))
    assert found.nbytes == 44 * GB
    assert found.source == "88% of 50.00 GB available"


def test_the_group_that_limits_is_named() -> None:
    found = MemoryBudget.of(Memory(256 * GB, 7 * GB, ("/sys/fs/cgroup/box", 8 * GB)))
    assert found.nbytes < 8 * GB
    assert "limited by /sys/fs/cgroup/box to 8.00 GB" in found.source


def test_what_is_asked_for_is_taken_but_no_more_than_there_is() -> None:
    memory = Memory(64 * GB, 20 * GB)
    assert MemoryBudget.of(memory, 6 * GB).nbytes == 6 * GB
    found = MemoryBudget.of(memory, 30 * GB)
    assert found.nbytes == 20 * GB
    assert "less than the 30.00 GB asked for" in found.source


def test_every_layer_is_priced_at_its_own_width() -> None:
    needs = Needs(1 * GB, 100 * MB, 50 * MB, 250 * MB)
    found = place(budget(4 * GB), needs, layers([10 * MB] * 4 + [20 * MB]))
    assert found.slot_bytes == (10 * MB,) * 4 + (20 * MB,)
    assert found.cache_bytes == sum(
        c * s for c, s in zip(found.capacities, found.slot_bytes, strict=True)
    )
    assert found.working_bytes == found.working_slots * 30 * MB
    assert found.nbytes <= 4 * GB
    assert found.nbytes + 20 * MB > 4 * GB  # nothing that fits is left over
    assert max(found.capacities) - min(found.capacities) <= 1


def test_slots_that_are_asked_for_are_a_limit_or_a_wish() -> None:
    needs = Needs(1 * GB)
    plan = layers([10 * MB] * 4)
    assert place(budget(8 * GB), needs, plan, 3).capacities == (3,) * 4
    assert place(budget(8 * GB), needs, plan, 3, may_raise=True).capacities == (64,) * 4
    least = place(budget(int(1.256 * GB) + 65 * MB), needs, plan, 40)
    assert max(least.capacities) < 40  # memory decides


def test_never_more_slots_than_experts() -> None:
    assert place(budget(400 * GB), Needs(0), layers([MB] * 3, 16)).capacities == (16,) * 3


def test_what_does_not_fit_is_refused_with_figures_and_remedy() -> None:
    needs = Needs(3 * GB, kv_bytes=2 * GB, step_bytes=44 * MB, process_bytes=256 * MB)
    with pytest.raises(InsufficientMemory) as caught:
        place(budget(5 * GB), needs, layers([100 * MB] * 10))
    for figure in (
        "6.50 GB",
        "3.00 GB of weights",
        "2.00 GB for conversations",
        "0.30 GB for the",
        "1.20 GB for one expert of each of 10 layers",
        "the budget is 5.00 GB (test)",
    ):
        assert figure in caught.value.message
    assert "--ram" in str(caught.value.hint)
    assert "--ctx" in str(caught.value.hint)


def test_all_experts_fit_where_their_sum_does() -> None:
    plan = layers([10 * MB] * 4)
    assert fits(budget(4 * GB), Needs(GB), plan)
    assert not fits(budget(int(3.8 * GB)), Needs(GB), plan)


def test_buffers_grow_with_rows_and_choices() -> None:
    assert step_bytes(512, 6144, 2048, 8, 150_000) > 256 * MB
    assert step_bytes(1, 6144, 2048, 8, 150_000) < 16 * MB


@given(
    nbytes=st.integers(0, 10**10),
    fixed=st.integers(0, 10**9),
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=8),
    num_experts=st.integers(1, 300),
    cap=st.none() | st.integers(0, 400),
)
def test_a_plan_keeps_the_budget_or_there_is_none(
    nbytes: int, fixed: int, sizes: list[int], num_experts: int, cap: int | None
) -> None:
    plan = layers(sizes, num_experts, min(8, num_experts))
    needs = Needs(fixed, process_bytes=0)
    least = fixed + sum(sizes) + 2 * sum(set(sizes))
    if nbytes < least:
        with pytest.raises(InsufficientMemory):
            place(budget(nbytes), needs, plan, cap)
        return
    found = place(budget(nbytes), needs, plan, cap)
    assert found.nbytes <= nbytes
    assert found.working_slots >= 2
    assert all(1 <= capacity <= num_experts for capacity in found.capacities)
    if cap is not None:
        assert max(found.capacities) <= max(cap, 1)
