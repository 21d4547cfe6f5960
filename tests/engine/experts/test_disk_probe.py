"""What a start measures of a disk: little, once a week, and never at the cost of starting."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from colibri_engine.engine_config import ReadConfig
from colibri_engine.experts import disk_probe, disk_speed
from colibri_engine.experts.disk_probe import probe_disks
from colibri_engine.experts.record_reader import open_reader

RECORD = 256 << 10


def measured(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with every measurement."""
    calls: list[object] = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return disk_speed.measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(disk_probe, "measure", counted)
    return calls


def test_one_measurement_each_way_serves_all_files_of_a_disk(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "small.bin"
    other.write_bytes(b"x")
    calls = measured(monkeypatch)
    started = time.perf_counter()
    found = probe_disks([other, path], RECORD, "threads", None)
    assert time.perf_counter() - started < 60
    assert len(calls) == 2
    assert set(found) == {path, other}
    assert found[path] is found[other]
    assert found[path].bytes_per_s > 0
    assert found[path].access.mode == "threads"
    assert "GB/s" in found[path].reason


def test_a_measurement_is_kept_for_its_disk_size_and_way(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "state" / "disks.json"
    first = probe_disks([path], RECORD, "threads", cache)[path]
    calls = measured(monkeypatch)
    again = probe_disks([path], RECORD, "threads", cache)[path]
    assert calls == []
    assert again.access == first.access
    assert again.bytes_per_s == pytest.approx(first.bytes_per_s, abs=1)
    assert "measured before" in again.reason
    assert list(cache.parent.iterdir()) == [cache]
    probe_disks([path], RECORD * 2, "threads", cache)
    assert len(calls) == 2
    assert len(json.loads(cache.read_text())["disks"]) == 2


@pytest.mark.parametrize(
    "damage", ["old", "future", "text", "list", "version", "fields", "many", "folder"]
)
def test_what_is_kept_is_not_believed_blindly(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    cache = tmp_path / "disks.json"
    probe_disks([path], RECORD, "threads", cache)
    body = json.loads(cache.read_text())
    [(key, entry)] = body["disks"].items()
    match damage:
        case "old":
            entry["at"] -= 8 * 24 * 3600
        case "future":
            entry["at"] += 3600
        case "version":
            body["version"] = 99
        case "fields":
            entry["bytes_per_s"] = "fast"
        case "many":
            body["disks"] = {f"{key}{i}": entry for i in range(1000)}
    text = {"text": "{", "list": "[1]"}.get(damage, json.dumps(body))
    cache.write_text(text)
    if damage == "folder":
        cache.unlink()
        cache.mkdir()
    calls = measured(monkeypatch)
    assert probe_disks([path], RECORD, "threads", cache)[path].bytes_per_s > 0
    assert len(calls) == 2


def test_a_file_that_tells_nothing_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small.bin"
    small.write_bytes(bytes(7 * RECORD))
    holes = tmp_path / "holes.bin"
    with holes.open("wb") as file:
        file.truncate(1 << 30)
    calls = measured(monkeypatch)
    assert probe_disks([small], RECORD, "threads", None) == {}
    assert probe_disks([holes], RECORD, "threads", None) == {}
    assert calls == []


def test_a_disk_that_fails_while_it_is_measured_does_not_keep_the_engine_from_starting(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cut(*arguments: object, **options: object) -> list[int]:
        os.truncate(path, 4096)
        return [i * RECORD for i in range(50)]

    monkeypatch.setattr(disk_probe, "spread", cut)
    assert probe_disks([path], RECORD, "threads", None) == {}
    assert "could not be measured" in caplog.text


def test_a_reader_measures_only_what_it_was_not_told(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    calls = measured(monkeypatch)
    mirrors = (copy.parent,)
    for config in (
        ReadConfig(direct=True),
        ReadConfig(direct=False),
        ReadConfig(direct=False, mirrors=mirrors, weights=(1, 1)),
    ):
        reader = open_reader([path], RECORD, config)
        assert reader.is_direct(0) <= bool(config.direct)
        reader.close()
    assert calls == []
    for config in (ReadConfig(), ReadConfig(direct=True, mirrors=mirrors)):
        open_reader([path], RECORD, config).close()
    assert len(calls) == 4
