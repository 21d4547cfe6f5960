"""Which slot serves a prompt and what of it is reused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.errors import RequestRefused
from colibri_engine.slots import ANY_SLOT, Slot, SlotTable, TokenHistory
from tests.fakes.fake_model import FakeKvCache


def table(num_slots: int = 2, context_length: int = 4096) -> SlotTable:
    return SlotTable(num_slots, context_length, FakeKvCache)


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def fill(slot: Slot, prompt: np.ndarray) -> None:
    """Compute the rows of a prompt that are missing, as the engine does."""
    cache = slot.cache
    assert isinstance(cache, FakeKvCache)
    new = prompt[len(slot.history) :]
    cache.ids.extend(new.tolist())
    slot.history.extend(new)
    assert cache.ids == slot.history.ids.tolist()


def turn(slots: SlotTable, request_id: int, wanted: int, prompt: np.ndarray) -> tuple[int, int]:
    """Run one request to its end; return its slot and how much was reused."""
    slot, reused = slots.acquire(request_id, wanted, prompt)
    fill(slot, prompt)
    slots.release(slot)
    return slot.idx, reused


def count_up(start: int, size: int) -> np.ndarray:
    return np.arange(start, start + size, dtype=np.int32)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_prefix_is_exact(first: list[int], second: list[int]) -> None:
    history = TokenHistory(1000)
    history.extend(np.array(first, np.int32))
    expected = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        expected += 1
    assert history.common_prefix(np.array(second, np.int32)) == expected


def test_the_last_token_of_a_prompt_is_always_left_to_feed() -> None:
    slots = table()
    assert turn(slots, 1, 0, ids(1, 2, 3, 4)) == (0, 0)
    assert turn(slots, 2, 0, ids(1, 2, 3, 4)) == (0, 3)
    assert turn(slots, 3, 0, ids(1, 2)) == (0, 1)
    assert turn(slots, 4, 0, ids(1)) == (0, 0)


def test_rows_behind_the_common_prefix_are_dropped() -> None:
    slots = table()
    turn(slots, 1, 0, ids(1, 2, 3, 4, 5))
    slot, reused = slots.acquire(2, 0, ids(1, 2, 9))
    assert reused == 2
    assert slot.history.ids.tolist() == [1, 2]
    assert slot.cache.length == 2


def test_rows_written_but_never_recorded_are_dropped() -> None:
    slots = table()
    slot, _ = slots.acquire(1, 0, ids(1, 2, 3))
    assert isinstance(slot.cache, FakeKvCache)
    slot.cache.ids.extend([1, 2, 3])  # the step failed before they were recorded
    slots.release(slot)
    slot, reused = slots.acquire(2, 0, ids(1, 2, 3))
    assert reused == 0
    assert slot.cache.length == 0


def test_a_busy_slot_is_refused_and_named() -> None:
    slots = table()
    slots.acquire(1, 0, ids(1, 2))
    with pytest.raises(RequestRefused, match="slot 0") as caught:
        slots.acquire(2, 0, ids(1, 2))
    assert caught.value.wire_code == "SLOT_BUSY"
    slots.acquire(2, 1, ids(1, 2))
    with pytest.raises(RequestRefused, match="all 2 slots") as caught:
        slots.acquire(3, ANY_SLOT, ids(1, 2))
    assert caught.value.wire_code == "SLOT_BUSY"


@pytest.mark.parametrize("wanted", [2, 15, -2])
def test_a_slot_that_does_not_exist_is_refused(wanted: int) -> None:
    with pytest.raises(RequestRefused, match=f"slot {wanted}") as caught:
        table().acquire(1, wanted, ids(1, 2))
    assert caught.value.wire_code == "BAD_REQUEST"


def test_a_continued_conversation_finds_its_slot() -> None:
    slots = table(3)
    first, second = count_up(0, 40), count_up(1000, 40)
    assert turn(slots, 1, ANY_SLOT, first) == (0, 0)
    assert turn(slots, 2, ANY_SLOT, second) == (1, 0)
    first = np.concatenate([first, count_up(5000, 10)])
    assert turn(slots, 3, ANY_SLOT, first) == (0, 40)
    assert turn(slots, 4, ANY_SLOT, np.concatenate([second, ids(8)])) == (1, 40)
    assert turn(slots, 5, ANY_SLOT, np.concatenate([first, ids(8)])) == (0, 50)


def test_a_branch_of_a_conversation_takes_an_empty_slot_and_a_copy() -> None:
    slots = table(2)
    turn(slots, 1, ANY_SLOT, count_up(0, 40))
    branch = np.concatenate([count_up(0, 35), ids(900, 901)])
    assert turn(slots, 2, ANY_SLOT, branch) == (1, 35)
    assert slots[0].history.ids.tolist() == list(range(40))


def test_conversations_that_open_alike_keep_apart() -> None:
    slots = table(2)
    system = count_up(0, 30)
    first = np.concatenate([system, count_up(100, 50)])
    second = np.concatenate([system, count_up(200, 50)])
    assert turn(slots, 1, ANY_SLOT, first) == (0, 0)
    assert turn(slots, 2, ANY_SLOT, second) == (1, 30)  # copied from slot 0
    assert turn(slots, 3, ANY_SLOT, np.concatenate([first, ids(7)])) == (0, 80)
    assert turn(slots, 4, ANY_SLOT, np.concatenate([second, ids(7)])) == (1, 80)


def test_with_all_slots_taken_the_longest_unused_gives_way() -> None:
    slots = table(2)
    turn(slots, 1, ANY_SLOT, count_up(0, 40))
    turn(slots, 2, ANY_SLOT, count_up(1000, 40))
    turn(slots, 3, ANY_SLOT, np.concatenate([count_up(0, 40), ids(5)]))
    assert turn(slots, 4, ANY_SLOT, count_up(2000, 40)) == (1, 0)


def test_an_edited_conversation_keeps_its_slot_when_all_are_taken() -> None:
    slots = table(2)
    turn(slots, 1, ANY_SLOT, count_up(0, 40))
    turn(slots, 2, ANY_SLOT, count_up(1000, 40))
    edited = np.concatenate([count_up(1000, 30), count_up(7000, 5)])
    assert turn(slots, 3, ANY_SLOT, edited) == (1, 30)


def test_rows_of_a_busy_slot_may_be_copied() -> None:
    slots = table(2)
    prompt = count_up(0, 50)
    slot, _ = slots.acquire(1, 0, prompt)
    fill(slot, prompt)
    assert turn(slots, 2, 1, np.concatenate([prompt, ids(9)])) == (1, 50)
    assert slot.history.ids.tolist() == prompt.tolist()


def test_a_handful_of_rows_is_not_worth_copying() -> None:
    slots = table(2)
    turn(slots, 1, 0, count_up(0, 50))
    assert turn(slots, 2, 1, np.concatenate([count_up(0, 15), ids(900)])) == (1, 0)


def with_memory(num_slots: int, positions: int, draft_bytes: int = 0) -> SlotTable:
    """Return slots that share memory for so many positions, in blocks.

    Args:
        num_slots: How many.
        positions: Of caches whose positions take 8 bytes.
        draft_bytes: What a draft layer takes for each.
    """

    def free_bytes() -> int:
        used = sum(slot.cache.nbytes for slot in slots.slots)
        return positions * 8 - used + 64_000_000

    slots = SlotTable(num_slots, 4096, FakeKvCache, free_bytes, draft_position_bytes=draft_bytes)
    return slots


def test_no_memory_for_the_prompt_leaves_the_slot_free() -> None:
    slots = with_memory(1, 64)
    with pytest.raises(MemoryError, match="100 positions"):
        slots.acquire(1, 0, count_up(0, 100))
    assert turn(slots, 2, 0, count_up(0, 30)) == (0, 0)


def test_room_for_a_draft_layers_rows_is_looked_for_as_well() -> None:
    prompt = count_up(0, 100)
    with_memory(1, 100).acquire(1, 0, prompt)
    with pytest.raises(MemoryError, match="100 positions"):
        with_memory(1, 100, draft_bytes=1).acquire(1, 0, prompt)
    with_memory(1, 113, draft_bytes=1).acquire(1, 0, prompt)


def test_idle_slots_give_their_memory_up_the_longest_unused_first() -> None:
    slots = with_memory(3, 3 * 64)
    for idx in (0, 2, 1):
        turn(slots, idx + 1, idx, count_up(1000 * idx, 64))
        slots.make_room(slots[idx], 64)
    slot, _ = slots.acquire(9, 1, count_up(1000, 128))
    slots.make_room(slot, 128)
    assert [len(s.history) for s in slots.slots] == [0, 64, 64]
    assert slots[0].cache.nbytes == 0


def test_memory_of_a_busy_slot_is_never_taken() -> None:
    slots = with_memory(2, 2 * 64)
    first, _ = slots.acquire(1, 0, count_up(0, 64))
    slots.make_room(first, 64)
    second, _ = slots.acquire(2, 1, count_up(1000, 64))
    slots.make_room(second, 64)
    with pytest.raises(MemoryError):
        slots.make_room(second, 65)
    assert second.cache.capacity == 64
    slots.make_room(second, 64)  # there already


# ---- caches with recurrent state ----------------------------------------------------------------


def stateful_table(num_slots: int = 2) -> SlotTable:
    return SlotTable(num_slots, 4096, lambda: FakeKvCache(has_state=True))


def reply(slots: SlotTable, wanted: int, prompt: np.ndarray, answer: np.ndarray) -> int:
    """Run one request with an answer, as the engine does; return how much was reused."""
    slot, reused = slots.acquire(1, wanted, prompt)
    fill(slot, prompt)
    slot.cache.snapshot()
    fill(slot, np.concatenate([prompt, answer]))
    slots.release(slot)
    return reused


def test_state_goes_on_where_the_conversation_ended() -> None:
    slots = stateful_table()
    assert reply(slots, 0, count_up(0, 40), count_up(100, 10)) == 0
    longer = np.concatenate([count_up(0, 40), count_up(100, 10), count_up(200, 5)])
    assert reply(slots, 0, longer, count_up(300, 7)) == 50


def test_a_changed_answer_is_computed_from_the_end_of_its_prompt() -> None:
    slots = stateful_table()
    reply(slots, 0, count_up(0, 40), count_up(100, 10))
    changed = np.concatenate([count_up(0, 40), count_up(100, 4), count_up(500, 20)])
    assert reply(slots, 0, changed, count_up(300, 7)) == 40


def test_a_repeated_prompt_is_computed_from_the_answer_before_it() -> None:
    slots = stateful_table()
    reply(slots, 0, count_up(0, 40), count_up(100, 10))
    longer = np.concatenate([count_up(0, 40), count_up(100, 10), count_up(200, 5)])
    reply(slots, 0, longer, count_up(300, 7))
    assert reply(slots, 0, longer, count_up(300, 7)) == 50


def test_state_between_two_snapshots_is_not_reused() -> None:
    slots = stateful_table(1)
    reply(slots, 0, count_up(0, 40), count_up(100, 10))
    assert reply(slots, 0, count_up(0, 30), count_up(100, 10)) == 0


def test_state_is_copied_only_where_it_was_kept() -> None:
    slots = stateful_table()
    reply(slots, 0, count_up(0, 40), count_up(100, 10))
    branch = np.concatenate([count_up(0, 45), count_up(500, 20)])
    assert reply(slots, 1, branch, count_up(300, 7)) == 40
    other = np.concatenate([count_up(0, 30), count_up(900, 20)])
    assert reply(slots, 1, other, count_up(300, 7)) == 0


# ---- a keeper -----------------------------------------------------------------------------------


class Watcher:
    """Writes down what a keeper is told, and what the slot held then."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def save(self, slot: Slot) -> None:
        self.told.append(("save", slot.idx, len(slot.history)))

    def cut(self, slot_idx: int, length: int) -> None:
        self.told.append(("cut", slot_idx, length))

    def close(self) -> None:
        self.told.append(("close", -1, -1))

    def news(self) -> list[tuple[str, int, int]]:
        told, self.told = self.told, []
        return told


