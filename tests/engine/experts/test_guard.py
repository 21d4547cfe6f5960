"""A process that has grown too large gives slots back, as many as it must and no more."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from colibri_engine.experts.cache import LayerCache
from colibri_engine.experts.guard import MemoryGuard

if TYPE_CHECKING:
    import pytest

    from colibri_engine.experts.store import StreamedLayer

SLOT = 10_000_000
LIMIT = 1_000_000_000


@dataclass
class Pool:
    released: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)

    def release(self, slot: int) -> None:
        self.released.append(slot)

    def take_empty(self) -> int | None:
        return self.empty.pop() if self.empty else None


@dataclass
class Records:
    nbytes: int = SLOT


class Layer:
    def __init__(self, capacity: int, held: int) -> None:
        self.cache = LayerCache(16, capacity)
        self.pool = Pool()
        self.records = Records()
        for expert in range(held):
            self.cache.note([expert] * 1, [1], 1)
            self.cache.offer(expert, expert)


class Process:
    """Memory that falls as slots are released, on top of what it is told to take."""

    def __init__(self, layers: list[Layer], nbytes: int) -> None:
        self.layers = layers
        self.nbytes = nbytes
        self.looks = 0
        self.guard = MemoryGuard(
            cast("list[StreamedLayer]", layers), LIMIT, resident_bytes=self.resident_bytes
        )

    def resident_bytes(self) -> int:
        self.looks += 1
        return self.nbytes - SLOT * self.num_released()

    def num_released(self) -> int:
        return sum(len(layer.pool.released) for layer in self.layers)


def test_within_the_limit_nothing_is_given_up() -> None:
    process = Process([Layer(8, 8)], int(LIMIT * 1.009))
    for _ in range(100):
        process.guard.after_step(1)
    assert process.num_released() == 0
    assert process.looks == 100 // 16
    assert process.guard.peak_bytes == int(LIMIT * 1.009)


def test_as_much_is_given_up_as_is_over_and_from_every_layer() -> None:
    layers = [Layer(8, 8) for _ in range(3)]
    process = Process(layers, LIMIT + 4 * SLOT - 1)
    process.guard.after_step(16)
    assert process.num_released() == 4 == process.guard.num_released
    assert [layer.cache.capacity for layer in layers] == [6, 7, 7]
    assert [len(layer.cache) for layer in layers] == [6, 7, 7]
    assert 0 not in layers[0].cache  # the longest unused one went first


def test_it_waits_before_it_looks_again() -> None:
    process = Process([Layer(16, 16)], LIMIT + 2 * SLOT)
    process.guard.after_step(16)
    looks = process.looks
    for _ in range(63):
        process.guard.after_step(1)
    assert process.looks == looks
    process.guard.after_step(1)
    assert process.looks == looks + 1


def test_a_moment_s_need_costs_slots_once() -> None:
    process = Process([Layer(16, 16)], LIMIT + 3 * SLOT)
    process.guard.after_step(16)
    process.nbytes -= 3 * SLOT  # what was needed for a moment is gone
    for _ in range(500):
        process.guard.after_step(1)
    assert process.num_released() == 3


def test_the_first_time_is_told_whether_slots_were_free_or_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for capacity in (16, 1):
        caplog.clear()
        process = Process([Layer(capacity, capacity)], LIMIT + 40 * SLOT)
        for _ in range(5):
            process.guard.after_step(64)
        told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(told) == 1
        assert "experts of" in told[0]


def test_the_last_slot_of_a_layer_stays() -> None:
    layers = [Layer(2, 2), Layer(1, 1)]
    process = Process(layers, 2 * LIMIT)
    for _ in range(20):
        process.guard.after_step(64)
    assert [layer.cache.capacity for layer in layers] == [1, 1]
    assert process.num_released() == 1


def test_slots_that_were_never_filled_are_not_filled_later() -> None:
    layer = Layer(8, 2)
    layer.pool.empty = [7, 6]
    process = Process([layer], LIMIT + SLOT * 20)
    process.guard.after_step(16)
    assert layer.cache.capacity == 1
    assert sorted(layer.pool.released) == [0, 6, 7]
    assert len(layer.cache) == 1


def test_pins_go_last() -> None:
    layer = Layer(4, 4)
    layer.cache.pin([0, 1])
    process = Process([layer], LIMIT + 3 * SLOT)
    process.guard.after_step(16)
    assert list(layer.cache.experts) == [1]
    assert layer.cache.pinned == [1]
