"""The bytes of a file with one conversation; see docs/formats.md, "Saved conversations".

    0      header, 4096 bytes: what the rows were computed with
    4096   count, 512 bytes: how many rows are valid, and which states; then zeros up to 8192
    8192   room for eight recurrent states (none without state)
    then   records: token id, row, running checksum

Every checksum is a CRC-32 that goes on from the one before it, from the header through all records,
so a row is good only behind exactly the rows it was computed from. The version of the format tells
what the numbers of a row are: floats in the first, bf16 in the second. Knows no files.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from colibri_engine.errors import EngineError
from colibri_engine.quant.base import bf16_to_f32

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from colibri_engine.kernels import KvCache

    Records = npt.NDArray[np.uint8]

MAGIC: Final = b"COLI-KV\0"
FLOATS: Final = 1  # versions of the format
HALVES: Final = 2
HEADER_BYTES: Final = 4096
COUNT_BYTES: Final = 512  # one sector, which a disk writes whole or not at all
STATES_AT: Final = 8192
NUM_STATES: Final = 8  # a cache keeps four; those of the last count stay while new ones come
_HEAD: Final = struct.Struct("<8sII")
_COUNT: Final = struct.Struct("<QQQI")
_STATE: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_ID: Final = struct.Struct("<i")
_UPPER: Final = 16  # bits of a float that bf16 leaves out


class Unusable(EngineError):
    """A file that cannot be gone on from; the message says why."""

    default_code = "saved_conversation_unusable"


class RowReader(Protocol):
    """What gives the rows of a cache; see `colibri_engine.kernels.KvReader`."""

    def read_rows(self, begin: int, out: npt.NDArray[np.float32], /) -> None:
        """Fill rows from position `begin` on."""


class RowShape(NamedTuple):
    """Sizes of what a cache keeps.

    Args:
        row_dim: Floats of one position.
        state_dim: Floats of recurrent state.
        is_half: Whether numbers of a position are kept as bf16.
    """

    row_dim: int
    state_dim: int
    is_half: bool = False

    @classmethod
    def of(cls, cache: KvCache) -> RowShape:
        """Return the sizes of a cache."""
        return cls(cache.row_dim, cache.state_dim, cache.dtype == "bf16")

    @property
    def version(self) -> int:
        """Version of the format that holds such rows."""
        return HALVES if self.is_half else FLOATS

    @property
    def row_bytes(self) -> int:
        """Bytes of one position."""
        return (2 if self.is_half else 4) * self.row_dim

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return _ID.size + self.row_bytes + _CRC.size

    def records(self, count: int) -> Records:
        """Return room for (count, record_bytes) uint8."""
        return np.empty((count, self.record_bytes), np.uint8)

    @property
    def state_bytes(self) -> int:
        """Bytes of a state."""
        return 4 * self.state_dim

    def state_at(self, place: int) -> int:
        """Return where a state begins in the file."""
        return STATES_AT + place * self.state_bytes

    def record_at(self, position: int) -> int:
        """Return where a record begins in the file."""
        return STATES_AT + NUM_STATES * self.state_bytes + position * self.record_bytes


class SavedState(NamedTuple):
    """Where a recurrent state is; length 0: nowhere."""

    length: int
    checksum: int


NO_STATE: Final = SavedState(0, 0)


@dataclass(frozen=True, slots=True)
class Count:
    """What of a file is valid.

    Args:
        length: Records.
        checksum: The running one after the last of them; the header's when there are none.
        context_length: Positions of the slot that wrote it.
        saved_at: Nanoseconds since 1970.
        states: What each place of a state holds.
    """

    length: int
    checksum: int
    context_length: int
    saved_at: int = 0
    states: tuple[SavedState, ...] = (NO_STATE,) * NUM_STATES


def pack_header(identity: Mapping[str, object], version: int) -> bytes:
    """Return the header page of an identity and a version of the format."""
    text = json.dumps(identity, ensure_ascii=True).encode()
    page = _HEAD.pack(MAGIC, version, len(text)) + text
    if len(page) > HEADER_BYTES - _CRC.size:
        raise ValueError(f"an identity of {len(text)} bytes does not fit the header")
    return _sealed(page, HEADER_BYTES, 0)


def header_checksum(page: bytes) -> int:
    """Return where the running checksum of the rest begins."""
    return int(_CRC.unpack(page[-_CRC.size :])[0])


def unpack_header(page: bytes) -> tuple[int, dict[str, object]]:
    """Return the version of the format and the identity that a header page holds.

    Raises:
        Unusable: It is damaged, or of another version of the format.
    """
    if len(page) < HEADER_BYTES:
        raise Unusable(f"it is cut short: {len(page)} bytes are less than its header")
    magic, version, size = _HEAD.unpack_from(page)
    if magic != MAGIC:
        raise Unusable("it is no file of saved conversations")
    if version not in {FLOATS, HALVES}:
        raise Unusable(
            f"it has version {version} of the format, this program reads {FLOATS} and {HALVES}"
        )
    if not _is_sealed(page, 0):
        raise Unusable("its header is damaged")
    try:
        found = json.loads(page[_HEAD.size : _HEAD.size + size])
    except (ValueError, RecursionError) as exc:  # a checksum is soon made
        raise Unusable("its header is no JSON") from exc
    if not isinstance(found, dict):
        raise Unusable("its header is no JSON object")
    return int(version), found


def pack_count(count: Count, seed: int) -> bytes:
    """Return the count as a sector; `seed` is the header's checksum."""
    body = _COUNT.pack(count.length, count.context_length, count.saved_at, count.checksum)
    body += b"".join(_STATE.pack(*state) for state in count.states)
    return _sealed(body, COUNT_BYTES, seed)


