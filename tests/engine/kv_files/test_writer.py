"""Saving goes on beside the engine: nobody waits for the disk, no row is read that has changed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.kernels import KvReader
from colibri_engine.kv_files import conversation_file
from colibri_engine.kv_files.disk import DiskFile
from colibri_engine.kv_files.writer import ConversationWriter
from tests.engine.kv_files.file_rig import (
    PLAIN,
    RECURRENT,
    cache_of,
    file_of,
    ids_of,
    read_back,
    rows_of,
    shape_of,
)
from tests.engine.kv_files.resume_rig import ask, fresh, saving, warnings_of, write_model
from tests.engine.kv_files.turns import Turn, save
from tests.engine.model_rig import prompt_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.engine.kv_files.file_rig import Ids

LIMIT_S = 20


class SlowDisk:
    """Holds writes back until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_write = threading.Event()
        self._is_waiting = threading.Event()
        write = DiskFile.write

        def slow_write(file: DiskFile, offset: int, data: Any) -> None:  # noqa: ANN401
            self._is_waiting.set()
            assert self._may_write.wait(LIMIT_S)
            write(file, offset, data)

        monkeypatch.setattr(DiskFile, "write", slow_write)

    def wait_for_write(self) -> None:
        """Return when a write is held back."""
        assert self._is_waiting.wait(LIMIT_S)

    def go_on(self) -> None:
        self._may_write.set()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk = SlowDisk(monkeypatch)
    yield disk
    disk.go_on()


@pytest.mark.parametrize("family", ["llama", "inkling"])
def test_no_answer_waits_for_the_disk(family: str, slow_disk: SlowDisk, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", family)
    prompt = prompt_of(300)
    with saving(model) as engine:
        first = ask(engine, prompt)
        slow_disk.wait_for_write()
        longer = [*prompt, *first.ids, 4]
        second = ask(engine, longer)  # goes on
        branch = [*prompt, 5, 6]
        third = ask(engine, branch)  # turns back, and overwrites what may still be read
        anew = prompt_of(290, seed=3)
        fourth = ask(engine, anew)
        slow_disk.go_on()
    assert second.same_as(fresh(model, longer))
    assert third.same_as(fresh(model, branch))
    assert fourth.same_as(fresh(model, anew))
    with saving(model) as engine:
        again = ask(engine, [*anew, *fourth.ids])
    assert again.num_reused == len(anew) + 11
    assert again.same_as(fresh(model, [*anew, *fourth.ids]))


def small_pieces(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    size = records * shape_of(PLAIN).record_bytes
    monkeypatch.setattr(conversation_file, "_PIECE_BYTES", size)


def other_after(ids: Ids, kept: int) -> Ids:
    return np.concatenate([ids[:kept], ids_of(30, seed=77)])


@pytest.mark.parametrize("kept", [0, 3, 9, 25])
def test_rows_that_were_taken_back_are_not_read(
    kept: int, slow_disk: SlowDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, records=5)
    path = tmp_path / ".coli_kv"
    ids = ids_of(40)
    writer = ConversationWriter([file_of(path, PLAIN)])
    cache = cache_of(ids, PLAIN)
    writer.save(0, ids, KvReader(cache))
    slow_disk.wait_for_write()  # five rows are copied out, the rest is not
    writer.cut(0, kept)
    cache.truncate(kept)
    other = other_after(ids, kept)
    cache.append_rows(rows_of(other, shape_of(PLAIN))[kept:])
    slow_disk.go_on()
    writer.flush()
    writer.close()
    found = read_back(path, PLAIN)  # judges every row
    assert found.tolist() == ids[: max(5, kept)].tolist()


def test_a_turn_that_waits_gives_way_to_the_next_of_its_slot(
    slow_disk: SlowDisk, tmp_path: Path
) -> None:
    files = [file_of(tmp_path / name, RECURRENT) for name in ("0", "1")]
    writer = ConversationWriter(files)
    save(writer, Turn(ids_of(5), ()), RECURRENT)
    slow_disk.wait_for_write()
    for size in (10, 20, 30):
        save(writer, Turn(ids_of(size), (5,)), RECURRENT)
        save(writer, Turn(ids_of(size, seed=2), (5,)), RECURRENT, slot=1)
    slow_disk.go_on()
    writer.close()
    assert read_back(tmp_path / "0", RECURRENT).size == 30
    assert read_back(tmp_path / "1", RECURRENT).tolist() == ids_of(30, seed=2).tolist()


def test_closing_saves_what_is_left(tmp_path: Path) -> None:
    files = [file_of(tmp_path / str(slot), PLAIN) for slot in range(4)]
    writer = ConversationWriter(files)
    for slot in range(4):
        save(writer, Turn(ids_of(20, seed=slot), ()), PLAIN, slot)
    writer.close()
    for slot in range(4):
        assert read_back(tmp_path / str(slot), PLAIN).tolist() == ids_of(20, slot).tolist()


def test_a_long_conversation_counts_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a kill does not cost all of it."""
    from colibri_engine.kv_files import writer as writer_module

    small_pieces(monkeypatch, records=5)
    monkeypatch.setattr(writer_module, "_COMMIT_BYTES", 8 * shape_of(PLAIN).record_bytes)
    path = tmp_path / ".coli_kv"
    seen: list[int] = []
    sync = DiskFile.sync

    def looking_sync(file: DiskFile) -> None:
        sync(file)
        if path.exists():
            seen.append(read_back(path, PLAIN).size)

    monkeypatch.setattr(DiskFile, "sync", looking_sync)
    writer = ConversationWriter([file_of(path, PLAIN)])
    save(writer, Turn(ids_of(42), ()), PLAIN)
    writer.close()
    assert sorted(set(seen)) == [0, 10, 20, 30, 40, 42]


def test_a_fault_of_ours_ends_saving_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "model", "llama")

    def broken(*_arguments: object) -> None:
        raise KeyError("a fault")

    with saving(model) as engine:
        monkeypatch.setattr(DiskFile, "sync", broken)
        first = ask(engine, prompt_of(50))
        second = ask(engine, [*prompt_of(50), *first.ids])
    assert second.same_as(fresh(model, [*prompt_of(50), *first.ids]))
    (told,) = warnings_of(caplog)
    assert "slot 0 cannot be saved" in told
    assert not (model / ".coli_kv").exists()
