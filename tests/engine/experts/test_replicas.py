"""Copies on further disks: which are admitted, who gives what, errors that are mended."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from colibri_engine.engine_config import ReadConfig
from colibri_engine.errors import SettingsError
from colibri_engine.experts import replicas
from colibri_engine.experts.record_reader import RecordReader, open_reader
from colibri_engine.experts.records import RecordPlace
from colibri_engine.experts.replicas import choose, find_copies, thresholds
from colibri_engine.kernels import ReadCompletion, ReadPriority, SlotArena

KIB = 1 << 10
RECORD = 64 * KIB
NUM_RECORDS = 40
HEADER = b'{"a":{}}'
START = 4096

Bytes = npt.NDArray[np.uint8]


def write_shard(path: Path, body: Bytes, header: bytes = HEADER) -> Path:
    path.parent.mkdir(exist_ok=True)
    head = len(header).to_bytes(8, "little") + header
    path.write_bytes(head + bytes(START - len(head)) + body.tobytes())
    return path


@pytest.fixture
def body(rng: np.random.Generator) -> Bytes:
    return rng.integers(0, 256, NUM_RECORDS * RECORD, dtype=np.uint8)


@pytest.fixture
def own(tmp_path: Path, body: Bytes) -> Path:
    return write_shard(tmp_path / "model" / "a.safetensors", body)


@pytest.fixture
def _unlike_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admit copies of other weights: so it is seen which disk gave what."""
    monkeypatch.setattr(replicas, "_NUM_SAMPLES", 0)


def read_all(
    reader: RecordReader, arena: SlotArena, record: int = RECORD, count: int = NUM_RECORDS
) -> list[ReadCompletion]:
    for number in range(count):
        place = RecordPlace(0, START + number * record)
        reader.submit(number, place, record, arena, number)
    found: list[ReadCompletion] = []
    while len(found) < count:
        found += reader.wait(20)
    return sorted(found, key=lambda completion: completion.tag)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# ---- admission ----------------------------------------------------------------------------------


def test_a_copy_with_the_same_size_and_header_is_admitted(own: Path, tmp_path: Path) -> None:
    other = own.parent / "b.safetensors"
    other.write_bytes(own.read_bytes())
    copy = tmp_path / "mirror" / own.name
    copy.parent.mkdir()
    copy.write_bytes(own.read_bytes())
    assert find_copies([own, other], [copy.parent]) == [[copy], [None]]
    assert find_copies([own], []) == [[]]


def test_what_differs_is_not_admitted_and_said(
    own: Path, body: Bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = own.parent / "b.safetensors"
    other.write_bytes(own.read_bytes())
    mirror = tmp_path / "mirror"
    copy = write_shard(mirror / "b.safetensors", body)
    write_shard(mirror / own.name, body[:-1])
    assert find_copies([own, other], [mirror]) == [[None], [copy]]
    size = own.stat().st_size
    assert f"a.safetensors has {size - 1} bytes, the model's {size}" in warnings(caplog)[0]
    caplog.clear()
    write_shard(mirror / own.name, body, header=HEADER.replace(b"a", b"b"))
    assert find_copies([own, other], [mirror]) == [[None], [copy]]
    assert "the header of a.safetensors differs" in warnings(caplog)[0]


def test_a_copy_of_other_weights_is_not_admitted(own: Path, body: Bytes, tmp_path: Path) -> None:
    copy = write_shard(tmp_path / "mirror" / own.name, ~body)
    with pytest.raises(SettingsError, match=r"a\.safetensors has other weights than the model"):
        find_copies([own], [copy.parent])


def test_a_mirror_that_gives_nothing_is_refused_by_name(
    own: Path, body: Bytes, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    for problem in ("is no directory", "holds none of 1 files", "bytes, the model's"):
        with pytest.raises(SettingsError, match=f"COLI_MODEL_MIRROR: .*mirror.*{problem}"):
            find_copies([own], [mirror])
        if mirror.exists():
            write_shard(mirror / own.name, body[:-1])
        mirror.mkdir(exist_ok=True)
    with pytest.raises(SettingsError, match="own file, no copy"):
        find_copies([own], [own.parent])
    write_shard(mirror / own.name, body)
    with pytest.raises(SettingsError, match="mirror is named twice"):
        find_copies([own], [mirror, mirror.parent / "model" / ".." / "mirror"])
    with pytest.raises(SettingsError, match="5 directories, at most 4"):
        find_copies([own], [mirror] * 5)


# ---- shares -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ([1.0], [1.0]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([3.0, 1.0], [0.75, 0.25]),
        ([0.0, 1.0, 1.0], [0.0, 0.5, 0.5]),
        ([1e9, 2.5e9, 0.0], [0.286, 0.714, 0.0]),
    ],
)
def test_experts_are_shared_out_by_weight(weights: list[float], shares: list[float]) -> None:
    ends = thresholds(weights)
    chosen = [choose(file, e * 20480, ends) for file in range(40) for e in range(256)]
    for place, share in enumerate(shares):
        assert chosen.count(place) / len(chosen) == pytest.approx(share, abs=0.02)
    # Within a layer, too: its experts lie side by side.
    some = [choose(3, e * 20480, ends) for e in range(256)]
    for place, share in enumerate(shares):
        assert some.count(place) / 256 == pytest.approx(share, abs=0.12)


