"""One conversation on the disk: read whole, continued row by row, cut back where it turns.

What is valid is what the count says. Rows are on the disk before the count that makes them valid,
and a count that takes rows away is on the disk before others are written in their place, so a
process or a machine may stop at any moment. One thread at a time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from colibri_engine.kv_files.disk import DiskFile
from colibri_engine.kv_files.layout import (
    COUNT_BYTES,
    HEADER_BYTES,
    NO_STATE,
    NUM_STATES,
    STATES_AT,
    Count,
    SavedState,
    Unusable,
    header_checksum,
    pack_count,
    pack_header,
    record_ids,
    rows_in,
    running_checksums,
    seal_records,
    state_checksum,
    stored_checksums,
    unpack_count,
    unpack_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from colibri_engine.kv_files.identity import Identity
    from colibri_engine.kv_files.layout import Records, RowShape

    Ids = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.float32]

_PIECE_BYTES: Final = 4 << 20  # what is read, checked and written at a time


class Bounds(Protocol):
    """What a conversation must fit into."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    @property
    def context_length(self) -> int:
        """Positions of a slot."""


class ConversationFile:
    """The file of one slot, there or not yet there.

    Args:
        path: Its name.
        shape: Sizes of rows and states.
        identity: What the rows are computed with.
        bounds: What a conversation must fit into.
        disk: How files are reached.
    """

    def __init__(
        self,
        path: Path,
        shape: RowShape,
        identity: Identity,
        bounds: Bounds,
        disk: type[DiskFile] = DiskFile,
    ) -> None:
        self.path = path
        self.shape = shape
        self._identity = identity
        self._bounds = bounds
        self._disk = disk
        self._header = pack_header(identity.as_dict(), shape.version)
        self._seed = header_checksum(self._header)
        self._file: DiskFile | None = None
        self._count = Count(0, self._seed, bounds.context_length)
        self._is_count_sure = True  # the one on the disk is `_count`
        self._ids: Ids = np.empty(0, np.int32)  # of the records on the disk, counted or not
        self._checksums: list[int] = []

    @property
    def piece(self) -> int:
        """Records that are handled at a time."""
        return max(1, _PIECE_BYTES // self.shape.record_bytes)

    @property
    def ids(self) -> Ids:
        """Token ids of the records that are written."""
        return self._ids

    @property
    def num_usable(self) -> int:
        """Records that can be gone on from, whatever happens."""
        return self._usable(self._count)

    @property
    def saved_at(self) -> int:
        """Nanoseconds since 1970 at the last count."""
        return self._count.saved_at

    # ---- reading --------------------------------------------------------------------------------

    def open(self) -> int:
        """Open the file and check all but its rows; return how many can be gone on from, or 0.

        Raises:
            Unusable: It does not fit, or is damaged.
            OSError: It cannot be opened.
        """
        self._file = self._disk.open(self.path)
        try:
            self._count = self._read_head(self._file)
        except BaseException:
            self._drop()
            raise
        return self._usable(self._count)

    def read_into(self, cache: Any) -> Ids:  # noqa: ANN401 - the kernels' cache, or a test's
        """Append the rows to an empty cache; return their ids.

        Raises:
            Unusable: The file is damaged; the cache is then to be thrown away.
            OSError: It cannot be read.
            MemoryError: There is no room; as with Unusable.
        """
        try:
            self._ids = self._read_rows(cache)
            for length, state in self._read_states():
                cache.put_state(length, state)
        except BaseException:
            self._drop()
            raise
        return self._ids[: self._usable(self._count)]

    def _read_rows(self, cache: Any) -> Ids:  # noqa: ANN401
        count, ids = self._count, [np.empty(0, np.int32)]
        usable = self._usable(count)
        # One buffer for all pieces: fresh memory would cost as much as reading into it.
        buffer = self.shape.records(min(self.piece, count.length))
        for first in range(0, count.length, self.piece):
            records = self._read_records(first, buffer[: count.length - first])
            ids.append(record_ids(records).copy())
            cache.append_rows(rows_in(records[: max(0, usable - first)], self.shape))
        if self._checksum_at(count.length) != count.checksum:
            raise Unusable("its count does not belong to its rows")
        return np.concatenate(ids)

    def _read_head(self, file: DiskFile) -> Count:
        head = bytearray(STATES_AT)
        size = file.read(0, head)
        header = bytes(head[: min(size, HEADER_BYTES)])
        version, identity = unpack_header(header)
        self._identity.check(identity)
        if version != self.shape.version:
            raise Unusable(
                f"it has version {version} of the format, such rows are of {self.shape.version}"
            )
        if size < STATES_AT:
            raise Unusable(f"it is cut short: {size} bytes are less than its head")
        self._seed = header_checksum(header)
        count = unpack_count(bytes(head[HEADER_BYTES : HEADER_BYTES + COUNT_BYTES]), self._seed)
        if any(head[HEADER_BYTES + COUNT_BYTES :]):
            raise Unusable("its count is damaged")
        self._check_count(count, file.size)
        return count

    def _check_count(self, count: Count, size: int) -> None:
        if count.length == 0:
            return  # as it was made, or turned back to the beginning
        if count.context_length > self._bounds.context_length:
            raise Unusable(
                f"it was saved with a context of {count.context_length} tokens, "
                f"now there are {self._bounds.context_length}"
            )
        wanted = self.shape.record_at(count.length)
        if count.length > self._bounds.context_length or size < wanted:
            raise Unusable(f"it is cut short: {size} of {wanted} bytes")
        if any(state.length > count.length for state in count.states):
            raise Unusable("its count is damaged")

    def _usable(self, count: Count) -> int:
        """Return how many rows can be gone on from: those whose state is known."""
        if self.shape.state_dim == 0:
            return count.length
        return max(state.length for state in count.states)

    def _read_records(self, first: int, records: Records) -> Records:
        """Fill and check records from `first` on."""
        assert self._file is not None
        if self._file.read(self.shape.record_at(first), records) != records.nbytes:
            raise Unusable(f"it is cut short at token {first}")
        checksums = running_checksums(records, self._checksum_at(first))
        stored, ids = stored_checksums(records), record_ids(records)
        for position, checksum in enumerate(checksums):
            if checksum != stored[position]:
                raise Unusable(f"token {first + position} is damaged")
        if ids.min() < 0 or ids.max() >= self._bounds.vocab_size:
            raise Unusable("it holds tokens that the model does not have")
        self._checksums += checksums
        return records

    def _read_states(self) -> Iterable[tuple[int, Floats]]:
        assert self._file is not None
        found = sorted((s.length, place, s) for place, s in enumerate(self._count.states))
        for length, place, saved in found:
            if length == 0:
                continue
            state = np.empty(self.shape.state_dim, np.float32)
            self._file.read(self.shape.state_at(place), state)
            if state_checksum(state, length, self._checksum_at(length)) != saved.checksum:
                raise Unusable(f"its state at token {length} is damaged")
            yield length, state

    def _checksum_at(self, length: int) -> int:
        return self._checksums[length - 1] if length else self._seed

    # ---- writing --------------------------------------------------------------------------------

    def go_back(self, length: int) -> None:
        """Make the rows from `length` on invalid, on the disk too.

        Raises:
            OSError: That failed; what is valid is not known.
        """
        if length < self._count.length:
            assert self._file is not None
            states = tuple(s if s.length <= length else NO_STATE for s in self._count.states)
            self._write_count(
                replace(
                    self._count, length=length, checksum=self._checksum_at(length), states=states
                )
            )
        self._forget(length)
        if self._file is not None:
            self._file.cut(self.shape.record_at(length))

    def append(self, records: Records, ids: Ids) -> None:
        """Write records behind the others; they count from the next `commit` on.

        Args:
            records: (n, record_bytes) uint8 with their rows; ids and checksums are written here.
            ids: Their token ids (n,).
        """
        if self._file is None:
            self._create()
        assert self._file is not None
        record_ids(records)[:] = ids
        checksums = seal_records(records, self._checksum_at(self._ids.size))
        self._file.write(self.shape.record_at(self._ids.size), records)
        self._checksums += checksums
        self._ids = np.concatenate([self._ids, ids])

    def commit(self, states: Mapping[int, Floats]) -> None:
        """Make what was written valid.

        Args:
            states: Recurrent states by length, at most four; those that are there already are
                not written again.
        """
        assert self._file is not None
        length = self._ids.size
        kept = [s if s.length in states else NO_STATE for s in self._count.states]
        # A place that the count on the disk uses is not free before the next one is there.
        free = [p for p in range(NUM_STATES) if self._count.states[p] == NO_STATE]
        for at in sorted(set(states) - {s.length for s in kept}):
            place = free.pop()
            checksum = state_checksum(states[at], at, self._checksum_at(at))
            self._file.write(self.shape.state_at(place), states[at])
            kept[place] = SavedState(at, checksum)
        self._file.sync()
        self._write_count(
            Count(
                length,
                self._checksum_at(length),
                self._bounds.context_length,
                time.time_ns(),
                tuple(kept),
            )
        )

    def recover(self) -> bool:
        """Leave what is valid after something has failed; return whether anything surely is.

        If not, `remove` the file.
        """
        self._forget(self._count.length)
        if self._file is None or self.num_usable == 0 or not self._is_count_sure:
            return False
        self._file.cut(self.shape.record_at(self._count.length))
        return True

    def remove(self) -> None:
        """Close and remove the file; it begins anew."""
        self._drop()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what is not committed is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _create(self) -> None:
        head = (self._header + pack_count(self._count, self._seed)).ljust(STATES_AT, b"\0")
        self._file = self._disk.create(self.path)
        self._file.write(0, head)
        self._file.publish()

    def _write_count(self, count: Count) -> None:
        assert self._file is not None
        self._is_count_sure = False
        self._file.write(HEADER_BYTES, pack_count(count, self._seed))
        self._file.sync()
        self._is_count_sure = True
        self._count = count

    def _forget(self, length: int) -> None:
        self._ids = self._ids[:length]
        del self._checksums[length:]

    def _drop(self) -> None:
        self.close()
        self._forget(0)
        self._seed = header_checksum(self._header)
        self._is_count_sure = True
        self._count = Count(0, self._seed, self._bounds.context_length)
