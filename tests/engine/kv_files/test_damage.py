"""A damaged file is named and not used; no byte of it can be wrong unnoticed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.kv_files.layout import COUNT_BYTES, HEADER_BYTES, STATES_AT, Unusable
from colibri_engine.slots import SlotTable
from tests.engine.kv_files.file_rig import (
    EVERY,
    PLAIN,
    empty_cache,
    file_of,
    ids_of,
    read_back,
    shape_of,
)
from tests.engine.kv_files.resume_rig import ask, fresh, saving, warnings_of, write_model
from tests.engine.kv_files.turns import Turn, save_all
from tests.engine.model_rig import prompt_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.kv_files.file_rig import Layouts


def saved(path: Path, layouts: Layouts, size: int = 20) -> bytes:
    states = (2, 5) if shape_of(layouts).state_dim else ()
    save_all(file_of(path, layouts), [Turn(ids_of(size), states)], layouts)
    return path.read_bytes()


@pytest.mark.parametrize("layouts", EVERY.values(), ids=EVERY)
def test_every_byte_counts(layouts: Layouts, tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    whole = saved(path, layouts, 6)
    shape = shape_of(layouts)
    assert len(whole) == shape.record_at(6)
    unused = range(0)
    if shape.state_dim:  # places of states that hold none: nobody reads them
        places = [any(whole[shape.state_at(p) : shape.state_at(p + 1)]) for p in range(8)]
        assert places == [False] * 5 + [True] * 3
        unused = range(STATES_AT, shape.state_at(5))
    # Of the first pages a few bytes stand for all: text, zeros, and whatever is at the ends.
    checked = {*range(20), *range(20, STATES_AT, 53), *range(STATES_AT, len(whole))}
    checked |= {*range(HEADER_BYTES - 4, HEADER_BYTES + 40)}
    checked |= {*range(HEADER_BYTES + COUNT_BYTES - 5, HEADER_BYTES + COUNT_BYTES + 5)}
    for place in sorted(checked - set(unused)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(Unusable):
            read_back(path, layouts)
    path.write_bytes(whole)
    assert read_back(path, layouts).size == 6


@pytest.mark.parametrize("layouts", EVERY.values(), ids=EVERY)
def test_a_cut_file_is_not_used(layouts: Layouts, tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    whole = saved(path, layouts)
    for size in {0, 1, 7, 8, 4095, 4096, 4607, 4608, STATES_AT - 1, STATES_AT, len(whole) - 1} | {
        *range(STATES_AT, len(whole), 41)
    }:
        path.write_bytes(whole[:size])
        with pytest.raises(Unusable, match=r"cut short|damaged"):
            read_back(path, layouts)


def test_what_is_behind_the_last_record_does_not_matter(tmp_path: Path) -> None:
    """As a process leaves it that was killed before its records counted."""
    path = tmp_path / ".coli_kv"
    path.write_bytes(saved(path, PLAIN) + b"half a record")
    assert read_back(path, PLAIN).tolist() == ids_of(20).tolist()


def test_records_that_were_exchanged_or_taken_from_another_file_are_noticed(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".coli_kv"
    shape = shape_of(PLAIN)
    whole = saved(path, PLAIN)
    other_ids = ids_of(20)
    other_ids[3] += 1
    save_all(file_of(tmp_path / "other", PLAIN), [Turn(other_ids, ())], PLAIN)
    other = (tmp_path / "other").read_bytes()

    def record(data: bytes, position: int) -> bytes:
        return data[shape.record_at(position) : shape.record_at(position + 1)]

    def put(position: int, data: bytes) -> None:
        begin = shape.record_at(position)
        path.write_bytes(whole[:begin] + data + whole[begin + len(data) :])

    put(8, record(whole, 9) + record(whole, 8))
    with pytest.raises(Unusable, match="token 8 is damaged"):
        read_back(path, PLAIN)
    put(8, record(other, 8))  # the same token and a good record, behind other tokens
    with pytest.raises(Unusable, match="token 8 is damaged"):
        read_back(path, PLAIN)
    put(0, other[shape.record_at(0) :])  # all records of the other, under this one's count
    with pytest.raises(Unusable, match="count does not belong"):
        read_back(path, PLAIN)


def test_tokens_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    ids = ids_of(20)
    ids[7] = 1000
    save_all(file_of(path, PLAIN), [Turn(ids, ())], PLAIN)
    with pytest.raises(Unusable, match="does not have"):
        read_back(path, PLAIN)


def test_no_plain_file_is_no_conversation(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    saved(tmp_path / "elsewhere", PLAIN)
    path.symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"symbolic|link"):
        read_back(path, PLAIN)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        read_back(path, PLAIN)


def test_another_users_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".coli_kv"
    saved(path, PLAIN)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_back(path, PLAIN)


# ---- in an engine -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "inkling"])
def test_a_damaged_file_changes_no_answer(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path / "model", family)
    path = model / ".coli_kv"
    prompt = prompt_of(300)
    with saving(model) as engine:
        reply = ask(engine, prompt).ids
    shutil.copy(path, tmp_path / "whole")
    whole = path.read_bytes()
    longer = [*prompt, *reply, 9, 8]
    expected = fresh(model, longer)
    draw = np.random.default_rng(1)
    flips = [
        *draw.integers(0, HEADER_BYTES + 64, 3),
        *draw.integers(len(whole) // 2, len(whole), 9),
    ]
    damaged = [whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :] for place in flips]
    for data in (*damaged, whole[:-1], whole[: len(whole) // 2], b"", b"no such file\n" * 1000):
        path.write_bytes(data)
        warnings_of(caplog)
        with saving(model) as engine:
            (told,) = warnings_of(caplog)
            assert f"the saved conversation {path} is not used: " in told
            turn = ask(engine, longer)
        assert turn.num_reused == 0
        assert turn.same_as(expected)
        with saving(model) as engine:  # the turn's own file took its place
            assert not warnings_of(caplog)
            again = ask(engine, [*longer, *turn.ids[:-1], 3])
        assert again.num_reused == len(longer) + len(turn.ids) - 1


def test_a_conversation_without_memory_for_it_leaves_its_slot_empty() -> None:
    slots = SlotTable(1, 600, lambda: empty_cache(PLAIN), free_bytes=lambda: 1000)
    with pytest.raises(MemoryError, match="50 positions"):
        slots.restore(0, 50, lambda _cache: np.zeros(50, np.int32))
    assert (len(slots[0].history), slots[0].cache.length) == (0, 0)
