"""Which experts stay: the often and the lately used, whatever passes by once."""

from __future__ import annotations

import numpy as np
import pytest

from colibri_engine.experts.cache import LayerCache


class Reader:
    """Uses a cache as the store does: what is not there is read into a free slot, then offered."""

    def __init__(self, num_experts: int, capacity: int, **options: object) -> None:
        self.cache = LayerCache(num_experts, capacity, **options)  # type: ignore[arg-type]
        self.free = list(range(capacity + 1))
        self.owner: dict[int, int] = {}

    def step(self, experts: list[int], num_rows: int = 1) -> int:
        """Return how many of the experts were there."""
        counts = [experts.count(expert) for expert in dict.fromkeys(experts)]
        distinct = list(dict.fromkeys(experts))
        self.cache.note(distinct, counts, num_rows)
        hits = [expert for expert in distinct if expert in self.cache]
        for expert in distinct:
            if expert not in hits:
                slot = self.free.pop()
                self.owner[slot] = expert
                freed = self.cache.offer(expert, slot)
                if freed is not None:
                    self.free.append(freed)
        self.check()
        return len(hits)

    def check(self) -> None:
        held = {expert: self.cache.slot(expert) for expert in self.cache.experts}
        assert len(held) == len(self.cache) <= self.cache.capacity
        assert len(set(held.values())) == len(held)
        assert not set(held.values()) & set(self.free)
        assert len(self.free) + len(held) == self.cache.capacity + 1
        for expert, slot in held.items():
            assert self.owner[slot or 0] == expert
        assert set(np.flatnonzero(self.cache.is_held).tolist()) == set(held)


def test_what_fits_is_read_once() -> None:
    reader = Reader(8, 8)
    assert [reader.step([e]) for e in range(8)] == [0] * 8
    assert [reader.step([e]) for e in range(8)] == [1] * 8


def test_one_slot_holds_an_expert_that_is_asked_for_again() -> None:
    reader = Reader(8, 1)
    reader.step([3])
    assert [reader.step([3]) for _ in range(3)] == [1, 1, 1]
    assert [reader.step([5]) for _ in range(12)][-1] == 1


def test_a_scan_pushes_nothing_out_that_is_in_use() -> None:
    reader = Reader(64, 8)
    hot = list(range(8))
    for _ in range(50):
        reader.step(hot)
    assert reader.step(hot) == 8
    reader.step([e for e in range(64) for _ in range(4)], num_rows=128)  # a prompt asks for all
    assert reader.step(hot) == 8
    for e in range(20, 60):  # and a reply for one after the other
        reader.step([e])
    assert reader.step(hot) >= 5  # the last few are kept for a moment


def test_a_new_favourite_moves_in() -> None:
    reader = Reader(64, 4)
    for _ in range(200):
        reader.step([0, 1, 2, 3])
    hits = [reader.step([10, 11, 12, 13]) for _ in range(400)]
    assert hits[-1] == 4


def test_the_rows_of_a_prompt_say_what_is_used() -> None:
    reader = Reader(32, 4)
    rows = [7] * 60 + [9] * 60 + [11] * 60 + [13] * 60 + [e for e in range(32) if e % 2 == 0]
    reader.step(rows, num_rows=64)
    reader.step(rows, num_rows=64)
    assert set(reader.cache.experts) == {7, 9, 11, 13}


def test_history_decides_before_anything_was_asked() -> None:
    rates = np.zeros(16)
    rates[[2, 5]] = 0.5
    reader = Reader(16, 2, rates=rates)
    for e in (0, 1, 2, 3, 4, 5):
        reader.step([e])
    assert set(reader.cache.experts) == {2, 5}


def test_pins_stay_and_kept_ones_are_not_given_up() -> None:
    reader = Reader(16, 2)
    reader.step([4, 6])
    reader.cache.pin([4, 6])
    for _ in range(30):
        reader.step([9])
    assert set(reader.cache.experts) == {4, 6}
    assert reader.cache.pinned == [4, 6]
    assert reader.cache.give_up() is None
    reader.cache.unpin([6])
    assert reader.cache.give_up(keep=[6]) is None
    reader.step([9])
    assert set(reader.cache.experts) == {4, 9}


def test_what_is_given_up_is_the_least_used() -> None:
    reader = Reader(16, 4)
    for count, e in ((1, 3), (9, 5), (4, 7), (2, 8)):
        for _ in range(count):
            reader.step([e])
    slot = reader.cache.slot(3)
    assert reader.cache.give_up() == slot
    assert 3 not in reader.cache


def test_a_layer_without_a_slot_is_a_fault() -> None:
    with pytest.raises(ValueError, match="at least one slot, not 0"):
        LayerCache(4, 0)


def test_random_use_keeps_the_index_whole() -> None:
    rng = np.random.default_rng(5)
    reader = Reader(40, 7)
    for _ in range(500):
        rows = int(rng.integers(1, 6))
        reader.step(rng.integers(0, 40, 3 * rows).tolist(), num_rows=rows)


def test_what_was_nearly_chosen_is_worth_more_than_what_was_not() -> None:
    cache = LayerCache(16, 4)
    cache.note([1], [1], 1, near=np.array([[5, 9]], np.int32))
    order = np.argsort(-cache.scores)[:3].tolist()
    assert order == [1, 5, 9]
    assert cache.scores[0] == 0
