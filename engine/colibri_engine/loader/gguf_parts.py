"""A GGUF model as one set of tensors, whether it is one file or was split into several.

Parts are named `NAME-00001-of-00003.gguf` and carry `split.no` (from 0), `split.count` and
`split.tensors.count`; all other metadata stands in the first. Missing, mixed and cut parts are
named before a tensor is read.
Source: the GGUF format description, "Naming convention".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.gguf import GgufFile, GgufTensor
from colibri_engine.loader.metadata_reader import MetadataReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.quant.base import QuantFormat

_MAX_PARTS: Final = 512
_NAME: Final = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")


def first_part(paths: Sequence[Path]) -> Path | None:
    """Return the first of these files when their names make them parts of one model, else None."""
    matches = [_NAME.fullmatch(path.name) for path in paths]
    stems = {(match[1], match[3]) for match in matches if match is not None}
    if None in matches or len(stems) != 1:
        return None
    return min(paths, key=lambda path: path.name)


class GgufParts:
    """All tensors and the metadata of one model.

    Args:
        path: The file; of a split model, any part of it.

    Raises:
        CheckpointError: a part is missing, damaged, incomplete or belongs to another model.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: list[GgufFile] = []
        self._homes: dict[str, GgufFile] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            self._open(path)
        except BaseException:
            self.close()
            raise
        self.metadata: dict[str, Any] = self._files[0].metadata

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self._files)

    @property
    def paths(self) -> list[Path]:
        """The files in the order of the parts."""
        return [file.path for file in self._files]

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def format(self, tensor: GgufTensor) -> QuantFormat:
        """Return the number format of a tensor; see `GgufFile.format`."""
        return self._homes[tensor.name].format(tensor)

    def rows(self, tensor: GgufTensor, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read rows of a tensor; see `GgufFile.rows`."""
        return self._homes[tensor.name].rows(tensor, first, count)

    def _open(self, path: Path) -> None:
        opened = GgufFile(path)
        self._files.append(opened)
        count = _parts_of(opened)
        if count > 1:
            opened.close()
            self._files.clear()
            for number, part in enumerate(_part_paths(path, count)):
                file = GgufFile(part)
                self._files.append(file)
                _check_place(file, number, count)
        for file in self._files:
            self._add(file)
        self._check_total(count)

    def _add(self, file: GgufFile) -> None:
        for name, tensor in file.tensors.items():
            other = self._homes.setdefault(name, file)
            if other is not file:
                raise CheckpointError(
                    f"tensor {name} stands in both {other.path.name} and {file.path.name}",
                    path=file.path,
                    tensor=name,
                    hint="the parts belong to different models: pull or copy the model again",
                )
            self.tensors[name] = tensor

    def _check_total(self, count: int) -> None:
        if count <= 1:
            return
        first = self._files[0]
        data = MetadataReader(first.metadata, first.path)
        total = data.integer("split.tensors.count", 0, 1 << 31, len(self.tensors))
        if total != len(self.tensors):
            raise CheckpointError(
                f"{first.path} counts {total} tensors in {count} parts; they hold "
                f"{len(self.tensors)}",
                path=first.path,
                hint="the parts belong to different models: pull or copy the model again",
            )


def _parts_of(file: GgufFile) -> int:
    data = MetadataReader(file.metadata, file.path)
    count: int = data.integer("split.count", 0, _MAX_PARTS, 0)
    return count


def _part_paths(path: Path, count: int) -> list[Path]:
    match = _NAME.fullmatch(path.name)
    if match is None or int(match[3]) != count:
        raise CheckpointError(
            f"{path} is one of {count} parts of a split GGUF file, but its name does not say which",
            path=path,
            hint=f"give the parts their names back: NAME-00001-of-{count:05d}.gguf and so on",
        )
    parts = [path.with_name(f"{match[1]}-{n:05d}-of-{match[3]}.gguf") for n in range(1, count + 1)]
    for part in parts:
        if not part.exists():
            raise CheckpointError(
                f"{part} is missing: the model looks incomplete",
                path=part,
                hint="pull the model again",
            )
    return parts


def _check_place(file: GgufFile, number: int, count: int) -> None:
    data = MetadataReader(file.metadata, file.path)
    found = (data.integer("split.no", 0, _MAX_PARTS), data.integer("split.count", 0, _MAX_PARTS))
    if found != (number, count):
        raise CheckpointError(
            f"{file.path} says it is part {found[0] + 1} of {found[1]}, its name says "
            f"{number + 1} of {count}",
            path=file.path,
            hint="the parts belong to different models: pull or copy the model again",
        )