def test_an_expert_always_has_the_same_disk() -> None:
    ends = thresholds([1, 1, 1, 1, 1])
    assert [choose(1, e * 8192, ends) for e in range(99)] == [
        choose(1, e * 8192, ends) for e in range(99)
    ]


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_unlike_copies")
def test_records_come_from_both_disks(own: Path, body: Bytes, tmp_path: Path) -> None:
    twisted = write_shard(tmp_path / "mirror" / own.name, ~body)  # to tell where a record came from
    config = ReadConfig(direct=True, mirrors=(twisted.parent,), weights=(1, 1))
    reader = open_reader([own], RECORD, config)
    arena = SlotArena(NUM_RECORDS, RECORD)
    assert not any(c.error for c in read_all(reader, arena))
    records = body.reshape(NUM_RECORDS, RECORD)
    from_own = sum(bool((arena.array(n) == records[n]).all()) for n in range(NUM_RECORDS))
    from_copy = sum(bool((arena.array(n) == ~records[n]).all()) for n in range(NUM_RECORDS))
    assert from_own + from_copy == NUM_RECORDS
    assert from_own >= 5
    assert from_copy >= 5
    reader.close()


@pytest.mark.usefixtures("_unlike_copies")
@pytest.mark.parametrize("weights", [(0, 1), (1, 0)])
def test_a_disk_without_weight_gives_nothing(
    own: Path, body: Bytes, tmp_path: Path, weights: tuple[float, float]
) -> None:
    twisted = write_shard(tmp_path / "mirror" / own.name, ~body)
    config = ReadConfig(direct=False, mirrors=(twisted.parent,), weights=weights)
    reader = open_reader([own], RECORD, config)
    arena = SlotArena(NUM_RECORDS, RECORD)
    read_all(reader, arena)
    expected = body if weights[0] else ~body
    np.testing.assert_array_equal(
        np.concatenate([arena.array(n) for n in range(NUM_RECORDS)]), expected
    )
    reader.close()


