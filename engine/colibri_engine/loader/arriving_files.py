"""Weight files that are described before they are there.

Whoever fetches them writes their headers first, so that a conversion can be planned; a file is
waited for when something of it is read, and must then be what was described.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.json_file import read_json
from colibri_engine.loader.safetensors import SafetensorsEntry, SafetensorsFile, parse_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

_MAX_BYTES: Final = 512 << 20


class ArrivingFile:
    """See `loader.shards.ShardFile`.

    Args:
        path: Where the file will be.
        description: Its size, metadata and tensors as in the header.
        wait: Called with the file's name; returns when it is there.

    Raises:
        CheckpointError: the description is damaged.
    """

    def __init__(
        self, path: Path, description: dict[str, Any], wait: Callable[[str], None]
    ) -> None:
        self.path = path
        self.size = int(description["size"])
        self.metadata: dict[str, str] = dict(description["metadata"])
        self.entries = {
            name: parse_entry(name, body, 0, path)
            for name, body in dict(description["tensors"]).items()
        }
        self._wait = wait
        self._lock = threading.Lock()
        self._file: SafetensorsFile | None = None

    def read_range(self, entry: SafetensorsEntry, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read `count` bytes of a tensor, from its byte `first` on, as soon as the file is there.

        Raises:
            CheckpointError: it is not what was described.
        """
        with self._lock:
            if self._file is None:
                self._wait(self.path.name)
                self._file = self._open()
            file = self._file
        return file.read_range(file.entries[entry.name], first, count)

    def close(self) -> None:
        """Close the file; it may arrive once more."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> SafetensorsFile:
        file = SafetensorsFile(self.path)
        found = {name: (entry.dtype, entry.shape) for name, entry in file.entries.items()}
        wanted = {name: (entry.dtype, entry.shape) for name, entry in self.entries.items()}
        if file.size != self.size or found != wanted:
            file.close()
            raise CheckpointError(
                f"{self.path} is not the file that was announced ({file.size} bytes, announced "
                f"{self.size})",
                path=self.path,
                hint="the model changed while it was fetched; run the conversion again",
            )
        return file


def read_descriptions(path: Path, wait: Callable[[str], None]) -> list[ArrivingFile]:
    """Return the files that a list describes; they will arrive beside it.

    Raises:
        CheckpointError: the list is damaged.
    """
    try:
        return [
            ArrivingFile(path.parent / str(name), description, wait)
            for name, description in sorted(read_json(path, _MAX_BYTES).items())
            if isinstance(description, dict)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", path=path) from error
