"""Source files that arrive while a conversion runs and leave when nothing needs them any more.

So the disk holds a few files of the source, never all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from colibri_engine.conversion.plan import PlannedFile
    from colibri_engine.loader.hf_checkpoint import HfCheckpoint


class Carrier(Protocol):
    """Somebody who brings files."""

    def want(self, name: str) -> None:
        """Ask for a file, soon; asking again does nothing."""

    def wait(self, name: str) -> None:
        """Return when a file is there.

        Raises:
            ConversionError: it cannot be brought.
        """

    def release(self, name: str) -> None:
        """Say that a file is not needed any more."""


class Deliveries:
    """Asks for source files in the order of the plan and gives them back.

    Args:
        checkpoint: The source.
        carrier: Who brings its files.
    """

    def __init__(self, checkpoint: HfCheckpoint, carrier: Carrier) -> None:
        self._checkpoint = checkpoint
        self._carrier = carrier
        self._here: set[str] = set()

    def before(self, files: Sequence[PlannedFile]) -> None:
        """Ask for what the first of these files needs, then for what the second one does."""
        for file in files[:2]:
            for name in sorted(self._needs([file])):
                self._here.add(name)
                self._carrier.want(name)

    def after(self, files: Sequence[PlannedFile]) -> None:
        """Give back what none of these files needs."""
        for name in sorted(self._here - self._needs(files)):
            self._here.remove(name)
            self._checkpoint.close_file(name)
            self._carrier.release(name)

    def _needs(self, files: Iterable[PlannedFile]) -> frozenset[str]:
        return frozenset(
            name
            for file in files
            for item in file.items
            for tensor in item.tensors
            for name in self._checkpoint.files_of(tensor.source.name)
        )
