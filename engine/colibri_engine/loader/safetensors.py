"""One safetensors file: its header, checked completely before anything is read.

Knows dtypes and ranges; knows no model.
Source: the safetensors format description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.json_file import parse_json
from colibri_engine.loader.weight_file import WeightFile

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

MAX_HEADER_BYTES: Final = 512 << 20
MAX_RANK: Final = 8

_MAX_NAME: Final = 512

# Bits per value of every dtype the format knows.
DTYPE_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafetensorsEntry:
    """Where one tensor lies.

    Args:
        name: Its name.
        dtype: The format's word ("BF16").
        shape: Sizes, outermost first; empty for a single value.
        offset: Byte position in the file.
        nbytes: Its bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class SafetensorsFile:
    """An opened safetensors file whose header has been checked completely.

    Args:
        path: The file.

    Raises:
        CheckpointError: it is damaged or incomplete; names file and tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = WeightFile(path)
        try:
            header, data_start = self._read_header()
            self.metadata = self._read_metadata(header.pop("__metadata__", None))
            self.entries = {
                name: parse_entry(name, body, data_start, path) for name, body in header.items()
            }
            self._check_ranges(data_start)
        except BaseException:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size

    def read(self, entry: SafetensorsEntry) -> npt.NDArray[np.uint8]:
        """Read the bytes of a tensor."""
        return self.read_range(entry, 0, entry.nbytes)

    def read_range(self, entry: SafetensorsEntry, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read `count` bytes of a tensor, from its byte `first` on."""
        assert 0 <= first <= first + count <= entry.nbytes
        return self._file.read(entry.offset + first, count)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_header(self) -> tuple[dict[str, object], int]:
        if self.size < 8:
            raise self._incomplete(8)
        length = int.from_bytes(self._file.read(0, 8).tobytes(), "little")
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{self.path} is not a safetensors file: its header claims {length} bytes, "
                f"more than {MAX_HEADER_BYTES}",
                path=self.path,
                hint="pull or copy the model again",
            )
        if length > self.size - 8:
            raise self._incomplete(8 + length)
        text = self._file.read(8, length).tobytes()
        return parse_json(text, self.path, "the header"), 8 + length

    def _read_metadata(self, body: object) -> dict[str, str]:
        if body is None:
            return {}
        if not isinstance(body, dict) or not all(isinstance(item, str) for item in body.values()):
            raise damaged(self.path, "__metadata__ is not an object of strings")
        return body

    def _check_ranges(self, data_start: int) -> None:
        end, previous = data_start, ""
        for entry in sorted(self.entries.values(), key=lambda entry: (entry.offset, entry.nbytes)):
            if entry.offset < end:
                raise damaged(self.path, f"its range overlaps that of {previous}", entry.name)
            end, previous = entry.offset + entry.nbytes, entry.name
        if end > self.size:
            raise self._incomplete(end, previous)
        if end < self.size:
            raise damaged(
                self.path, f"expected {end} bytes, found {self.size}: what follows is unknown"
            )

    def _incomplete(self, expected: int, tensor: str | None = None) -> CheckpointError:
        return CheckpointError(
            f"{self.path} looks incomplete: expected at least {expected} bytes, found {self.size}",
            path=self.path,
            tensor=tensor,
            hint="pull or copy the model again",
        )


def parse_entry(name: str, body: object, data_start: int, path: Path) -> SafetensorsEntry:
    """Return one entry of a header, checked.

    Args:
        name: The tensor.
        body: Its JSON value.
        data_start: Where the data begin in the file.
        path: The file, for messages.

    Raises:
        CheckpointError: it is damaged.
    """
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise damaged(path, f"the tensor name {name[:80]!r} is not printable")
    if not isinstance(body, dict) or body.keys() != {"dtype", "shape", "data_offsets"}:
        raise damaged(path, "its entry does not hold dtype, shape and data_offsets", name)
    dtype, shape, offsets = body["dtype"], body["shape"], body["data_offsets"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise damaged(path, f"its dtype {str(dtype)[:40]!r} is unknown", name)
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise damaged(path, f"its shape is not a list of at most {MAX_RANK} sizes", name)
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise damaged(path, "its data_offsets are not an ascending pair", name)
    count = 1
    for size in shape:
        count *= size
        if count >= 1 << 63:
            raise damaged(path, "its shape overflows", name)
    nbytes = offsets[1] - offsets[0]
    if count * bits != nbytes * 8:
        raise damaged(
            path,
            f"shape {shape} of {dtype} needs {count * bits / 8:.0f} bytes, its range has {nbytes}",
            name,
        )
    return SafetensorsEntry(name, dtype, tuple(shape), data_start + offsets[0], nbytes)


def damaged(path: Path, problem: str, tensor: str | None = None) -> CheckpointError:
    """Return the error for a file that cannot be right."""
    subject = "" if tensor is None else f"tensor {tensor}: "
    return CheckpointError(
        f"{path} is damaged: {subject}{problem}",
        path=path,
        tensor=tensor,
        hint="pull or copy the model again",
    )


def _are_sizes(value: object) -> bool:
    """Return whether a value is a list of integers from 0 to 2^63 - 1."""
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 63 for item in value
    )