def watched(slots: SlotTable) -> Watcher:
    slots.keeper = watcher = Watcher()
    return watcher


def test_a_keeper_is_asked_before_rows_go_and_told_when_a_turn_ends() -> None:
    slots = table(2)
    watcher = watched(slots)
    turn(slots, 1, 0, count_up(0, 40))
    assert watcher.news() == [("cut", 0, 0), ("save", 0, 40)]
    turn(slots, 2, 0, np.concatenate([count_up(0, 30), ids(7)]))
    assert watcher.news() == [("cut", 0, 30), ("save", 0, 31)]
    turn(slots, 3, 1, np.concatenate([count_up(0, 25), ids(9)]))
    assert watcher.news() == [("cut", 1, 0), ("cut", 1, 0), ("save", 1, 26)]


def test_busy_slots_are_saved_now_and_then() -> None:
    slots = table(3)
    watcher = watched(slots)
    turn(slots, 1, 0, count_up(0, 40))
    for request_id, idx in ((2, 1), (3, 2)):
        slot, _ = slots.acquire(request_id, idx, count_up(1000 * idx, 50))
        if idx == 1:
            fill(slot, count_up(1000, 50))
    watcher.news()
    slots.save_now_and_then(100.0)
    assert watcher.news() == [("save", 1, 50)]  # slot 2 has no rows yet, slot 0 is saved
    slots.save_now_and_then(129.0)
    assert watcher.news() == []
    slots.save_now_and_then(130.0)
    assert watcher.news() == [("save", 1, 50)]


