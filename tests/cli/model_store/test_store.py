"""The store: names, manifests, whole or not at all, one pull at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from colibri_cli import paths
from colibri_cli.errors import ModelNotFound, StoreError
from colibri_cli.model_store.store import (
    StoredModel,
    find_model,
    list_models,
    locate_model,
    new_directory,
    pull_lock,
    write_manifest,
)


def fail_to_add(name: str) -> None:
    with new_directory(name) as directory:
        (directory / "m.gguf").write_bytes(b"half")
        raise RuntimeError


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def add(name: str, content: bytes = b"weights") -> StoredModel:
    model = StoredModel(name, "llama", "m.gguf", "test", len(content), None)
    with new_directory(name) as directory:
        (directory / "m.gguf").write_bytes(content)
        write_manifest(directory, model)
    return model


def test_a_model_is_found_by_name_and_listed() -> None:
    assert (list_models(), find_model("a")) == ([], None)
    added = add("a")
    assert find_model("a") == added
    assert [model.name for model in list_models()] == ["a"]
    assert locate_model("a") == (paths.models_dir() / "a" / "m.gguf", "a")


def test_a_path_wins_over_a_name_and_serves_under_its_own(tmp_path: Path) -> None:
    add("a")
    (tmp_path / "other").mkdir()
    (tmp_path / "file.gguf").write_bytes(b"")
    assert locate_model(str(tmp_path / "other")) == (tmp_path / "other", "other")
    assert locate_model(str(tmp_path / "file.gguf")) == (tmp_path / "file.gguf", "file")
    part = tmp_path / "big-00002-of-00003.gguf"
    part.write_bytes(b"")
    assert locate_model(str(part)) == (part, "big")


@pytest.mark.parametrize("name", ["missing", "../a", "", ".hidden", "a/b"])
def test_what_is_nowhere_is_named_with_what_there_is(name: str) -> None:
    add("known")
    if not name:
        assert find_model(name) is None
        return
    with pytest.raises(ModelNotFound, match="known"):
        locate_model(name)


def test_a_path_that_cannot_be_looked_at_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ModelNotFound, match=r"circle' cannot be looked at: ") as caught:
        locate_model(str(tmp_path / "circle"))
    assert "--model" in str(caught.value.hint)
    with pytest.raises(ModelNotFound, match=r"…' cannot be looked at: File name too long$"):
        locate_model("x" * 5000)


def test_a_failed_attempt_leaves_nothing_and_keeps_what_was(data_home: Path) -> None:
    add("a", b"old")
    with pytest.raises(RuntimeError):
        fail_to_add("a")
    model = find_model("a")
    assert model is not None
    assert model.path.read_bytes() == b"old"
    assert [entry.name for entry in paths.models_dir().iterdir()] == ["a"]


def test_a_new_version_takes_the_place_of_the_old_one() -> None:
    add("a", b"old")
    add("a", b"new!")
    model = find_model("a")
    assert model is not None
    assert (model.num_bytes, model.path.read_bytes()) == (4, b"new!")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"family": "x"}', "\xff"])
def test_foreign_directories_are_skipped(text: str) -> None:
    add("good")
    directory = paths.models_dir() / "bad"
    directory.mkdir()
    (directory / "model.json").write_text(text, encoding="latin-1")
    assert [model.name for model in list_models()] == ["good"]


@pytest.mark.parametrize(
    "size", ["Infinity", "1e999", "NaN", pytest.param("[" * 100_000, id="nested")]
)
def test_a_description_that_no_number_fits_is_skipped(size: str) -> None:
    add("good")
    model = add("bad")
    text = json.dumps({"family": "llama", "target": ".", "source": "", "num_experts": None})
    manifest = paths.models_dir() / model.name / "model.json"
    manifest.write_text(f'{text[:-1]}, "num_bytes": {size}}}')
    assert [model.name for model in list_models()] == ["good"]


def test_a_model_whose_file_is_gone_is_not_there() -> None:
    model = add("a")
    model.path.unlink()
    assert find_model("a") is None


def test_the_lock_holds_between_processes_and_ends_with_them() -> None:
    code = (
        "import sys\nfrom colibri_cli.model_store.store import pull_lock\n"
        "with pull_lock('a'):\n print('locked', flush=True)\n sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path), "XDG_DATA_HOME": str(paths.data_dir().parent)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(StoreError, match="another process"), pull_lock("a"):
        pass
    with pull_lock("b"):
        pass
    holder.kill()
    holder.communicate()
    with pull_lock("a"):
        pass


def test_a_store_that_cannot_be_written_is_one_error(data_home: Path) -> None:
    data_home.write_text("a file where the directory should be")
    with pytest.raises(StoreError, match="cannot write"), pull_lock("a"):
        pass
    assert list_models() == []


def test_the_manifest_is_json_with_a_version() -> None:
    add("a")
    body = json.loads((paths.models_dir() / "a" / "model.json").read_text())
    assert body["schema_version"] == 1
