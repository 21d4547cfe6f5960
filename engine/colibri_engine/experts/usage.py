"""The history of how often each expert was chosen: `.coli_usage` beside the weights.

    -1 <layers> <experts>
    -2 1 <engine id>
    <layer> <expert> <count>

Text, three whole numbers a line, sorted by layer and expert, without zeros. The engine id is the
32-bit FNV-1a hash of the architecture's name. Files without the first two lines are read, too; a
file in which nothing was counted is empty. Layers count from the model's first; the draft layer is
the one behind the last.

Two engines on one directory lose nothing of each other: saving takes a lock, adds what is new to
what the file holds then, and puts a whole file in its place. Old counts decay as new ones come, so
that a history of any length still follows what is asked today; counts saturate.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from colibri_engine.errors import CheckpointError, reason_of
from colibri_engine.loader.durable import write_whole
from colibri_engine.loader.file_lock import lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Counts = npt.NDArray[np.int64]

_MODE: Final = 0o644  # others may learn from it, whatever the umask, but not write it

logger = logging.getLogger(__name__)

USAGE_NAME: Final = ".coli_usage"
_WRITABLE: Final = "set COLI_USAGE to a file that can be written, or COLI_USAGE_SAVE=0"
MAX_COUNT: Final = 2**31 - 1

_VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20
_LONGEST: Final = 40  # characters of a damaged line that are shown
# Selections after which an old one counts 1 / e: about 20,000 tokens of a model with 600 a token.
_WINDOW: Final = 12_000_000


def engine_id(model_type: str) -> int:
    """Return the number that stands for an architecture in the file."""
    value = 2166136261
    for byte in model_type.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


class UsageFile:
    """The history of one model.

    Args:
        path: The file.
        shape: Layers (the draft layer included or not, as the model counts them) and experts.
        model_type: The architecture's name.
        decay: What old counts are multiplied by at each save; None: by as much as is new.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], model_type: str, decay: float | None = None
    ) -> None:
        self.path = path
        self._shape = shape
        self._id = engine_id(model_type)
        self._decay = decay
        self._is_off = False

    def read(self) -> Counts:
        """Return (layers + 1, experts) counts: zeros where there is no file.

        Raises:
            CheckpointError: it is damaged, of a newer version, or belongs to another model.
        """
        if self.path.exists() and not self.path.is_file() and not self.path.is_dir():
            raise self._refuse("is no plain file")  # reading a pipe would wait for ever
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            data = b""
        except OSError as exc:
            raise self._refuse(f"cannot be read: {exc.strerror}") from exc
        if len(data) > _MAX_BYTES:
            raise self._refuse(f"has more than {_MAX_BYTES} bytes")
        counts = np.zeros((self._shape[0] + 1, self._shape[1]), np.int64)
        for number, line in enumerate(data.decode("ascii", "replace").splitlines(), 1):
            self._take(counts, line, number)
        return counts

    def add(self, new: Counts) -> None:
        """Add counts to the file. Failures are told once and end the saving: never a reply.

        Args:
            new: (layers + 1, experts) selections since the last call.
        """
        if self._is_off or not new.any():
            return
        try:
            with self._locked():
                total = self._joined(self.read(), new)
                write_whole(self.path, self._encode(total), mode=_MODE)
        except (OSError, CheckpointError) as exc:
            self._is_off = True
            hint = exc.hint if isinstance(exc, CheckpointError) else _WRITABLE
            logger.warning("the history of experts is not saved: %s; %s", reason_of(exc), hint)

    def _joined(self, old: Counts, new: Counts) -> Counts:
        decay = self._decay
        if decay is None:
            decay = float(np.exp(-float(new.sum()) / _WINDOW))
        kept = np.floor(old * decay + 0.5).astype(np.int64)
        total: Counts = np.minimum(kept + new, MAX_COUNT)
        return total

    def _encode(self, counts: Counts) -> bytes:
        layers, experts = np.nonzero(counts)
        if not layers.size:
            return b""
        lines = [f"-1 {self._shape[0]} {self._shape[1]}", f"-2 {_VERSION} {self._id}"]
        rows = zip(layers.tolist(), experts.tolist(), counts[layers, experts].tolist(), strict=True)
        lines.extend(f"{layer} {expert} {count}" for layer, expert, count in rows)
        return ("\n".join(lines) + "\n").encode("ascii")

    def _take(self, counts: Counts, line: str, number: int) -> None:
        """Read one line into `counts`."""
        words = line.split()
        try:
            first, second, third = map(int, words)
        except ValueError:
            shown = line[:_LONGEST]
            raise self._refuse(f"line {number} is {shown!r}, not three whole numbers") from None
        if first == -1 and (second, third) != self._shape:
            raise self._refuse(
                f"is of {second} layers and {third} experts; this model has "
                f"{self._shape[0]} and {self._shape[1]}"
            )
        if first == -2 and second > _VERSION:
            raise self._refuse(f"has version {second}, newer than {_VERSION}")
        if first == -2 and third != self._id:
            raise self._refuse("is of another architecture")
        if first < 0:
            return  # what a newer writer adds
        num_layers, num_experts = counts.shape
        if first >= num_layers or not 0 <= second < num_experts or third < 0:
            raise self._refuse(f"line {number} is {line[:_LONGEST]!r}, which the model has not")
        counts[first, second] = min(third, MAX_COUNT)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.with_name(self.path.name + ".lock").open("ab") as file:
            lock(file.fileno())  # a process that ends gives it back
            yield

    def _refuse(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} {problem}",
            path=self.path,
            hint="remove the file; experts are learned anew",
        )