def unpack_count(sector: bytes, seed: int) -> Count:
    """Return what a sector counts.

    Raises:
        Unusable: It is damaged, or belongs to another header.
    """
    if len(sector) < COUNT_BYTES or not _is_sealed(sector, seed):
        raise Unusable("its count is damaged")
    length, context_length, saved_at, checksum = _COUNT.unpack_from(sector)
    states = tuple(
        SavedState(*_STATE.unpack_from(sector, _COUNT.size + place * _STATE.size))
        for place in range(NUM_STATES)
    )
    return Count(length, checksum, context_length, saved_at, states)


def seal_records(records: Records, seed: int) -> list[int]:
    """Write the running checksum into each record; return all of them.

    Args:
        records: (n, record_bytes) uint8, whose last four columns are written.
        seed: The checksum before the first.
    """
    checksums = running_checksums(records, seed)
    stored_checksums(records)[:] = checksums
    return checksums


def running_checksums(records: Records, seed: int) -> list[int]:
    """Return the running checksum after each of (n, record_bytes) records."""
    data = records.reshape(-1).data
    size = records.shape[1]
    checksums = []
    for begin in range(0, data.nbytes, size):
        seed = zlib.crc32(data[begin : begin + size - _CRC.size], seed)
        checksums.append(seed)
    return checksums


def record_ids(records: Records) -> npt.NDArray[np.int32]:
    """Return the token ids (n,) of records; a view."""
    return records[:, : _ID.size].view(np.int32)[:, 0]


def stored_checksums(records: Records) -> npt.NDArray[np.uint32]:
    """Return the checksums (n,) of records; a view."""
    return records[:, -_CRC.size :].view(np.uint32)[:, 0]


def put_rows(reader: RowReader, begin: int, records: Records, shape: RowShape) -> None:
    """Fill the rows of records with those of a cache from position `begin` on."""
    row = records[:, _ID.size : -_CRC.size]
    if not shape.is_half:
        reader.read_rows(begin, row.view(np.float32))
        return
    floats = np.empty((len(records), shape.row_dim), np.float32)
    reader.read_rows(begin, floats)
    row.view(np.uint16)[:] = floats.view(np.uint32) >> _UPPER  # what is left out is zero


def rows_in(records: Records, shape: RowShape) -> npt.NDArray[np.float32]:
    """Return the rows (n, row_dim) of records; a view where they are floats."""
    row = records[:, _ID.size : -_CRC.size]
    if not shape.is_half:
        return row.view(np.float32)
    return bf16_to_f32(row.view(np.uint16))


def state_checksum(state: npt.NDArray[np.float32], length: int, seed: int) -> int:
    """Return the checksum of the state of `length` rows, whose own is `seed`."""
    return zlib.crc32(state.view(np.uint8).data, zlib.crc32(struct.pack("<Q", length), seed))


def _sealed(body: bytes, size: int, seed: int) -> bytes:
    page = body.ljust(size - _CRC.size, b"\0")
    return page + _CRC.pack(zlib.crc32(page, seed))


def _is_sealed(page: bytes, seed: int) -> bool:
    return header_checksum(page) == zlib.crc32(page[: -_CRC.size], seed)
