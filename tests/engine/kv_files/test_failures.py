"""A disk that fails harms no answer; what it leaves is a whole conversation or none."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Any, Self

import pytest

from colibri_engine.kv_files.disk import DiskFile
from tests.engine.kv_files.file_rig import EVERY, file_of, read_back
from tests.engine.kv_files.resume_rig import ask, fresh, saving, warnings_of, write_model
from tests.engine.kv_files.turns import save_all, turns_of
from tests.engine.model_rig import prompt_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.kv_files.file_rig import Layouts


def failing_disk(
    allowed: int, code: int, *, once: bool = False
) -> tuple[type[DiskFile], list[int]]:
    """Return a disk that fails after some operations, and a list with the number of those done.

    A write that fails has written half.
    """
    done = [0]

    def spend() -> None:
        done[0] += 1
        if done[0] == allowed + 1 or (done[0] > allowed and not once):
            raise OSError(code, os.strerror(code))

    class FailingDisk(DiskFile):
        @classmethod
        def create(cls, path: Path) -> Self:
            spend()
            return super().create(path)

        def publish(self) -> None:
            spend()
            super().publish()

        def write(self, offset: int, data: Any) -> None:  # noqa: ANN401 - any buffer
            try:
                spend()
            except OSError:
                raw = bytes(data) if isinstance(data, bytes | bytearray) else data.tobytes()
                super().write(offset, raw[: len(raw) // 2])
                raise
            super().write(offset, data)

        def sync(self) -> None:
            spend()
            super().sync()

        def cut(self, size: int) -> None:
            spend()
            super().cut(size)

    return FailingDisk, done


@pytest.mark.parametrize("layouts", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
def test_a_failure_anywhere_leaves_a_whole_conversation(
    layouts: Layouts, once: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = errno.EIO if once else errno.ENOSPC
    turns = turns_of(3, 5)
    path = tmp_path / ".coli_kv"
    disk, done = failing_disk(10**9, code)
    save_all(file_of(path, layouts, disk=disk), turns, layouts)
    assert not warnings_of(caplog)
    num_operations = done[0]
    assert num_operations > 20
    num_lost = 0
    for allowed in range(num_operations):
        for left in tmp_path.iterdir():
            left.unlink()
        disk, _ = failing_disk(allowed, code, once=once)
        save_all(file_of(path, layouts, disk=disk), turns, layouts)
        told = warnings_of(caplog)
        assert os.strerror(code) in told[0]
        assert str(path) in told[0]
        assert len(told) == 1
        try:
            ids = read_back(path, layouts)
        except FileNotFoundError:
            assert "stay there" not in told[0]
            num_lost += 1
            continue
        assert any(turn.ids.tobytes().startswith(ids.tobytes()) for turn in turns)
        assert f"{ids.size} tokens of it stay there" in told[0]
    assert 0 < num_lost < num_operations if once else num_lost == num_operations


def test_a_disk_that_is_full_harms_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path / "model", "llama")
    path = model / ".coli_kv"
    prompt = prompt_of(100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with saving(model) as engine:
        first = ask(engine, prompt)
        wait_for_saving(engine)
        size = path.stat().st_size
        second_prompt = [*prompt, *first.ids, *prompt_of(80, seed=2)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, hard))
        try:
            second = ask(engine, second_prompt)
            wait_for_saving(engine)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        (told,) = warnings_of(caplog)
        assert "slot 0 cannot be saved" in told
        assert "111 tokens of it stay there" in told
        third_prompt = [*second_prompt, *second.ids, 9]
        third = ask(engine, third_prompt)
        assert third.num_reused == len(second_prompt) + 11  # memory is as good as ever
        assert not warnings_of(caplog)
    assert second.same_as(fresh(model, second_prompt))
    assert third.same_as(fresh(model, third_prompt))
    assert path.stat().st_size == size
    with saving(model) as engine:
        again = ask(engine, second_prompt)
    assert again.num_reused == 111
    assert again.same_as(second)
    assert not warnings_of(caplog)


def wait_for_saving(engine: Any) -> None:  # noqa: ANN401 - an engine, and what it keeps to itself
    engine._slots.keeper._writer.flush()


def test_what_an_interrupted_creation_left_is_removed(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "llama")
    (model / ".coli_kv.partial").write_bytes(b"half a header")
    with saving(model):
        assert not (model / ".coli_kv.partial").exists()
