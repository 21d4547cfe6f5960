"""The thread that saves conversations while the engine goes on.

A reply's end only leaves word of what there is to save; rows are copied out of the cache and
written here, some megabytes at a time. The engine waits for this thread in one case only, and then
for the copying of one piece, never for the disk: before it takes back rows that may be on their way
(`cut`), since it will write others in their place.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from colibri_engine.errors import reason_of
from colibri_engine.kv_files.layout import RowReader, put_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from colibri_engine.kv_files.conversation_file import ConversationFile
    from colibri_engine.kv_files.layout import Records

    Ids = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.float32]

logger = logging.getLogger(__name__)

_COMMIT_BYTES: Final = 256 << 20  # what a kill may cost of a long conversation


class Reader(RowReader, Protocol):
    """What a cache held when it was made; see `colibri_engine.kernels.KvReader`."""

    @property
    def state_lengths(self) -> Sequence[int]:
        """Lengths whose recurrent state is known."""

    def read_state(self, length: int, out: Floats, /) -> None:
        """Fill the state of a length."""


@dataclass(slots=True, eq=False)
class _Job:
    """What to save of a slot: its ids, where their rows are, and how many may still be read."""

    slot: int
    ids: Ids
    reader: Reader
    limit: int


class ConversationWriter:
    """Saves conversations in a thread of its own.

    Args:
        files: The file of each slot; this thread's from now on.
    """

    def __init__(self, files: Sequence[ConversationFile]) -> None:
        self._files = files
        self._failed: set[int] = set()  # slots that are not saved any more
        self._condition = threading.Condition()
        self._waiting: OrderedDict[int, _Job] = OrderedDict()  # the latest of each slot
        self._current: _Job | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="coli saving", daemon=True)
        self._thread.start()

    def save(self, slot: int, ids: Ids, reader: Reader) -> None:
        """Let a conversation be saved as it is now.

        Args:
            slot: Its slot.
            ids: Its token ids, which nobody changes any more.
            reader: Their rows.
        """
        with self._condition:
            if slot not in self._failed:
                self._waiting[slot] = _Job(slot, ids, reader, ids.size)
                self._condition.notify_all()

    def cut(self, slot: int, length: int) -> None:
        """Return when no row of a slot from `length` on is being read or will be."""
        with self._condition:
            for job in (self._waiting.get(slot), self._current):
                if job is not None and job.slot == slot:
                    job.limit = min(job.limit, length)

    def flush(self) -> None:
        """Return when everything handed over is saved."""
        with self._condition:
            while self._waiting or self._current is not None:
                self._condition.wait()

    def close(self) -> None:
        """Save what is left to save, and end."""
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        self._thread.join()

    # ---- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._save(job)
            except (OSError, MemoryError) as exc:
                self._give_up(job, exc)
            except Exception:  # the loop of a thread: a fault here must not end the engine
                logger.exception("the conversation of slot %d cannot be saved", job.slot)
                self._give_up(job, None)
        for file in self._files:
            file.close()

    def _next(self) -> _Job | None:
        with self._condition:
            self._current = None
            self._condition.notify_all()
            while not self._waiting and not self._is_closing:
                self._condition.wait()
            if not self._waiting:
                return None
            _, self._current = self._waiting.popitem(last=False)
            return self._current

    def _save(self, job: _Job) -> None:
        file = self._files[job.slot]
        position = _common_prefix(file.ids, job.ids)
        file.go_back(position)
        records = file.shape.records(file.piece)
        uncommitted = 0
        while num := self._take(job, position, records):
            file.append(records[:num], job.ids[position : position + num])
            position += num
            uncommitted += num * file.shape.record_bytes
            if uncommitted > _COMMIT_BYTES:
                self._commit(job, position)
                uncommitted = 0
        if position > 0:
            self._commit(job, position)

    def _take(self, job: _Job, position: int, records: Records) -> int:
        """Copy the next rows; return how many there were."""
        with self._condition:  # so that `cut` returns between two pieces
            num = min(len(records), job.limit - position)
            if num > 0:
                shape = self._files[job.slot].shape
                put_rows(job.reader, position, records[:num], shape)
        return max(num, 0)

    def _commit(self, job: _Job, length: int) -> None:
        file = self._files[job.slot]
        states: dict[int, Floats] = {}
        for at in job.reader.state_lengths:
            if at <= length:
                states[at] = np.empty(file.shape.state_dim, np.float32)
                job.reader.read_state(at, states[at])
        file.commit(states)

    def _give_up(self, job: _Job, cause: Exception | None) -> None:
        """Save this slot no more; leave of its file what is surely valid."""
        file = self._files[job.slot]
        with self._condition:
            self._failed.add(job.slot)
            self._waiting.pop(job.slot, None)
        try:
            rest = f"; {file.num_usable} tokens of it stay there" if file.recover() else ""
        except OSError:
            rest = ""
        if not rest:
            try:
                file.remove()
            except OSError as exc:
                logger.warning("remove %s: it cannot be relied on (%s)", file.path, reason_of(exc))
        if cause is not None:
            logger.warning(
                "the conversation of slot %d cannot be saved in %s (%s)%s; it goes on, unsaved "
                "until the next start",
                job.slot,
                file.path,
                cause,
                rest,
            )


def _common_prefix(first: Ids, second: Ids) -> int:
    size = min(first.size, second.size)
    differs = first[:size] != second[:size]
    place = int(differs.argmax()) if size else 0
    return place if size and differs[place] else size
