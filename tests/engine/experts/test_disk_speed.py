"""Measuring a disk: cold bytes that are there, each once, and a choice that follows the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from colibri_engine.experts.disk_choice import choose
from colibri_engine.experts.disk_speed import (
    Access,
    Load,
    Rate,
    drop_cached,
    is_on_disk,
    measure,
    spread,
)
from tests.engine.experts.conftest import FILE_BYTES, PART

KIB = 1 << 10


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "buffered"])
def test_a_rate_counts_every_byte_once(path: Path, is_direct: bool) -> None:
    load = Load(256 * KIB, 4)
    offsets = spread(FILE_BYTES, load, 50, seed=1)
    rate = measure(path, offsets, load, Access("threads", is_direct), seconds=60)
    assert rate.nbytes == 50 * 256 * KIB
    assert rate.seconds > 0
    assert rate.load is load
    assert rate.access.mode == "threads"
    assert rate.bytes_per_s == rate.nbytes / rate.seconds


def test_no_read_begins_after_the_time(path: Path) -> None:
    load = Load(4096, 2)
    offsets = spread(FILE_BYTES, load, 1 << 20, seed=1)
    rate = measure(path, offsets, load, Access("threads", True), seconds=0)
    assert rate.nbytes == 0
    assert rate.bytes_per_s == 0


def test_a_file_that_ends_too_early_is_an_error_with_its_name(path: Path) -> None:
    load = Load(PART, 2)
    with pytest.raises(OSError, match=r"records\.bin"):
        measure(path, [23 * PART, 24 * PART], load, Access("threads", True), seconds=5)


def test_reads_are_spread_over_the_file_without_meeting() -> None:
    load = Load(5 * 4096, 1)
    offsets = spread(1000 * 4096 + 17, load, 100, seed=3)
    assert len(set(offsets)) == 100
    assert all(offset % load.read_bytes == 0 for offset in offsets)
    assert max(offsets) + load.read_bytes <= 1000 * 4096
    assert max(offsets) > 500 * 4096
    assert offsets != sorted(offsets)
    in_order = spread(1000 * 4096, load._replace(is_random=False), 100, seed=3)
    assert in_order == [i * load.read_bytes for i in range(100)]
    assert len(spread(100 * 4096, load, 1000, seed=3)) == 20
    assert spread(4096, load, 5, seed=3) == []


def test_holes_are_told_from_bytes(path: Path, tmp_path: Path) -> None:
    holes = tmp_path / "holes"
    with holes.open("wb") as file:
        file.truncate(1 << 26)
    assert is_on_disk(path)
    assert not is_on_disk(holes)


def test_what_was_dropped_is_cold_and_what_is_used_again_is_not(path: Path) -> None:
    with path.open("rb") as file:  # dirty pages stay
        import os

        os.fsync(file.fileno())
    if not drop_cached(path, [0], FILE_BYTES):
        pytest.skip("hardware: this folder is in memory")
    from colibri_engine.experts import disk_speed

    with path.open("rb") as file:
        number = file.fileno()
        file.read()
        assert disk_speed._is_cached(number, 5 * PART)
        assert drop_cached(path, [0], FILE_BYTES)
        assert not disk_speed._is_cached(number, 5 * PART)


def rate(mode: str, is_direct: bool, gb_per_s: float, is_cold: bool = True) -> Rate:
    nbytes = round(gb_per_s * 1e9)
    return Rate(Access(mode, is_direct), Load(PART, 8), nbytes, 1.0, is_cold)


@pytest.mark.parametrize(
    ("figures", "chosen"),
    [
        ([2.0, 1.0, 2.0, 1.0], ("io_uring", True)),
        ([1.0, 2.0, 1.0, 1.5], ("io_uring", False)),
        ([1.0, 1.0, 3.0, 1.0], ("threads", True)),
        ([1.96, 2.0, 1.99, 2.0], ("io_uring", True)),  # no difference worth a copy
        ([1.8, 1.9, 1.9, 2.0], ("threads", True)),
    ],
)
def test_the_choice_follows_the_figures(figures: list[float], chosen: tuple[str, bool]) -> None:
    ways = [("io_uring", True), ("io_uring", False), ("threads", True), ("threads", False)]
    rates = [rate(*way, figure) for way, figure in zip(ways, figures, strict=True)]
    choice = choose(rates)
    assert choice.access == chosen
    assert f"{choice.bytes_per_s / 1e9:.2f} GB/s against" in choice.reason


def test_a_choice_tells_of_figures_from_memory() -> None:
    choice = choose([rate("threads", True, 2.0), rate("threads", False, 9.0, is_cold=False)])
    assert "memory" in choice.reason
    assert "memory" not in choose([rate("threads", True, 2.0)]).reason