def test_an_error_of_a_mirror_is_mended_from_the_own_file_and_said_once(
    own: Path, body: Bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = write_shard(tmp_path / "mirror" / own.name, body)
    config = ReadConfig(direct=True, mirrors=(copy.parent,), weights=(1, 3))
    reader = open_reader([own], RECORD, config)
    os.truncate(copy, START)
    arena = SlotArena(NUM_RECORDS, RECORD)
    completions = read_all(reader, arena)
    assert [c.tag for c in completions] == list(range(NUM_RECORDS))
    assert not any(c.error for c in completions)
    np.testing.assert_array_equal(
        np.concatenate([arena.array(n) for n in range(NUM_RECORDS)]), body
    )
    [warning] = warnings(caplog)
    assert str(copy) in warning
    assert "ends too early" in warning
    mended = reader.num_mended
    assert mended >= 10
    assert not any(c.error for c in read_all(reader, arena))  # the copy is not asked any more
    assert reader.num_mended == mended
    reader.close()


def test_an_error_of_the_own_file_is_the_readers(
    own: Path, body: Bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = write_shard(tmp_path / "mirror" / own.name, body)
    reader = open_reader(
        [own], RECORD, ReadConfig(direct=True, mirrors=(copy.parent,), weights=(1, 1))
    )
    os.truncate(own, START)
    arena = SlotArena(NUM_RECORDS, RECORD)
    completions = read_all(reader, arena)
    assert 5 <= sum(bool(c.error) for c in completions) <= NUM_RECORDS - 5
    assert not warnings(caplog)
    os.truncate(copy, START)  # then nobody has it
    assert all(c.error for c in read_all(reader, arena))
    reader.close()


@pytest.mark.usefixtures("_unlike_copies")
def test_large_records_come_in_parts_from_all_disks_that_are_alike(
    rng: np.random.Generator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record, count = 4 << 20, 4
    body = rng.integers(0, 256, record * count, dtype=np.uint8)
    own = write_shard(tmp_path / "model" / "a.safetensors", body)
    copy = write_shard(tmp_path / "mirror" / "a.safetensors", ~body)
    arena = SlotArena(count, record)

    def parts_from_own(weights: tuple[float, float]) -> list[list[bool]]:
        config = ReadConfig(direct=True, mirrors=(copy.parent,), weights=weights)
        reader = open_reader([own], record, config)
        assert not any(c.error for c in read_all(reader, arena, record, count))
        reader.close()
        return [
            [
                bool((part == wanted).all())
                for part, wanted in zip(
                    arena.array(n).reshape(4, -1),
                    body[n * record : (n + 1) * record].reshape(4, -1),
                    strict=True,
                )
            ]
            for n in range(count)
        ]

    assert parts_from_own((1, 0.9)) == [[True, False, True, False]] * count
    for parts in parts_from_own((1, 0.5)):  # one of them would be waited for
        assert len(set(parts)) == 1
    config = ReadConfig(direct=True, mirrors=(copy.parent,), weights=(1, 1))
    reader = open_reader([own], record, config)
    os.truncate(copy, START + record)
    assert not any(c.error for c in read_all(reader, arena, record, count))
    np.testing.assert_array_equal(arena.array(2), body[2 * record : 3 * record])
    assert len(warnings(caplog)) == 1
    reader.close()


def test_cancelled_and_promoted_reads_of_a_mirror(own: Path, body: Bytes, tmp_path: Path) -> None:
    copy = write_shard(tmp_path / "mirror" / own.name, body)
    config = ReadConfig("threads", 1, direct=True, mirrors=(copy.parent,), weights=(0, 1))
    reader = open_reader([own], RECORD, config)
    os.truncate(copy, START)
    arena = SlotArena(1, RECORD)
    for tag in range(200):
        reader.submit(
            tag, RecordPlace(0, START), RECORD, arena, 0, priority=ReadPriority.SPECULATIVE
        )
    reader.promote(199, ReadPriority.DEMAND)  # if it is still open
    gone = {tag for tag in range(199) if reader.cancel(tag)}
    found: list[ReadCompletion] = []
    while len(found) < 200 - len(gone):
        found += reader.wait(20)
    assert {c.tag for c in found} == set(range(200)) - gone
    assert not any(c.error for c in found)
    assert reader.wait(5) == []
    reader.close()


@pytest.mark.skipif(not Path("/proc/kallsyms").exists(), reason="hardware: no /proc")
def test_a_file_system_without_direct_reads_is_read_all_the_same_and_said_once(
    own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arena = SlotArena(1, 4096)
    refusing = Path("/proc/kallsyms")  # its file system opens nothing for direct reads
    reader = open_reader([refusing, refusing], 4096, ReadConfig(direct=True))
    assert not reader.is_direct(0)
    for tag in range(3):
        reader.submit(tag, RecordPlace(tag % 2, 0), 4096, arena, 0)
        [completion] = reader.wait(20)
        assert (completion.error, completion.direct) == (0, False)
    [warning] = warnings(caplog)
    assert str(refusing) in warning
    assert "reads are buffered" in warning
    reader.close()
    caplog.clear()
    for direct in (False, True):
        open_reader([own], RECORD, ReadConfig(direct=direct)).close()
    assert warnings(caplog) == []


@pytest.mark.parametrize("mode", ["auto", "threads"])
def test_the_depth_that_was_asked_for_is_taken_in_every_mode(own: Path, mode: str) -> None:
    reader = open_reader([own], RECORD, ReadConfig(mode, 3, direct=True))
    assert reader.depth == 3
    reader.close()
    reader = open_reader([own], RECORD, ReadConfig(mode, direct=True))
    assert reader.depth == (32 if reader.mode == "io_uring" else 8)
    reader.close()
