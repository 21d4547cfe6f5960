"""A model on several disks is the model: split, mirrored, with a mirror that fails."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_engine.engine_config import ReadConfig
from colibri_engine.errors import CheckpointError, SettingsError
from colibri_engine.loader.checkpoint import open_checkpoint
from tests.engine.experts.streaming_rig import (
    conversation,
    load_resident,
    load_streamed,
    run_steps,
)
from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    source = write_container(directory / "container", n_routed_experts=8).path
    return restream(source, directory / "stream", num_shards=3)


def moved(whole: Path, to: Path, numbers: set[int]) -> Path:
    """Return a directory with some of the weight files, and what else there is if it is `model`."""
    to.mkdir()
    for path in whole.iterdir():
        if path.suffix != ".safetensors":
            if to.name == "model":
                shutil.copy(path, to)
        elif int(path.stem.removeprefix("out-")) in numbers:
            shutil.copy(path, to)
    return to


@pytest.mark.parametrize("direct", [True, False])
def test_a_split_model_is_the_same_model(whole: Path, tmp_path: Path, direct: bool) -> None:
    model_dir = moved(whole, tmp_path / "model", {1})
    dirs = [moved(whole, tmp_path / "one", {0}), moved(whole, tmp_path / "two", {2})]
    resident = load_resident(whole)
    steps = conversation(resident.config.vocab_size)
    wanted = run_steps(resident, steps)
    model, store = load_streamed(model_dir, 1, reads=ReadConfig(direct=direct), further=dirs)
    assert {path.parent for path in store.table.paths} == {model_dir, *dirs}
    for found, expected in zip(run_steps(model, steps), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["io_uring", "threads"])
@pytest.mark.parametrize("files", [{0, 1, 2}, {2}], ids=["all", "some"])
def test_a_mirror_changes_no_bit(whole: Path, tmp_path: Path, mode: str, files: set[int]) -> None:
    mirror = moved(whole, tmp_path / "mirror", files)
    before = {path: path.stat().st_mtime_ns for path in mirror.iterdir()}
    resident = load_resident(whole)
    steps = conversation(resident.config.vocab_size, seed=5)
    config = ReadConfig(mode, direct=True, mirrors=(mirror,), weights=(1, 1))
    try:
        model, _ = load_streamed(whole, 1, reads=config)
    except RuntimeError as exc:
        pytest.skip(f"hardware: {exc}")
    for found, wanted in zip(run_steps(model, steps), run_steps(resident, steps), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert {path: path.stat().st_mtime_ns for path in mirror.iterdir()} == before


def test_a_mirror_that_fails_changes_no_bit(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = moved(whole, tmp_path / "mirror", {0, 1, 2})
    resident = load_resident(whole)
    steps = conversation(resident.config.vocab_size, seed=6)
    config = ReadConfig(direct=True, mirrors=(mirror,), weights=(1, 4))
    model, store = load_streamed(whole, 1, reads=config)
    half = len(steps) // 2
    found = run_steps(model, steps[:half])
    for path in mirror.iterdir():
        os.truncate(path, 4096)
    found = run_steps(model, steps)
    for one, wanted in zip(found, run_steps(resident, steps), strict=True):
        np.testing.assert_array_equal(one, wanted)
    messages = [r.getMessage() for r in caplog.records if "not read any more" in r.getMessage()]
    assert 1 <= len(messages) <= 3  # once for each file
    assert len({message.split(":")[0] for message in messages}) == len(messages)
    store.close()


def test_files_of_a_split_model_that_are_missing_or_there_twice_are_named(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model_dir = moved(whole, tmp_path / "model", {0, 1})
    twice = moved(whole, tmp_path / "twice", {1, 2})
    with closing(open_checkpoint(model_dir, [twice])) as checkpoint:
        files = {path.name: path.parent.name for path in checkpoint.weight_files()}
    assert files["out-00001.safetensors"] == "model"  # the first of two
    assert "out-00001.safetensors lies in both" in caplog.text
    with (twice / "out-00001.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CheckpointError, match=r"out-00001\.safetensors lies in both .* bytes"):
        open_checkpoint(model_dir, [twice])
    (twice / "out-00001.safetensors").write_bytes(
        (model_dir / "out-00001.safetensors").read_bytes()
    )
    with pytest.raises(CheckpointError, match="nowhere is no directory"):
        open_checkpoint(model_dir, [tmp_path / "nowhere"])
    (model_dir / "out-00001.safetensors").unlink()
    with closing(open_checkpoint(model_dir, [twice])) as checkpoint:
        assert [path.parent for path in checkpoint.weight_files()].count(twice) == 2


def test_a_model_that_is_one_file_cannot_be_split(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="several directories") as caught:
        open_checkpoint(file, [tmp_path])
    assert "COLI_MODEL_DIRS" in str(caught.value.hint)


def test_a_directory_without_weight_files_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{tmp_path} holds no weight files"):
        open_checkpoint(whole, [tmp_path])


def start(path: Path, mirrors: str) -> None:
    environ = {"SNAP": str(path), "COLI_MODEL_MIRROR": mirrors, "COLI_KV_SAVE": "0"}
    startup.load(read_config((), environ)).engine.close()


def test_a_mirror_of_a_model_that_is_all_in_memory_is_said_not_to_be_read(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = moved(whole, tmp_path / "mirror", {0})
    start(whole, str(mirror))
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said == f"COLI_MODEL_MIRROR: {mirror} is not read, all of the model is in memory"


def test_a_mirror_that_could_not_be_used_is_refused_wherever_the_experts_are(
    whole: Path, tmp_path: Path
) -> None:
    mirror = moved(whole, tmp_path / "mirror", {0})
    for mirrors, problem in (
        (f"{mirror}{os.pathsep}{whole}", "the model's own file, no copy"),
        (f"{mirror}{os.pathsep}{mirror}", "is named twice"),
        (str(tmp_path / "none"), "is no directory"),
    ):
        with pytest.raises(SettingsError, match=problem):
            start(whole, mirrors)
