"""The bytes of a file with one conversation; see docs/formats.md, "Saved conversations".

    0      header, 4096 bytes: what the rows were computed with
    4096   count, 512 bytes: how many rows are valid, and which states; then zeros up to 8192
    8192   room for eight recurrent states (none without state)
    then   records: token id, row, running checksum

Every checksum is a CRC-32 that goes on from the one before it, from the header through all records,
so a row is good only behind exactly the rows it was computed from. Knows no files.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from colibri_engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Records = npt.NDArray[np.float32]

MAGIC: Final = b"COLI-KV\0"
VERSION: Final = 1
HEADER_BYTES: Final = 4096
COUNT_BYTES: Final = 512  # one sector, which a disk writes whole or not at all
STATES_AT: Final = 8192
NUM_STATES: Final = 8  # a cache keeps four; those of the last count stay while new ones come
_HEAD: Final = struct.Struct("<8sII")
_COUNT: Final = struct.Struct("<QQQI")
_STATE: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")


class Unusable(EngineError):
    """A file that cannot be gone on from; the message says why."""

    default_code = "saved_conversation_unusable"


class RowShape(NamedTuple):
    """Sizes of what a cache keeps.

    Args:
        row_dim: Floats of one position.
        state_dim: Floats of recurrent state.
    """

    row_dim: int
    state_dim: int

    @property
    def record_dim(self) -> int:
        """Words of four bytes of a record."""
        return self.row_dim + 2

    @property
    def record_bytes(self) -> int:
        """Bytes of a record."""
        return 4 * self.record_dim

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


def pack_header(identity: Mapping[str, object]) -> bytes:
    """Return the header page of an identity."""
    text = json.dumps(identity, ensure_ascii=True).encode()
    page = _HEAD.pack(MAGIC, VERSION, len(text)) + text
    if len(page) > HEADER_BYTES - _CRC.size:
        raise ValueError(f"an identity of {len(text)} bytes does not fit the header")
    return _sealed(page, HEADER_BYTES, 0)


def header_checksum(page: bytes) -> int:
    """Return where the running checksum of the rest begins."""
    return int(_CRC.unpack(page[-_CRC.size :])[0])


def unpack_header(page: bytes) -> dict[str, object]:
    """Return the identity that a header page holds.

    Raises:
        Unusable: It is damaged, or of another version of the format.
    """
    if len(page) < HEADER_BYTES:
        raise Unusable(f"it is cut short: {len(page)} bytes are less than its header")
    magic, version, size = _HEAD.unpack_from(page)
    if magic != MAGIC:
        raise Unusable("it is no file of saved conversations")
    if version != VERSION:
        raise Unusable(f"it has version {version} of the format, this program reads {VERSION}")
    if not _is_sealed(page, 0):
        raise Unusable("its header is damaged")
    try:
        found = json.loads(page[_HEAD.size : _HEAD.size + size])
    except (ValueError, RecursionError) as exc:  # a checksum is soon made
        raise Unusable("its header is no JSON") from exc
    if not isinstance(found, dict):
        raise Unusable("its header is no JSON object")
    return found


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
        records: (n, record_dim), whose last column is written.
        seed: The checksum before the first.
    """
    checksums = running_checksums(records, seed)
    records.view(np.uint32)[:, -1] = checksums
    return checksums


def running_checksums(records: Records, seed: int) -> list[int]:
    """Return the running checksum after each of (n, record_dim) records."""
    data = records.reshape(-1).view(np.uint8).data
    size = 4 * records.shape[1]
    checksums = []
    for begin in range(0, data.nbytes, size):
        seed = zlib.crc32(data[begin : begin + size - _CRC.size], seed)
        checksums.append(seed)
    return checksums


def state_checksum(state: npt.NDArray[np.float32], length: int, seed: int) -> int:
    """Return the checksum of the state of `length` rows, whose own is `seed`."""
    return zlib.crc32(state.view(np.uint8).data, zlib.crc32(struct.pack("<Q", length), seed))


def _sealed(body: bytes, size: int, seed: int) -> bytes:
    page = body.ljust(size - _CRC.size, b"\0")
    return page + _CRC.pack(zlib.crc32(page, seed))


def _is_sealed(page: bytes, seed: int) -> bool:
    return header_checksum(page) == zlib.crc32(page[: -_CRC.size], seed)
