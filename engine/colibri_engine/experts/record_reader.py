"""Reads of experts' records, each from the copy whose turn it is; errors of a copy are mended.

Stands between the store and the read engine and speaks as the engine does, but for files, which
are numbered as in the table of records.
"""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.experts.disk_probe import probe_disks
from colibri_engine.experts.replicas import choose, find_copies, thresholds
from colibri_engine.kernels import ReadEngine, ReadPriority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from colibri_engine.engine_config import ReadConfig
    from colibri_engine.experts.disk_choice import DiskChoice
    from colibri_engine.experts.records import RecordPlace
    from colibri_engine.kernels import ReadCompletion, SlotArena

logger = logging.getLogger(__name__)

# A record of this size is read in parts from all disks, where they are about as fast: it is there
# sooner, and none has more to do than another by chance.
_STRIPE_FROM: Final = 4 << 20
_ALIKE: Final = 0.8  # the slowest against the fastest


@dataclass(slots=True)
class _Copy:
    """One file as the read engine has it."""

    number: int
    path: Path
    weight: float


@dataclass(slots=True)
class _Read:
    """A read that involves a mirror, to be repeated without it."""

    place: RecordPlace
    nbytes: int
    arena: SlotArena
    slot: int
    priority: ReadPriority


class RecordReader:
    """See `kernels.ReadEngine`; owns one.

    Args:
        engine: What reads.
        files: For each file of the table the model's own and its copies, each with its weight and
            whether it is read around the page cache.

    Raises:
        OSError: a file cannot be opened.
    """

    def __init__(
        self, engine: ReadEngine, files: Sequence[Sequence[tuple[Path, float, bool]]]
    ) -> None:
        self._engine = engine
        self._files = [
            [
                _Copy(engine.open(str(path), direct=is_direct), path, weight)
                for path, weight, is_direct in copies
            ]
            for copies in files
        ]
        self._ends = [thresholds([copy.weight for copy in copies]) for copies in self._files]
        self._reads: dict[int, _Read] = {}
        self.num_mended = 0
        # Files that are to be read around the page cache, until one turns out not to be.
        self._direct = [
            copy
            for copies, asked in zip(self._files, files, strict=True)
            for copy, (_, _, is_direct) in zip(copies, asked, strict=True)
            if is_direct
        ]
        self._check_direct()

    @property
    def mode(self) -> str:
        """How files are read: "io_uring" or "threads"."""
        return self._engine.mode

    @property
    def depth(self) -> int:
        """Parts that are read from one device at the same time."""
        return self._engine.depth

    def is_direct(self, file: int) -> bool:
        """Return whether the model's own file is read around the page cache."""
        return self._engine.is_direct(self._files[file][0].number)

    def submit(
        self,
        tag: int,
        place: RecordPlace,
        nbytes: int,
        arena: SlotArena,
        slot: int,
        *,
        priority: ReadPriority = ReadPriority.DEMAND,
    ) -> None:
        """Begin to read a record; see `ReadEngine.submit`."""
        first, *others = self._turn(place, nbytes)
        self._engine.submit(
            tag, first, place.offset, nbytes, arena, slot, priority=priority, stripes=others
        )
        if others or first != self._files[place.file][0].number:
            self._reads[tag] = _Read(place, nbytes, arena, slot, priority)

    def promote(self, tag: int, priority: ReadPriority) -> bool:
        """See `ReadEngine.promote`."""
        read = self._reads.get(tag)
        if read is not None:
            read.priority = min(read.priority, priority)
        return self._engine.promote(tag, priority)

    def cancel(self, tag: int) -> bool:
        """See `ReadEngine.cancel`."""
        is_gone = self._engine.cancel(tag)
        if is_gone:
            self._reads.pop(tag, None)
        return is_gone

    def poll(self) -> list[ReadCompletion]:
        """See `ReadEngine.poll`."""
        return self._taken(self._engine.poll())

    def wait(self, timeout: float) -> list[ReadCompletion]:
        """See `ReadEngine.wait`; may give nothing before the time is over."""
        return self._taken(self._engine.wait(timeout))

    def close(self) -> None:
        """See `ReadEngine.close`."""
        self._engine.close()

    def _check_direct(self) -> None:
        """Say, once, that a file system refuses reads around the page cache."""
        refused = next((c for c in self._direct if not self._engine.is_direct(c.number)), None)
        if refused is not None:
            logger.warning(
                "%s cannot be read around the system's cache of files: reads are buffered",
                refused.path,
            )
            self._direct.clear()

    def _turn(self, place: RecordPlace, nbytes: int) -> list[int]:
        """Return the files, as the engine numbers them, that a record is read from."""
        copies = self._files[place.file]
        if len(copies) == 1:
            return [copies[0].number]
        weights = [copy.weight for copy in copies]
        if nbytes >= _STRIPE_FROM and min(weights) >= _ALIKE * max(weights):
            return [copy.number for copy in copies]
        return [copies[choose(place.file, place.offset, self._ends[place.file])].number]

    def _taken(self, completions: list[ReadCompletion]) -> list[ReadCompletion]:
        """Return completions without those that are mended: read again from the model's own."""
        if self._direct and not all(completion.direct for completion in completions):
            self._check_direct()
        if not self._reads:
            return completions
        found = []
        for completion in completions:
            read = self._reads.pop(completion.tag, None)
            if read is None or not self._is_mended(completion, read):
                found.append(completion)
        return found

    def _is_mended(self, completion: ReadCompletion, read: _Read) -> bool:
        own, *copies = self._files[read.place.file]
        if completion.error in (0, errno.ECANCELED) or completion.file == own.number:
            return False
        bad = next((copy for copy in copies if copy.number == completion.file), None)
        if bad is not None:  # not already given up for another read
            logger.warning(
                "mirror %s: %s at byte %d; it is not read any more, the model's own file is",
                bad.path,
                _words(completion.error),
                read.place.offset,
            )
            self._files[read.place.file].remove(bad)
            weights = [copy.weight for copy in self._files[read.place.file]]
            self._ends[read.place.file] = thresholds(weights if any(weights) else [1.0])
        self._engine.submit(
            completion.tag,
            own.number,
            read.place.offset,
            read.nbytes,
            read.arena,
            read.slot,
            priority=read.priority,
        )
        self.num_mended += 1
        return True


