"""A conversion that was killed goes on, and the result is that of an undisturbed one."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from colibri_engine.conversion.directory_lock import directory_lock
from colibri_engine.conversion.manifest import MANIFEST
from colibri_engine.conversion.options import ConvertOptions, Layout
from colibri_engine.errors import CheckpointError, ConversionError
from tests.engine.conversion.rig import (
    SIZES,
    convert,
    options,
    values,
    weight_files,
    write_drafting,
    write_source,
)
from tests.fakes.container_models import write_container
from tests.fakes.tiny_gguf import write_gguf_model

SHARD_BYTES = 100_000  # some eight files of a model with a draft layer
FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.truncate"})


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that begin with everything imported, so that a kill hits the conversion."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.conversion.rig"])
    return context


def run_until(source: Path, out: Path, chosen: ConvertOptions, last_event: int | None) -> None:
    """Convert; at the given file operation the process ends as if it had been killed."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in FILE_EVENTS and str(out) in str(arguments[0]):
            seen += 1
            if seen == last_event:
                os._exit(137)

    if last_event is not None:
        sys.addaudithook(watch)
    convert(source, out, chosen)
    (out.parent / "events").write_text(str(seen))


class Killer:
    """Runs conversions in processes of their own and kills them."""

    def __init__(self, processes: ForkServerContext, source: Path, work: Path) -> None:
        self._processes = processes
        self._source = source
        self.work = work

    def whole(self, out: Path, chosen: ConvertOptions) -> tuple[float, int]:
        """Let one run to its end; return its seconds and its file operations."""
        begin = time.perf_counter()
        process = self._start(out, chosen, 1 << 30)
        process.join()
        assert process.exitcode == 0
        seconds = time.perf_counter() - begin
        return seconds, int((out.parent / "events").read_text())

    def at_event(self, out: Path, chosen: ConvertOptions, event: int) -> None:
        """Kill one at a file operation."""
        process = self._start(out, chosen, event)
        process.join()
        assert process.exitcode in {0, 137}

    def after(self, out: Path, chosen: ConvertOptions, seconds: float) -> None:
        """Kill one after a while."""
        process = self._start(out, chosen, None)
        time.sleep(seconds)
        process.kill()
        process.join()
        assert process.exitcode in {0, -9}

    def _start(self, out: Path, chosen: ConvertOptions, event: int | None) -> Any:  # noqa: ANN401
        process = self._processes.Process(
            target=run_until, args=(self._source, out, chosen, event), daemon=True
        )
        process.start()
        return process


