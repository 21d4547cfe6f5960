"""Sources and places that are not as a conversion would wish: refused by name, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.conversion.convert import Conversion
from colibri_engine.conversion.directory_lock import LOCK
from colibri_engine.conversion.manifest import MANIFEST
from colibri_engine.conversion.options import Layout
from colibri_engine.errors import CheckpointError, ConversionError
from colibri_engine.loader.checkpoint import open_checkpoint
from tests.engine.conversion.rig import (
    Told,
    convert,
    options,
    values,
    weight_files,
    write_source,
)
from tests.fakes.tiny_gguf import write_gguf_model

SHARD_BYTES = 150_000  # some five files


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def change_a_value(source: Path) -> None:
    """Turn one bit in the middle of every weight file, where no header is."""
    for path in source.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


# ---- what is no weight but belongs to the model ------------------------------------------------


def write_template(source: Path, where: str) -> Path:
    """Give a source a chat template and return the file that holds it."""
    if where == "chat_template.jinja":
        (source / where).write_text("{{ messages }}")
        return source / where
    file = source / "tokenizer_config.json"
    body = json.loads(file.read_bytes()) if file.exists() else {}
    file.write_text(json.dumps(body | {"chat_template": "{{ messages }}"}))
    return file


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
@pytest.mark.parametrize("fate", ["vanishes", "changes"])
def test_a_template_that_goes_while_it_is_converted_is_an_error(
    tmp_path: Path, where: str, fate: str
) -> None:
    source = write_source(tmp_path / "source").path
    file = write_template(source, where)
    kept = file.read_bytes()
    checkpoint = open_checkpoint(source)
    conversion = Conversion(checkpoint, tmp_path / "out", options())
    if fate == "vanishes":
        file.unlink()
    else:
        file.write_bytes(kept.replace(b"messages", b"message_s"))
    with pytest.raises(CheckpointError, match=r"the chat template of .* vanished or changed"):
        conversion.run(Told())
    checkpoint.close()
    assert not (tmp_path / "out" / "config.json").exists()  # so that nothing opens it as a model
    file.write_bytes(kept)
    convert(source, tmp_path / "out")
    again = open_checkpoint(tmp_path / "out")
    assert again.chat_template == "{{ messages }}"
    again.close()


def test_a_tokenizer_that_vanishes_while_it_is_converted_is_an_error(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source").path
    checkpoint = open_checkpoint(source)
    conversion = Conversion(checkpoint, tmp_path / "out", options())
    (source / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"the tokenizer of .* vanished or changed"):
        conversion.run(Told())
    checkpoint.close()


# ---- which source it was ------------------------------------------------------------------------


def test_going_on_from_other_values_of_the_same_shape_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(shard_bytes=SHARD_BYTES)
    convert(source.path, tmp_path / "out", chosen)
    (tmp_path / "out" / [*weight_files(tmp_path / "out")][1]).unlink()
    change_a_value(source.path)
    before = contents(tmp_path / "out")
    with pytest.raises(ConversionError, match="of the same shape with other values"):
        convert(source.path, tmp_path / "out", chosen)
    assert contents(tmp_path / "out") == before


def test_a_source_may_move_and_its_times_may_change(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out")
    shutil.copytree(source.path, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    shutil.rmtree(source.path)
    assert convert(tmp_path / "elsewhere", tmp_path / "out").files == []


def test_a_state_of_before_values_were_looked_at_goes_on(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    body = json.loads(path.read_text())
    del body["contents"]
    path.write_text(json.dumps(body))
    assert convert(source.path, tmp_path / "out").files == []


def test_a_source_that_is_cut_while_it_is_read_is_named(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "whole")
    kept = contents(source.path)
    victim = sorted(source.path.glob("*.safetensors"))[1]

    class Cutting(Told):
        def progress(self, done: int, total: int) -> None:
            super().progress(done, total)
            os.truncate(victim, 2000)

    checkpoint = open_checkpoint(source.path)
    try:
        conversion = Conversion(checkpoint, tmp_path / "out", options())
        with pytest.raises(CheckpointError, match=rf"{victim.name} .*found 2000$"):
            conversion.run(Cutting())
    finally:
        checkpoint.close()
    victim.write_bytes(kept[victim.name])
    convert(source.path, tmp_path / "out")
    assert weight_files(tmp_path / "out") == weight_files(tmp_path / "whole")


# ---- where the result is to go ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "tokenizer.json", "other.gguf", "a.safetensors", "chat_template.jinja",
        "special_tokens_map.json",
    ],
)  # fmt: skip
def test_a_directory_with_files_of_another_model_is_left_alone(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path / "source")
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("precious")
    with pytest.raises(ConversionError, match=re.escape(f"already holds {name}")):
        convert(source.path, out)
    assert (out / name).read_text() == "precious"
    assert not weight_files(out).keys() - {name}


def test_links_that_lead_to_each_other_are_no_destination(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(ConversionError, match=r"out is no directory, or lies in none"):
        convert(source.path, tmp_path / "out")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="hardware: a system without named pipes")
@pytest.mark.parametrize("name", [MANIFEST, LOCK])
def test_a_pipe_among_the_files_of_a_conversion_ends_it(tmp_path: Path, name: str) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(ConversionError, match=re.escape(name)):
        convert(source.path, tmp_path / "out")


def test_the_place_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "out" / LOCK).mkdir(parents=True)
    with pytest.raises(ConversionError) as caught:
        convert(source.path, tmp_path / "out")
    assert str(caught.value) == f"cannot write {tmp_path / 'out' / LOCK}: Is a directory"


def test_files_that_mean_no_model_are_no_obstacle(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "out" / "lost+found").mkdir(parents=True)
    (tmp_path / "out" / "README.md").write_text("mine")
    convert(source.path, tmp_path / "out")
    assert (tmp_path / "out" / "README.md").read_text() == "mine"


def test_the_directory_of_a_gguf_source_is_no_destination(tmp_path: Path) -> None:
    write_gguf_model(tmp_path / "m.gguf", "glm4_moe", type_name="Q4_1")
    with pytest.raises(ConversionError, match=r"already holds m\.gguf"):
        convert(tmp_path / "m.gguf", tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("place", ["file", "file/out"])
def test_a_file_is_no_destination(tmp_path: Path, place: str) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConversionError, match=r"file.* is no directory, or lies in none"):
        convert(source.path, tmp_path / place)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("layout", Layout)
def test_links_and_names_in_any_script(tmp_path: Path, layout: Layout) -> None:
    source = write_source(tmp_path / "môdèle 模型")
    (tmp_path / "other disk").mkdir()
    (tmp_path / "in").symlink_to(source.path)
    (tmp_path / "из").symlink_to(tmp_path / "other disk")
    convert(tmp_path / "in", tmp_path / "из", options(layout))
    convert(source.path, tmp_path / "plain", options(layout))
    assert weight_files(tmp_path / "other disk") == weight_files(tmp_path / "plain")
    with pytest.raises(ConversionError, match="is the source itself"):
        convert(tmp_path / "in", source.path)


def test_weight_files_that_are_links_are_read(tmp_path: Path) -> None:
    """As the cache of huggingface_hub has them."""
    source = write_source(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for path in source.path.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    convert(tmp_path / "snapshot", tmp_path / "out")
    assert all(np.isfinite(array).all() for array in values(tmp_path / "out").values())


# ---- disks that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, r"the disk of .* is full \(\d+ bytes free\)"),
        (errno.EROFS, r"cannot write .*: Read-only file system"),
    ],
)
def test_a_disk_that_fails_anywhere_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, number: int, said: str
) -> None:
    """In weight files, in the state of the conversion, in the tokenizer and the configuration."""
    source = write_source(tmp_path / "source")
    chosen = options(layout, shard_bytes=SHARD_BYTES)
    calls, first = 0, 1 << 30

    def fails(descriptor: int) -> None:  # in place of waiting for the disk
        del descriptor
        nonlocal calls
        calls += 1
        if calls >= first:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    convert(source.path, tmp_path / "whole", chosen)
    wanted = contents(tmp_path / "whole")
    for point in range(1, calls - 2, 5):  # the last ones are of a directory, and not needed
        calls, first, out = 0, point, tmp_path / f"out-{point}"
        with pytest.raises(ConversionError, match=said):
            convert(source.path, out, chosen)
        assert not list(out.glob(".*.partial"))
        first = 1 << 30
        convert(source.path, out, chosen)
        assert contents(out) == wanted
