"""The bytes of a file are those that docs/formats.md names."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from colibri_engine.kv_files.layout import Unusable, pack_header, unpack_header
from tests.engine.kv_files.file_rig import (
    HALVES,
    IDENTITY,
    RECURRENT,
    file_of,
    ids_of,
    read_back,
    rows_of,
    shape_of,
    state_of,
)
from tests.engine.kv_files.turns import Turn, save_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.kv_files.file_rig import Layouts


@pytest.mark.parametrize(
    ("layouts", "version", "number"),
    [(RECURRENT, 1, "<f4"), (HALVES, 2, "<u2")],
    ids=["f32", "bf16"],
)
def test_a_file_reads_as_the_document_says(
    layouts: Layouts, version: int, number: str, tmp_path: Path
) -> None:
    path = tmp_path / ".coli_kv"
    ids = ids_of(3)
    save_all(file_of(path, layouts), [Turn(ids, (2,))], layouts)
    data = path.read_bytes()

    assert data[:8] == b"COLI-KV\0"
    found_version, size = struct.unpack_from("<II", data, 8)
    assert found_version == version
    identity = json.loads(data[16 : 16 + size])
    assert identity == IDENTITY.as_dict()
    assert not any(data[16 + size : 4092])
    (header_sum,) = struct.unpack_from("<I", data, 4092)
    assert header_sum == zlib.crc32(data[:4092])

    length, context, saved_at, last_sum = struct.unpack_from("<QQQI", data, 4096)
    assert (length, context) == (3, 2000)
    assert saved_at > 10**18
    states = [struct.unpack_from("<QI", data, 4096 + 28 + 12 * place) for place in range(8)]
    assert not any(data[4096 + 28 + 96 : 4604])
    (count_sum,) = struct.unpack_from("<I", data, 4604)
    assert count_sum == zlib.crc32(data[4096:4604], header_sum)
    assert not any(data[4608:8192])

    shape = shape_of(layouts)
    records_at = 8192 + 8 * 4 * shape.state_dim
    record_bytes = 4 + np.dtype(number).itemsize * shape.row_dim + 4
    assert len(data) == records_at + 3 * record_bytes
    sums = [header_sum]
    for position in range(3):
        record = data[records_at + position * record_bytes :][:record_bytes]
        sums.append(zlib.crc32(record[:-4], sums[-1]))
        assert struct.unpack("<I", record[-4:])[0] == sums[-1]
        assert struct.unpack("<i", record[:4])[0] == ids[position]
        row = np.frombuffer(record[4:-4], number)
        if number == "<u2":  # the upper half of a float
            row = (row.astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(row, rows_of(ids, shape)[position])
    assert last_sum == sums[3]

    assert sorted(at for at, _ in states) == [0] * 6 + [2, 3]
    for place, (at, state_sum) in enumerate(states):
        if at:
            raw = data[8192 + place * 4 * shape.state_dim :][: 4 * shape.state_dim]
            assert np.array_equal(np.frombuffer(raw, "<f4"), state_of(ids[:at], shape))
            assert state_sum == zlib.crc32(raw, zlib.crc32(struct.pack("<Q", at), sums[at]))
    assert 0 < count_sum < 2**32


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b"\xff", b"[" * 4000, b"NaN", b"{}", b'{"program": ["1.2.3"]}']
)
def test_a_header_with_a_right_checksum_and_other_content_is_refused(text: bytes) -> None:
    page = struct.pack("<8sII", b"COLI-KV\0", 1, len(text)) + text
    page = page.ljust(4092, b"\0")
    page += struct.pack("<I", zlib.crc32(page))
    with pytest.raises(Unusable):
        IDENTITY.check(unpack_header(page)[1])


def test_a_count_with_a_right_checksum_and_absurd_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    save_all(file_of(path, RECURRENT), [Turn(ids_of(3), ())], RECURRENT)
    data = bytearray(path.read_bytes())
    (header_sum,) = struct.unpack_from("<I", data, 4092)
    for place, value in ((4096, 2**63), (4096, 4), (4096, 2), (4104, 2**63), (4096 + 28, 4)):
        changed = data.copy()
        struct.pack_into("<Q", changed, place, value)
        struct.pack_into("<I", changed, 4604, zlib.crc32(changed[4096:4604], header_sum))
        path.write_bytes(changed)
        with pytest.raises(Unusable):
            read_back(path, RECURRENT)


def test_an_identity_that_is_too_long_is_a_fault() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        pack_header({"model": "x" * 5000}, 1)