def test_a_turn_without_rows_is_not_saved() -> None:
    slots = table(1)
    watcher = watched(slots)
    slot, _ = slots.acquire(1, 0, ids(1, 2))
    slots.release(slot)
    assert watcher.news() == [("cut", 0, 0)]


def test_memory_is_taken_from_a_slot_only_after_its_keeper_was_asked() -> None:
    slots = with_memory(2, 2 * 64)
    watcher = watched(slots)
    for idx in (0, 1):
        turn(slots, idx + 1, idx, count_up(1000 * idx, 64))
        slots.make_room(slots[idx], 64)
    watcher.news()
    slot, _ = slots.acquire(9, 1, count_up(1000, 128))
    slots.make_room(slot, 128)
    assert watcher.news() == [("cut", 1, 64), ("cut", 0, 0)]


def test_restored_rows_are_found_like_any_other() -> None:
    slots = table(2)

    def read_into(cache: FakeKvCache) -> np.ndarray:
        cache.reserve(40)
        cache.ids.extend(range(40))
        return count_up(0, 40)

    slots.restore(1, 40, read_into)
    assert turn(slots, 1, ANY_SLOT, np.concatenate([count_up(0, 40), ids(7)])) == (1, 40)


def test_what_cannot_be_restored_leaves_no_trace() -> None:
    slots = table(1)

    def read_into(cache: FakeKvCache) -> np.ndarray:
        cache.reserve(40)
        cache.ids.extend(range(20))
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        slots.restore(0, 40, read_into)
    assert (slots[0].cache.length, len(slots[0].history)) == (0, 0)
    assert turn(slots, 1, 0, count_up(0, 40)) == (0, 0)


def test_nothing_is_copied_between_slots_when_that_is_off() -> None:
    slots = SlotTable(2, 4096, FakeKvCache, shares_prefixes=False)
    turn(slots, 1, 0, count_up(0, 40))
    assert turn(slots, 2, 1, count_up(0, 50)) == (1, 0)
    assert turn(slots, 3, 0, count_up(0, 50)) == (0, 40)


def test_the_history_cannot_be_written_through_its_view() -> None:
    history = TokenHistory(4)
    history.append(3)
    with pytest.raises(ValueError, match="read-only"):
        history.ids[0] = 1
