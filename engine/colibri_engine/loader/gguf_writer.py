"""Writing a GGUF file, version 3, little endian: metadata, tensor table, aligned data.

Tensors are described first and produced one at a time while writing, so only one is in memory.
Source: the GGUF format description.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from colibri_engine.loader.gguf import MAGIC, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MetadataValue = bool | int | float | str | list[str] | npt.NDArray[np.generic]

_VERSION: Final = 3
_ALIGNMENT: Final = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_ARRAY_TYPES: Final = {
    "u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12,
}  # fmt: skip
_TYPE_IDS: Final = {name: (number, *block) for number, (name, *block) in TYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor to be written.

    Args:
        name: Its name in the file.
        shape: Sizes, outermost first.
        type_name: Its number format ("Q4_1").
        produce: Returns its bytes when it is its turn; the array's memory is written as it is.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    produce: Callable[[], npt.NDArray[np.generic]]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        _, block_size, block_bytes = _TYPE_IDS[self.type_name]
        count = 1
        for size in self.shape:
            count *= size
        return count // block_size * block_bytes


def write_gguf(
    file: BinaryIO, metadata: dict[str, MetadataValue], tensors: list[TensorPlan]
) -> Iterator[int]:
    """Write a whole file from the current position, yielding bytes of tensor data written so far.

    Raises:
        ValueError: a tensor's bytes are not as many as its shape asks for.
    """
    header = b"".join(_header(metadata, tensors))
    file.write(header)
    file.write(_padding(len(header)))
    written = 0
    for tensor in tensors:
        data = np.ascontiguousarray(tensor.produce())
        if data.nbytes != tensor.nbytes:
            raise ValueError(f"{tensor.name}: {data.nbytes} bytes instead of {tensor.nbytes}")
        file.write(data.tobytes())
        file.write(_padding(data.nbytes))
        written += data.nbytes
        yield written


def _header(metadata: dict[str, MetadataValue], tensors: list[TensorPlan]) -> Iterator[bytes]:
    yield MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))
    for key, value in metadata.items():
        yield _text(key)
        yield _value(value)
    offset = 0
    for tensor in tensors:
        type_id = _TYPE_IDS[tensor.type_name][0]
        yield _text(tensor.name) + struct.pack("<I", len(tensor.shape))
        yield struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        yield struct.pack("<IQ", type_id, offset)
        offset += tensor.nbytes + len(_padding(tensor.nbytes))


def _value(value: MetadataValue) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value) if value >= 0 else struct.pack("<Ii", _I32, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, list):
        head = struct.pack("<IIQ", _ARRAY, _STRING, len(value))
        return head + b"".join(_text(item) for item in value)
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    type_id = _ARRAY_TYPES[little.dtype.str[1:]]
    return struct.pack("<IIQ", _ARRAY, type_id, len(little)) + little.tobytes()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _padding(length: int) -> bytes:
    return b"\0" * (-length % _ALIGNMENT)