def everything(directory: Path) -> dict[str, bytes]:
    """Return all files but the lock."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.is_file() and path.suffix != ".lock"
    }


def check_killed_runs(killer: Killer, chosen: ConvertOptions, num_points: int, seed: int) -> None:
    """Kill at `num_points` points, half of them at file operations and half at any time."""
    draw = random.Random(seed)
    seconds, events = killer.whole(killer.work / "whole", chosen)
    wanted = everything(killer.work / "whole")
    files = weight_files(killer.work / "whole")
    assert len(files) > 4
    assert events > 25
    for point in range(num_points):
        out = killer.work / f"out-{point}"
        for _ in range(draw.randint(1, 3)):
            if point % 2:
                killer.at_event(out, chosen, draw.randint(1, events))
            else:
                killer.after(out, chosen, draw.uniform(0, seconds))
            for name, data in weight_files(out).items() if out.exists() else ():
                assert files[name] == data, f"{name} has its name but not its contents"
        convert(killer._source, out, chosen)
        assert everything(out) == wanted


def a_published_one(directory: Path) -> Path:
    return write_drafting(directory).path


def one_in_bf16(directory: Path) -> Path:
    return write_source(directory, "BF16").path


def one_in_fp8(directory: Path) -> Path:
    return write_source(directory, "F8_E4M3").path


def a_gguf_file(directory: Path) -> Path:
    sizes = SIZES | {"moe_intermediate_size": 96}  # whole blocks
    return write_gguf_model(directory / "m.gguf", "glm4_moe", type_name="Q4_0", **sizes).path


def a_container(format_name: str) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        return write_container(directory, format_name=format_name, **SIZES).path

    return write


SOURCES: dict[str, Callable[[Path], Path]] = {
    "f32 with a draft layer": a_published_one,
    "bf16": one_in_bf16,
    "fp8 in blocks": one_in_fp8,
    "gguf": a_gguf_file,
    "int4 container": a_container("int4-grouped"),
    "e8 container": a_container("e8-iq3-lattice"),
    "fp8 container": a_container("fp8-e4m3-b128"),
}


def check_source(
    processes: ForkServerContext,
    work: Path,
    kind: str,
    layout: Layout,
    num_points: int,
    seed: int,
) -> None:
    (work / "source").mkdir()
    source = SOURCES[kind](work / "source")
    chosen = options(layout, shard_bytes=SHARD_BYTES // 4)
    check_killed_runs(Killer(processes, source, work), chosen, num_points, seed)


@pytest.mark.parametrize("layout", [Layout.STREAM, Layout.PAIRS])
@pytest.mark.parametrize("kind", ["f32 with a draft layer", "e8 container"])
def test_killed_conversions_end_as_if_nothing_had_been(
    tmp_path: Path, processes: ForkServerContext, layout: Layout, kind: str
) -> None:
    check_source(processes, tmp_path, kind, layout, 4, seed=len(layout))


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout.STREAM, Layout.PAIRS])
@pytest.mark.parametrize("kind", SOURCES)
def test_hundreds_of_killed_conversions(
    tmp_path: Path, processes: ForkServerContext, layout: Layout, kind: str
) -> None:
    """Thirty points of each: of all kinds and both layouts more than four hundred."""
    check_source(processes, tmp_path, kind, layout, 30, seed=100)


def test_finished_files_are_kept(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(shard_bytes=SHARD_BYTES)
    convert(source.path, tmp_path / "out", chosen)
    names = [*weight_files(tmp_path / "out")]
    (tmp_path / "out" / names[1]).unlink()
    kept = [tmp_path / "out" / name for name in names if name != names[1]]
    before = [path.stat().st_mtime_ns for path in kept]
    told = convert(source.path, tmp_path / "out", chosen)
    assert told.files == [names[1]]
    assert before == [path.stat().st_mtime_ns for path in kept]
    assert convert(source.path, tmp_path / "out", chosen, verify=True).files == []


def test_a_file_of_another_size_is_written_anew(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(shard_bytes=SHARD_BYTES)
    convert(source.path, tmp_path / "out", chosen)
    wanted = weight_files(tmp_path / "out")
    name = [*wanted][2]
    (tmp_path / "out" / name).write_bytes(wanted[name][:-1000])
    assert convert(source.path, tmp_path / "out", chosen).files == [name]
    assert weight_files(tmp_path / "out") == wanted


def test_verification_finds_a_changed_byte(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    for layout in Layout:
        out = tmp_path / layout
        convert(source.path, out, options(layout))
        name, data = next(iter(weight_files(out).items()))
        for place in (len(data) - 1, len(data) // 2):
            damaged = bytearray(data)
            damaged[place] ^= 1
            (out / name).write_bytes(damaged)
            with pytest.raises(CheckpointError, match=f"{name} is damaged: its digest"):
                convert(source.path, out, options(layout), verify=True)
        (out / name).write_bytes(data)
        assert "verified" in convert(source.path, out, options(layout), verify=True).notes[-1]


@pytest.mark.parametrize(
    ("then", "now", "named"),
    [
        ({}, {"xbits": "8"}, "xbits = not set, now it is '8'"),
        ({"xbits": "8"}, {}, "xbits = '8', now it is not set"),
        ({"group_size": 32}, {"group_size": 128}, "group_size = 32, now it is 128"),
        ({}, {"layout": Layout.PAIRS}, "layout = 'stream', now it is 'pairs'"),
        ({}, {"shard_bytes": 70_000}, "shard_bytes = 100000, now it is 70000"),
        ({}, {"with_mtp": False}, "mtp = True, now it is False"),
    ],
)
def test_other_options_are_refused(
    tmp_path: Path, then: dict[str, Any], now: dict[str, Any], named: str
) -> None:
    source = write_source(tmp_path / "source")
    base: dict[str, Any] = {"shard_bytes": SHARD_BYTES}
    convert(source.path, tmp_path / "out", options(**(base | then)))
    before = everything(tmp_path / "out")
    with pytest.raises(ConversionError, match=f"was begun with {named}"):
        convert(source.path, tmp_path / "out", options(**(base | now)))
    assert everything(tmp_path / "out") == before


def test_another_source_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    other = write_source(tmp_path / "other", dtype="F32")
    convert(source.path, tmp_path / "out")
    with pytest.raises(ConversionError, match="from another source"):
        convert(other.path, tmp_path / "out")


def test_threads_and_free_space_may_change(tmp_path: Path) -> None:
    from dataclasses import replace

    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out")
    chosen = replace(options(), num_threads=5, min_free_bytes=10)
    assert convert(source.path, tmp_path / "out", chosen).files == []


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    other = write_source(tmp_path / "other")
    before = everything(other.path)
    with pytest.raises(ConversionError, match=r"already holds config\.json"):
        convert(source.path, other.path)
    assert everything(other.path) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"schema_version": 1}',
        '{"schema_version":1,"parameters":3,"source":"","files":{}}',
        '{"schema_version":1,"parameters":{},"source":"","files":{"a":{"bytes":1e999,"sha256":""}}}',
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out")
    (tmp_path / "out" / MANIFEST).write_text(text)
    with pytest.raises(ConversionError, match="is damaged"):
        convert(source.path, tmp_path / "out")


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    convert(source.path, tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 2}))
    with pytest.raises(ConversionError, match="another version"):
        convert(source.path, tmp_path / "out")


def test_two_conversions_into_one_directory_are_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "out").mkdir()
    with directory_lock(tmp_path / "out"):
        with pytest.raises(ConversionError, match="being written by another conversion"):
            convert(source.path, tmp_path / "out")
        assert not weight_files(tmp_path / "out")
    convert(source.path, tmp_path / "out")
    assert values(tmp_path / "out")


def test_too_little_space_stops_early_and_names_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil
    from dataclasses import replace

    source = write_source(tmp_path / "source")
    chosen = replace(options(), min_free_bytes=1 << 60)
    with pytest.raises(
        ConversionError, match=r"has [\d.]+ GB free; [\d.]+ MB are needed, and 11529"
    ):
        convert(source.path, tmp_path / "out", chosen)
    assert not weight_files(tmp_path / "out")
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1000))
    with pytest.raises(ConversionError, match=r"has 0\.0 MB free"):
        convert(source.path, tmp_path / "out")


def test_a_file_that_was_finished_but_not_noted_does_not_need_its_room_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full when it was to be noted, and has room for the result and no more."""
    import shutil

    source = write_source(tmp_path / "source")
    chosen = options(shard_bytes=SHARD_BYTES)
    out = tmp_path / "out"
    convert(source.path, out, chosen)
    wanted = weight_files(out)
    last = out / [*wanted][-1]
    body = json.loads((out / MANIFEST).read_text())
    del body["files"][last.name]
    (out / MANIFEST).write_text(json.dumps(body))
    real, room = shutil.disk_usage, last.stat().st_size + 1000

    def usage(path: Path) -> Any:  # noqa: ANN401 - what shutil has for it
        return real(path)._replace(free=1000 if last.exists() else room)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert convert(source.path, out, chosen).files == [last.name]
    assert weight_files(out) == wanted


def test_a_full_disk_is_named_and_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_source(tmp_path / "source")
    chosen = options(shard_bytes=SHARD_BYTES)
    calls = 0
    real = os.fsync

    def fails_later(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails_later)
    with pytest.raises(ConversionError, match=r"the disk of .* is full"):
        convert(source.path, tmp_path / "out", chosen)
    assert not list((tmp_path / "out").glob(".*.partial"))
    monkeypatch.undo()
    convert(source.path, tmp_path / "out", chosen)
    convert(source.path, tmp_path / "again", chosen)
    assert weight_files(tmp_path / "out") == weight_files(tmp_path / "again")
