"""`coli bench disk` as a process, over the engine's own job."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

QUICK = ("--seconds", "0.05", "--file-size", "4M", "--read", "64K,128K", "--depth", "1,4")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def test_every_way_to_read_is_measured_and_one_is_chosen(coli: CommandLine, disk: Path) -> None:
    done = coli.run("bench", "disk", str(disk), *QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("read", "at", "a", "time", "order", "through", "page", "cache", "GB/s")
    ]
    assert "64 KiB" in done.stdout
    assert "128 KiB" in done.stdout
    chosen = [line for line in lines if "the engine takes" in line]
    assert [line.split(":")[0] for line in chosen] == ["reads of 64 KiB", "reads of 128 KiB"]
    assert all("GB/s against" in line for line in chosen)
    assert list(disk.iterdir()) == []


def test_the_figures_are_one_document(coli: CommandLine, disk: Path) -> None:
    for arguments in (
        ("--json", "bench", "disk", str(disk)),
        ("bench", "--json", "disk", str(disk)),
        ("bench", "disk", str(disk), "--json"),
    ):
        body = json.loads(coli.run(*arguments, *QUICK).stdout)
        assert body["schema_version"] == 1
        rates = body["rates"]
        ways = {(rate["mode"], rate["direct"]) for rate in rates}
        assert {("threads", True), ("threads", False)} <= ways
        assert {rate["pattern"] for rate in rates} == {"random", "sequential"}
        assert {rate["depth"] for rate in rates} == {1, 4}
        assert len(rates) == 2 * 2 * 2 * len(ways)
        for rate in rates:
            assert rate["bytes"] % rate["read_bytes"] == 0
            assert rate["bytes_per_s"] == pytest.approx(rate["bytes"] / rate["seconds"], rel=1e-3)
        assert [choice["read_bytes"] for choice in body["choices"]] == [65536, 131072]


def test_large_weight_files_are_read_and_nothing_is_written(coli: CommandLine, disk: Path) -> None:
    weights = disk / "model-00001-of-00001.safetensors"
    weights.write_bytes(bytes(range(256)) * (6 << 12))
    (disk / "holes.safetensors").touch()
    with (disk / "holes.safetensors").open("r+b") as file:
        file.truncate(1 << 30)  # reading it would measure memory
    before = weights.stat()
    disk.chmod(0o555)
    body = json.loads(coli.run("bench", "disk", str(disk), "--json", *QUICK).stdout)
    disk.chmod(0o755)
    assert body["file"] == {"path": str(weights), "bytes": before.st_size}
    assert weights.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--read", "5000"), ["--read", "multiple of 4096", "4096 or 8192"]),
        (("--read", "much"), ["--read", "'much'", "20M"]),
        (("--depth", "0"), ["--depth", "1..1024"]),
        (("--seconds", "0"), ["--seconds", "0.05..60"]),
        (("--file-size", "1000000G"), ["--file-size", "1000000G"]),
        (("--file-size", "900G"), ["bytes free", "quarter", "--file-size"]),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(
    coli: CommandLine, disk: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    done = coli.run("bench", "disk", str(disk), *arguments)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert list(disk.iterdir()) == []


def test_a_directory_that_is_none_and_options_of_the_models_bench_are_refused(
    coli: CommandLine, disk: Path
) -> None:
    done = coli.run("bench", "disk", str(disk / "missing"))
    assert done.returncode == 2
    assert "missing is no directory" in done.stderr
    done = coli.run("bench", "--prompt", "5", "disk", str(disk))
    assert done.returncode == 2
    assert "does not take --prompt" in done.stderr


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ended_measurement_leaves_no_file(
    coli: CommandLine, disk: Path, how: signal.Signals, code: int
) -> None:
    process = coli.start("bench", "disk", str(disk), "--seconds", "20", "--file-size", "8M")
    time.sleep(1.5)  # somewhere in it
    process.send_signal(how)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in stderr
    assert list(disk.iterdir()) == []
