"""One conversion from beginning to end: plan, files one after the other, side files, last look.

The source is read once. A file is finished (written, forced to disk, read back, named, noted in
the manifest) before the next one begins, so a kill costs at most one file.
"""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from colibri_engine.conversion.deliveries import Deliveries
from colibri_engine.conversion.directory_lock import directory_lock
from colibri_engine.conversion.encoding import Block, Encoder, OrderedWork
from colibri_engine.conversion.file_writing import PairFileWriter, StreamFileWriter
from colibri_engine.conversion.manifest import (
    Manifest,
    plan_parameters,
    source_contents,
    source_identity,
)
from colibri_engine.conversion.options import Layout
from colibri_engine.conversion.plan import PlannedItem, PlannedTensor, make_plan
from colibri_engine.conversion.plan_summary import size_text
from colibri_engine.conversion.side_files import write_index, write_side_files
from colibri_engine.conversion.verification import verify_file
from colibri_engine.errors import ConversionError, reason_of
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.models.registry import read_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from colibri_engine.conversion.deliveries import Carrier
    from colibri_engine.conversion.file_writing import FileWriter
    from colibri_engine.conversion.options import ConvertOptions
    from colibri_engine.conversion.plan import ConversionPlan, PlannedFile
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.loader.shard_writer import WrittenShard

_BAD_HALF: Final = 0.5  # relative error from which half of a projection is as good as lost

_Task = tuple[tuple[PlannedItem, PlannedTensor], "Callable[[], Block]"]


class Reporter(Protocol):
    """Somebody to tell how a conversion goes."""

    def progress(self, done: int, total: int) -> None:
        """Report bytes of the result, all files together."""

    def file_progress(self, name: str, place: tuple[int, int], done: int, total: int) -> None:
        """Report bytes of one file, which is number place[0] of place[1]."""

    def note(self, text: str) -> None:
        """Say something worth knowing."""


