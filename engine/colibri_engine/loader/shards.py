"""The safetensors files of one directory, as one set of tensors.

Missing and cut files are named before any tensor is read.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, Protocol

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.json_file import is_there, read_json
from colibri_engine.loader.safetensors import SafetensorsEntry, SafetensorsFile

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

logger = logging.getLogger(__name__)

INDEX: Final = "model.safetensors.index.json"

_MAX_SHARDS: Final = 512
_MAX_INDEX_BYTES: Final = 256 << 20
_FILE_NAME: Final = re.compile(r"[\w.-]{1,255}")
_NUMBERED: Final = re.compile(r"(.*)-([0-9]{3,6})-of-([0-9]{3,6})\.safetensors")


class ShardFile(Protocol):
    """One file of a set; see `SafetensorsFile`."""

    path: Path
    metadata: dict[str, str]
    entries: dict[str, SafetensorsEntry]

    @property
    def size(self) -> int:
        """Bytes of the file."""

    def read_range(self, entry: SafetensorsEntry, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read `count` bytes of a tensor, from its byte `first` on."""

    def close(self) -> None:
        """Close the file."""


class ShardSet:
    """All tensors of a directory of safetensors files.

    Args:
        directory: The directory.
        arriving: The files, where they are not there yet; None for those in the directory.
        further: Other directories in which some of its files lie.

    Raises:
        CheckpointError: a file is missing, cut or damaged, or a tensor stands in two files.
    """

    def __init__(
        self,
        directory: Path,
        arriving: Sequence[ShardFile] | None = None,
        further: Sequence[Path] = (),
    ) -> None:
        self.directory = directory
        paths = _find_files([directory, *further]) if arriving is None else []
        self._check_files([file.path for file in arriving] if arriving is not None else paths)
        self._files: list[ShardFile] = []
        self._homes: dict[str, ShardFile] = {}
        self._stored: dict[str, str] = {}  # name -> name in the files
        try:
            for file in arriving or ():
                self._add(file)
            for path in paths:
                self._add(SafetensorsFile(path))
            if is_there(directory / INDEX):
                self._check_index()
        except BaseException:
            self.close()
            raise
        self._stored = {name: name for name in self._homes}

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def rename(self, stored: dict[str, str]) -> None:
        """Show tensors under other names from now on, and no others.

        Args:
            stored: New name -> name in the files.
        """
        self._stored = stored

    def names(self) -> list[str]:
        """Return the names of all tensors, file by file."""
        return list(self._stored)

    def entry(self, name: str) -> SafetensorsEntry:
        """Return where a tensor lies.

        Raises:
            CheckpointError: there is none of this name.
        """
        stored = self._stored.get(name)
        if stored is None:
            raise CheckpointError(
                f"{self.directory} has no tensor {name}",
                path=self.directory,
                tensor=name,
                hint="the download is incomplete or holds another variant of the model",
            )
        return self._homes[stored].entries[stored]

    def read(self, name: str) -> npt.NDArray[np.uint8]:
        """Read the bytes of a tensor."""
        return self.read_range(name, 0, self.entry(name).nbytes)

    def metadata(self) -> list[tuple[Path, dict[str, str]]]:
        """Return each file with its metadata strings."""
        return [(file.path, file.metadata) for file in self._files]

    def names_in(self, path: Path) -> Collection[str]:
        """Return the names of the tensors of one file."""
        return next(file.entries.keys() for file in self._files if file.path == path)

    def read_range(self, name: str, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read `count` bytes of a tensor, from its byte `first` on."""
        entry = self.entry(name)
        return self._home(name).read_range(entry, first, count)

    def path(self, name: str) -> Path:
        """Return the file a tensor stands in."""
        self.entry(name)
        return self._home(name).path

    def close_file(self, name: str) -> None:
        """Close one file by its name; one that arrives may be read again later."""
        next(file for file in self._files if file.path.name == name).close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def _home(self, name: str) -> ShardFile:
        return self._homes[self._stored[name]]

    def _add(self, file: ShardFile) -> None:
        self._files.append(file)
        for name in file.entries:
            other = self._homes.setdefault(name, file)
            if other is not file:
                raise CheckpointError(
                    f"tensor {name} stands in both {other.path.name} and {file.path.name} of "
                    f"{self.directory}",
                    path=file.path,
                    tensor=name,
                    hint="remove the files that belong to another model or an older download",
                )

    def _check_files(self, paths: list[Path]) -> None:
        if not paths:
            raise CheckpointError(
                f"{self.directory} has a config.json but no *.safetensors files",
                path=self.directory,
                hint="pull the model again; PyTorch .bin files must be converted to safetensors",
            )
        if len(paths) > _MAX_SHARDS:
            raise CheckpointError(
                f"{self.directory} has {len(paths)} safetensors files, more than {_MAX_SHARDS}",
                path=self.directory,
                hint="keep one model per directory",
            )
        present = {path.name for path in paths}
        for name in sorted(present):
            match = _NUMBERED.fullmatch(name)
            if match is None:
                continue
            stem, number, total = match.groups()
            for place in range(1, min(int(total), _MAX_SHARDS) + 1):
                wanted = f"{stem}-{place:0{len(number)}d}-of-{total}.safetensors"
                if wanted not in present:
                    raise self._missing(wanted)

    def _check_index(self) -> None:
        path = self.directory / INDEX
        homes = read_json(path, _MAX_INDEX_BYTES).get("weight_map")
        if not isinstance(homes, dict):
            raise CheckpointError(f"{path} has no weight_map", path=path, hint="pull it again")
        present = {file.path.name for file in self._files}
        for name, shard in homes.items():
            if not isinstance(shard, str) or not _FILE_NAME.fullmatch(shard):
                raise CheckpointError(
                    f"{path} does not name a file for {name[:80]!r}",
                    path=path,
                    tensor=name,
                    hint="the index is damaged; pull the model again",
                )
            if shard not in present:
                raise self._missing(shard)
            home = self._homes.get(name)
            if home is None or home.path.name != shard:
                raise CheckpointError(
                    f"{path} says that {shard} holds the tensor {name[:80]!r}, but it does not",
                    path=path,
                    tensor=name,
                    hint="the download mixes versions; pull the model again",
                )

    def _missing(self, name: str) -> CheckpointError:
        path = self.directory / name
        return CheckpointError(
            f"{path} is missing: the model looks incomplete",
            path=path,
            hint="pull the model again",
        )


def _find_files(directories: Sequence[Path]) -> list[Path]:
    """Return the weight files of directories, by name.

    Raises:
        CheckpointError: a directory is none, a further one has no file, or two of them have files
            of the same name and another size.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            raise CheckpointError(
                f"{directory} is no directory", path=directory, hint="see COLI_MODEL_DIRS"
            )
        files = list(directory.glob("*.safetensors"))
        if not files and directory is not directories[0]:
            raise CheckpointError(
                f"{directory} holds no weight files",
                path=directory,
                hint="name directories with *.safetensors in COLI_MODEL_DIRS, or leave it out",
            )
        for path in files:
            other = found.setdefault(path.name, path)
            if other is path:
                continue
            sizes = other.stat().st_size, path.stat().st_size
            if sizes[0] != sizes[1]:
                raise CheckpointError(
                    f"{path.name} lies in both {other.parent} and {directory}, with {sizes[0]} and "
                    f"{sizes[1]} bytes",
                    path=path,
                    hint="of COLI_MODEL_DIRS each file is in one directory: remove the wrong one",
                )
            logger.warning(
                "%s lies in both %s and %s: the first is read; COLI_MODEL_MIRROR reads both",
                path.name,
                other.parent,
                directory,
            )
    return [found[name] for name in sorted(found)]
