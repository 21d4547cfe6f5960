"""A GGUF file: its tensors and metadata, checked before anything is read from them.

Knows the container only: not what an architecture means by a name (`gguf_names`), nor how a
configuration follows from the metadata (`gguf_config`).
Source: the GGUF format description, versions 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.gguf_metadata import Cursor, read_pairs
from colibri_engine.loader.weight_file import WeightFile
from colibri_engine.quant.registry import FORMATS

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from colibri_engine.quant.base import QuantFormat

MAGIC: Final = b"GGUF"

# Type numbers of the format: name, values per block, bytes per block.
TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
    26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip

_MAX_TENSORS: Final = 1 << 20
_MAX_PAIRS: Final = 1 << 16
_MAX_DIMS: Final = 4
_MAX_NAME_BYTES: Final = 512  # real names have some 30
_MIN_TENSOR_BYTES: Final = 32  # name length, rank, one dimension, type, offset
_MIN_PAIR_BYTES: Final = 13  # key length, type, one byte
_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies.

    Args:
        name: Its name in the file.
        shape: Sizes, outermost first (the reverse of the file's order).
        type_name: Its number format ("Q4_1").
        offset: Byte position in the file.
        nbytes: Its bytes.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    nbytes: int


class GgufFile:
    """An opened GGUF file whose header has been checked completely.

    Args:
        path: The file.

    Raises:
        CheckpointError: it is no GGUF file, damaged or incomplete.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = WeightFile(path)
        try:
            self.metadata, self.tensors = self._read_header()
        except BaseException:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def format(self, tensor: GgufTensor) -> QuantFormat:
        """Return the number format of a tensor.

        Raises:
            UnsupportedQuantFormat: it is not implemented.
        """
        number_format = FORMATS.get(tensor.type_name.lower())
        if number_format is None:
            raise UnsupportedQuantFormat(
                f"tensor {tensor.name} in {self.path} is stored as {tensor.type_name}, "
                "which is not supported",
                hint=_supported(),
            )
        return number_format

    def rows(self, tensor: GgufTensor, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Read rows of a tensor, all outer dimensions counted as one.

        Returns:
            (count, bytes of a row) uint8.
        """
        row_bytes = tensor.nbytes // _product(tensor.shape[:-1])
        raw = self._file.read(tensor.offset + first * row_bytes, count * row_bytes)
        return raw.reshape(count, row_bytes)

    def _read_header(self) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
        cursor = Cursor(self._file)
        num_tensors, num_pairs = self._read_counts(cursor)
        metadata = read_pairs(cursor, num_pairs)
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if (
            not isinstance(alignment, int)
            or not 1 <= alignment <= _MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
        tensors: dict[str, GgufTensor] = {}
        for _ in range(num_tensors):
            tensor = self._read_tensor(cursor, alignment)
            if tensor.name in tensors:
                raise cursor.fail(f"the tensor {tensor.name} stands twice")
            tensors[tensor.name] = tensor
        data_start = (cursor.position + alignment - 1) // alignment * alignment
        placed = {
            name: GgufTensor(
                name, tensor.shape, tensor.type_name, data_start + tensor.offset, tensor.nbytes
            )
            for name, tensor in tensors.items()
        }
        self._check_ranges(placed)
        return metadata, placed

    def _read_counts(self, cursor: Cursor) -> tuple[int, int]:
        if cursor.remaining < 24 or self._file.read(0, 4).tobytes() != MAGIC:
            raise CheckpointError(
                f"{self.path} is not a GGUF file ({self.size} bytes)",
                path=self.path,
                hint="give a .gguf file or a directory with config.json and *.safetensors",
            )
        cursor.u32()
        version = cursor.u32()
        if version not in (2, 3):
            kind = (
                "big-endian GGUF" if version and not version & 0xFFFF else f"GGUF version {version}"
            )
            raise CheckpointError(
                f"{self.path} is {kind}, which is not supported",
                path=self.path,
                hint="convert it to little-endian GGUF version 3",
            )
        num_tensors = cursor.u64()
        num_pairs = cursor.u64()
        if num_tensors > min(_MAX_TENSORS, cursor.remaining // _MIN_TENSOR_BYTES):
            raise cursor.fail(f"it claims {num_tensors} tensors, more than it can hold")
        if num_pairs > min(_MAX_PAIRS, cursor.remaining // _MIN_PAIR_BYTES):
            raise cursor.fail(f"it claims {num_pairs} metadata keys, more than it can hold")
        return num_tensors, num_pairs

    def _read_tensor(self, cursor: Cursor, alignment: int) -> GgufTensor:
        name = cursor.text(_MAX_NAME_BYTES)
        if not name.isprintable() or not name:
            raise cursor.fail(f"the tensor name {name!r} is not printable")
        rank = cursor.u32()
        if not 1 <= rank <= _MAX_DIMS:
            raise cursor.fail(f"tensor {name} has {rank} dimensions, not 1 to {_MAX_DIMS}")
        shape = tuple(cursor.u64() for _ in range(rank))[::-1]
        type_id = cursor.u32()
        offset = cursor.u64()
        if 0 in shape or _product(shape) >= 1 << 63:
            raise cursor.fail(f"tensor {name} has the impossible shape {list(shape)}")
        if type_id not in TYPES:
            raise UnsupportedQuantFormat(
                f"tensor {name} in {self.path} has the unknown type {type_id}", hint=_supported()
            )
        type_name, block_size, block_bytes = TYPES[type_id]
        if shape[-1] % block_size:
            raise cursor.fail(
                f"rows of tensor {name} have {shape[-1]} values, no multiple of the "
                f"{block_size} of a {type_name} block"
            )
        if offset % alignment:
            raise cursor.fail(f"tensor {name} begins at {offset}, not aligned to {alignment}")
        return GgufTensor(
            name, shape, type_name, offset, _product(shape) // block_size * block_bytes
        )

    def _check_ranges(self, tensors: dict[str, GgufTensor]) -> None:
        end = 0
        previous = ""
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
            if tensor.offset < end:
                raise CheckpointError(
                    f"{self.path} is damaged: tensors {previous} and {tensor.name} overlap",
                    path=self.path,
                    tensor=tensor.name,
                    hint="pull or copy the model again",
                )
            end, previous = tensor.offset + tensor.nbytes, tensor.name
        if end > self.size:
            raise CheckpointError(
                f"{self.path} looks incomplete: expected {end} bytes, found {self.size} "
                f"(tensor {previous} is cut)",
                path=self.path,
                tensor=previous,
                hint="pull or copy the model again",
            )


def _supported() -> str:
    readable = ", ".join(name for name, *_ in TYPES.values() if name.lower() in FORMATS)
    return f"use a file of one of these types: {readable}"


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