class Conversion:
    """A planned conversion into one directory.

    Args:
        checkpoint: The source.
        directory: The output directory; made when it is written to.
        options: What was chosen.
        carrier: Who brings the source's files, where they are not there yet.

    Raises:
        BadChoice: the choices do not fit each other or the source.
        CheckpointError: the source cannot be converted.
        UnsupportedModel: its configuration asks for what is not implemented.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Path,
        options: ConvertOptions,
        carrier: Carrier | None = None,
    ) -> None:
        options.precision.check(options.layout)
        read_sizes(checkpoint)  # what cannot be run is not worth hours of work
        self._deliveries: Deliveries | None = None
        if carrier is not None:
            assert isinstance(checkpoint, HfCheckpoint)
            self._deliveries = Deliveries(checkpoint, carrier)
        self._checkpoint = checkpoint
        self._directory = directory
        self._options = options
        self.plan: ConversionPlan = make_plan(checkpoint, options)

    def run(self, reporter: Reporter, *, verify: bool = False) -> None:
        """Convert what is not there yet.

        Args:
            reporter: Is told how it goes.
            verify: Read all files once more at the end, those of earlier runs included.

        Raises:
            ConversionError: the directory is in use or holds something else, or the disk is full.
            CheckpointError: the source is damaged, or the disk returns other bytes than written.
        """
        try:
            # Not `resolve`, which raises other things for links that lead to each other.
            if os.path.realpath(self._directory) == os.path.realpath(self._checkpoint.path):
                raise ConversionError(
                    f"{self._directory} is the source itself", hint="give another directory"
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            with directory_lock(self._directory):
                self._run(reporter, verify=verify)
        except OSError as error:
            raise self._translated(error) from error

    def _run(self, reporter: Reporter, *, verify: bool) -> None:
        manifest = self._manifest()
        manifest.remove_partial_files()
        self._write_files(manifest, reporter)
        self._finish(manifest, reporter)
        if verify:
            self._verify(manifest, reporter)

    def _manifest(self) -> Manifest:
        checkpoint = self._checkpoint
        if self._deliveries is None:
            contents = source_contents(checkpoint.weight_files())
        else:
            contents = self._options.commit or ""
        identity = source_identity(checkpoint, self.plan)
        return Manifest(self._directory, plan_parameters(self._options), identity, contents)

    def _write_files(self, manifest: Manifest, reporter: Reporter) -> None:
        files = self.plan.files
        open_files = [file for file in files if manifest.finished(file.name) is None]
        for file in open_files:  # one that a kill left whole but not noted: it needs its own room
            (self._directory / file.name).unlink(missing_ok=True)
        self._check_space(sum(file.nbytes for file in open_files))
        done = self.plan.nbytes - sum(file.nbytes for file in open_files)
        if done and open_files:
            reporter.note(
                f"going on: {len(files) - len(open_files)} of {len(files)} files are done"
            )
        reporter.progress(done, self.plan.nbytes)
        num_threads = self._options.num_threads
        with ThreadPoolExecutor(num_threads) as executor:
            work: OrderedWork[tuple[PlannedItem, PlannedTensor]]
            work = OrderedWork(executor, num_threads)
            for place, file in enumerate(open_files):
                self._check_space(file.nbytes)
                if self._deliveries is not None:
                    self._deliveries.before(open_files[place:])
                progress = _FileProgress(
                    reporter, file, (files.index(file) + 1, len(files)), done, self.plan.nbytes
                )
                manifest.record(file.name, self._write_file(file, work, progress))
                done += file.nbytes
                if self._deliveries is not None:
                    self._deliveries.after(open_files[place + 1 :])

    def _write_file(
        self,
        file: PlannedFile,
        work: OrderedWork[tuple[PlannedItem, PlannedTensor]],
        progress: _FileProgress,
    ) -> WrittenShard:
        encoder = Encoder(self._checkpoint, packed=self._options.layout is Layout.STREAM)
        with self._writer(file) as writer:
            errors: list[npt.NDArray[np.float64]] = []
            for (item, tensor), block in work.run(_tasks(encoder, file)):
                writer.add(item, tensor, block)
                progress.add(block)
                if block.half_errors is not None:
                    errors.append(block.half_errors)
                    if block.is_last:
                        self._check_halves(tensor, np.sum(errors, axis=0), progress.reporter)
                        errors.clear()
            written = writer.finish()
        assert written.nbytes == file.nbytes, f"{file.name} was planned with another size"
        progress.end()
        return written

    def _writer(self, file: PlannedFile) -> FileWriter:
        if self._options.layout is Layout.STREAM:
            return StreamFileWriter(self._directory, file)
        return PairFileWriter(self._directory, file)

    def _finish(self, manifest: Manifest, reporter: Reporter) -> None:
        names = [file.name for file in self.plan.files]
        write_index(self._directory, names)
        for name in write_side_files(self._checkpoint, self._directory):
            reporter.note(f"the source has no {name}")
        self._check_result()
        manifest.complete(names)
        reporter.progress(self.plan.nbytes, self.plan.nbytes)

    def _check_result(self) -> None:
        """Open the result as whoever serves it does; it must show what was planned."""
        result = open_checkpoint(self._directory)
        try:
            found = {
                name: (result.shape(name), result.format_name(name)) for name in result.names()
            }
        finally:
            result.close()
        wanted = {t.source.name: (t.target.shape, t.target.format) for t in self.plan.tensors()}
        if found != wanted:
            name = min(name for name, _ in found.items() ^ wanted.items())
            raise ConversionError(
                f"{self._directory} shows {name} as {found.get(name)} instead of "
                f"{wanted.get(name)}",
                hint="this is a fault of the program: please report it",
            )

    def _verify(self, manifest: Manifest, reporter: Reporter) -> None:
        read = 0

        def add(count: int) -> None:
            nonlocal read
            read += count
            reporter.progress(read, self.plan.nbytes)

        for file in self.plan.files:
            written = manifest.finished(file.name)
            assert written is not None
            verify_file(self._directory / file.name, written, add)
        count = len(self.plan.files)
        files = "the file is as it was" if count == 1 else f"{count} files are as they were"
        reporter.note(f"verified: {files} written")

    def _check_halves(
        self, tensor: PlannedTensor, sums: npt.NDArray[np.float64], reporter: Reporter
    ) -> None:
        """Say what rounding cost each half of a draft projection; refuse to lose one.

        Its inputs are an embedding and a hidden state of very different magnitude; under one scale
        the smaller half can round to nothing, and then drafts are hardly ever right.
        """
        name = tensor.source.name
        relative = np.sqrt(sums[:, 0] / np.maximum(sums[:, 1], 1e-30))
        shown = f"{relative[0]:.2%} of its embedding half, {relative[1]:.2%} of its hidden half"
        if relative.max() > _BAD_HALF:
            raise ConversionError(
                f"rounding {name} to {tensor.target.bits} bits loses {shown}",
                hint="give --mtp-bits 8, or leave the draft layers out with --no-mtp",
            )
        reporter.note(f"{name}: rounding loses {shown}")

    def _check_space(self, num_bytes: int) -> None:
        floor = self._options.min_free_bytes
        free = shutil.disk_usage(self._directory).free
        if num_bytes and free < num_bytes + floor:
            raise ConversionError(
                f"{self._directory} has {size_text(free)} free; {size_text(num_bytes)} are needed, "
                f"and {size_text(floor)} are to stay free",
                hint="free some space and run the same command again: what is done is kept",
            )

    def _translated(self, error: OSError) -> ConversionError:
        if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
            free = shutil.disk_usage(self._directory).free
            return ConversionError(
                f"the disk of {self._directory} is full ({free} bytes free)",
                hint="free some space and run the same command again: what is done is kept",
            )
        place = error.filename or self._directory
        if error.errno in {errno.EEXIST, errno.ENOTDIR}:
            return ConversionError(
                f"{place} is no directory, or lies in none", hint="give another directory"
            )
        return ConversionError(
            f"cannot write {place}: {error.strerror or reason_of(error)}",
            hint="check the disk and the permissions of the directory",
        )


class _FileProgress:
    """Turns blocks of one file into reports."""

    def __init__(
        self,
        reporter: Reporter,
        file: PlannedFile,
        place: tuple[int, int],
        before: int,
        total: int,
    ) -> None:
        self.reporter = reporter
        self._file = file
        self._place = place
        self._before = before
        self._total = total
        self._done = 0

    def add(self, block: Block) -> None:
        self._done += block.data.nbytes
        self._done += 0 if block.scales is None else block.scales.nbytes
        self._report(min(self._done, self._file.nbytes))

    def end(self) -> None:
        self._report(self._file.nbytes)

    def _report(self, done: int) -> None:
        self.reporter.file_progress(self._file.name, self._place, done, self._file.nbytes)
        self.reporter.progress(self._before + done, self._total)


def _tasks(encoder: Encoder, file: PlannedFile) -> Iterator[_Task]:
    for item in file.items:
        for tensor in item.tensors:
            for task in encoder.tasks(tensor):
                yield (item, tensor), task