def open_reader(paths: Sequence[Path], read_bytes: int, options: ReadConfig) -> RecordReader:
    """Return what reads the records of a model.

    Args:
        paths: Its files.
        read_bytes: Of a record.
        options: How.

    Raises:
        SettingsError: a mirror cannot be used.
        OSError: a file cannot be opened.
        RuntimeError: io_uring is demanded but not there.
    """
    direct, weights = options.direct, options.weights
    copies = find_copies(paths, options.mirrors)
    engine = _engine(options.mode, options.depth)
    if options.mode == "auto" and engine.mode_reason:
        logger.info("experts are read by threads: %s", engine.mode_reason)
    disks: Mapping[Path, DiskChoice] = {}
    if direct is None or (options.mirrors and weights is None):
        every = [*paths, *(copy for row in copies for copy in row if copy is not None)]
        disks = probe_disks(every, read_bytes, engine.mode, options.cache)

    def row(path: Path, place: int) -> tuple[Path, float, bool]:
        disk = disks.get(path)
        weight = weights[place] if weights is not None else (disk.bytes_per_s if disk else 1.0)
        is_direct = direct if direct is not None else disk is None or disk.access.is_direct
        return path, weight, is_direct

    files = []
    for path, mirrored in zip(paths, copies, strict=True):
        rows = [row(path, 0)]
        rows += [row(copy, place) for place, copy in enumerate(mirrored, 1) if copy is not None]
        if not any(weight > 0 for _, weight, _ in rows):
            rows = [(path, 1.0, is_direct) for path, _, is_direct in rows]
        files.append(rows)
    return RecordReader(engine, files)


def _engine(mode: str, depth: int | None) -> ReadEngine:
    return ReadEngine(mode) if depth is None else ReadEngine(mode, depth, depth)


def _words(error: int) -> str:
    return "the file ends too early" if error == errno.ENODATA else os.strerror(error)
