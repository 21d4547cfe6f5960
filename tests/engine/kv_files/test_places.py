"""Where files lie, and that one engine at a time uses them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from colibri_engine.kv_files.places import Occupied, Place, take_place
from tests.engine.kv_files.resume_rig import ask, saving, warnings_of, write_model
from tests.engine.model_rig import prompt_of, start

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "llama")


def taken(model_path: Path, state_dir: Path, kv_dir: Path | None = None) -> Place:
    place = take_place(model_path, kv_dir, state_dir)
    place.release()
    return place


def make_read_only(directory: Path) -> None:
    """Let no lock be made in a directory, whoever asks: root may write where nobody else may."""
    for name in (".coli_kv.lock", ".m.gguf.coli_kv.lock"):
        (directory / name).mkdir()
    directory.chmod(0o555)


def test_a_directory_holds_its_own(model: Path, tmp_path: Path) -> None:
    place = taken(model, tmp_path / "state")
    assert [place.path(0), place.path(7)] == [model / ".coli_kv", model / ".coli_kv.7"]
    assert not (tmp_path / "state").exists()


def test_a_file_has_them_beside_it(tmp_path: Path) -> None:
    for name in ("m.gguf", "other.gguf"):
        (tmp_path / name).touch()
        place = taken(tmp_path / name, tmp_path / "state")
        assert place.path(0) == tmp_path / f".{name}.coli_kv"
        assert place.path(1) == tmp_path / f".{name}.coli_kv.1"


@pytest.mark.parametrize("is_file", [False, True])
def test_what_cannot_be_written_has_them_in_the_state_directory(
    is_file: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "read-only"
    directory.mkdir()
    (directory / "m.gguf").touch()
    make_read_only(directory)
    model = directory / "m.gguf" if is_file else directory
    place = taken(model, tmp_path / "state")
    assert place.directory.parent == tmp_path / "state" / "kv"
    assert place.directory.name.startswith("m-" if is_file else "read-only-")
    assert place.directory.stat().st_mode & 0o777 == 0o700
    assert taken(model, tmp_path / "state").directory == place.directory
    elsewhere = tmp_path / "b" / model.name
    assert taken(elsewhere, tmp_path / "state").directory != place.directory


def test_a_named_directory_is_the_only_one(model: Path, tmp_path: Path) -> None:
    place = taken(model, tmp_path / "state", tmp_path / "made" / "here")
    assert place.path(0) == tmp_path / "made" / "here" / ".coli_kv"
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        taken(model, tmp_path / "state", tmp_path / "file")
    assert not (tmp_path / "state").exists()


def test_one_at_a_time(model: Path, tmp_path: Path) -> None:
    place = take_place(model, None, tmp_path)
    with pytest.raises(Occupied, match=str(model)):
        take_place(model, None, tmp_path)
    place.release()
    place.release()
    taken(model, tmp_path)


def test_a_killed_process_gives_the_lock_back(model: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from colibri_engine.kv_files.places import take_place\n"
        "place = take_place(pathlib.Path(sys.argv[1]), None, pathlib.Path(sys.argv[2]))\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(model), str(tmp_path)], stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Occupied):
            take_place(model, None, tmp_path)
        holder.kill()
    taken(model, tmp_path)


def test_only_names_of_slots_are_files_of_slots(model: Path, tmp_path: Path) -> None:
    for name in (".coli_kv", ".coli_kv.2", ".coli_kv.10", ".coli_kv.02", ".coli_kv.x", ".coli_kv2"):
        (model / name).touch()
    assert taken(model, tmp_path).slots_with_files() == [0, 2, 10]


# ---- in an engine -------------------------------------------------------------------------------


def test_a_model_that_cannot_be_written_beside_goes_on_all_the_same(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_read_only(model)
    for reused in (0, 100):
        with saving(model, state_dir=tmp_path / "state") as engine:
            assert ask(engine, [*prompt_of(100), 7]).num_reused == reused
    assert not warnings_of(caplog)
    assert not (model / ".coli_kv").exists()


def test_nowhere_to_save_is_said_once_and_harms_nothing(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_read_only(model)
    (tmp_path / "file").touch()
    with saving(model, state_dir=tmp_path / "file") as engine:
        (told,) = warnings_of(caplog)
        assert "conversations are not saved" in told
        assert "COLI_KV_DIR" in told
        turn = ask(engine, prompt_of(50))
    assert turn.same_as(ask(start(model), prompt_of(50)))
    assert not warnings_of(caplog)


def test_a_setting_names_the_directory(model: Path, tmp_path: Path) -> None:
    with saving(model, kv_dir=tmp_path / "saved", num_slots=2) as engine:
        ask(engine, prompt_of(50), 1)
    found = {path.name for path in (tmp_path / "saved").iterdir()}
    assert found == {".coli_kv.1", ".coli_kv.lock"}
    assert not list(model.glob(".coli_kv*"))
    with saving(model, kv_dir=tmp_path / "saved", num_slots=2) as engine:
        assert ask(engine, [*prompt_of(50), 3]).num_reused == 50


def test_models_in_one_directory_do_not_use_each_others(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = write_model(tmp_path / "other", "llama", seed=4)
    with saving(model, kv_dir=tmp_path / "saved") as engine:
        ask(engine, prompt_of(50))
        with saving(other, kv_dir=tmp_path / "saved"):
            assert "another engine" in warnings_of(caplog)[0]
    with saving(other, kv_dir=tmp_path / "saved") as engine:
        assert "other weights" in warnings_of(caplog)[0]
        assert ask(engine, prompt_of(50)).num_reused == 0
