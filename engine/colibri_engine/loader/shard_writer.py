"""Writing one safetensors file so that it is there whole or not at all.

Sizes are known before the first byte, so tensors may be written piece by piece and in any order.
The file grows under a temporary name; it gets its own after it was read back from the disk and
found equal to what was meant.
Source: the safetensors format description.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.durable import sync_directory
from colibri_engine.loader.safetensors import DTYPE_BITS, SafetensorsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from colibri_engine.quant.base import Bytes

PARTIAL_SUFFIX: Final = ".partial"

_READ_BYTES: Final = 4 << 20
_DIGEST_HOLE: Final = "0" * 64


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a file to be written.

    Args:
        name: Its name.
        dtype: The format's word ("U8").
        shape: Sizes, outermost first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPE_BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A finished file.

    Args:
        nbytes: Its size.
        sha256: Digest of all of it. Where the file carries a digest of its own, that is computed
            with 64 zeros in its place.
    """

    nbytes: int
    sha256: str


class _Region:
    """Where a tensor's bytes go, and what went there so far."""

    def __init__(self, offset: int, nbytes: int) -> None:
        self.offset = offset
        self.nbytes = nbytes
        self.done = 0
        self.crc = 0


class ShardWriter:
    """A safetensors file in the making; a context manager that removes what was not finished.

    Args:
        path: The final name; its directory exists.
        tensors: The tensors in file order.
        metadata: The `__metadata__` strings; empty for none.
        alignment: The data section begins at a multiple of this many bytes.
        digest_key: Metadata key under which the file gets its own digest, or None.
    """

    def __init__(
        self,
        path: Path,
        tensors: Sequence[TensorSpec],
        metadata: Mapping[str, str],
        *,
        alignment: int = 8,
        digest_key: str | None = None,
    ) -> None:
        self.path = path
        self._partial = path.with_name(f".{path.name}{PARTIAL_SUFFIX}")
        self._digest_key = digest_key
        self._header = file_header(tensors, metadata, alignment, digest_key)
        self._regions: dict[str, _Region] = {}
        offset = len(self._header)
        for tensor in tensors:
            self._regions[tensor.name] = _Region(offset, tensor.nbytes)
            offset += tensor.nbytes
        self.nbytes = offset
        self._file = self._partial.open("w+b", buffering=0)
        try:
            self._put(0, self._header)
        except BaseException:  # a full disk: nobody has the writer yet, to leave it
            self._discard()
            raise

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, and remove it unless `finish` gave it its name."""
        self._discard()

    def write(self, name: str, chunk: Bytes) -> None:
        """Append the next bytes of a tensor.

        Args:
            name: The tensor.
            chunk: Contiguous bytes; a tensor's chunks come in order, tensors in any.
        """
        region = self._regions[name]
        assert region.done + chunk.nbytes <= region.nbytes, f"too many bytes for {name}"
        view = chunk.data.cast("B")
        self._put(region.offset + region.done, view)
        region.crc = zlib.crc32(view, region.crc)
        region.done += chunk.nbytes

    def finish(self) -> WrittenShard:
        """Force the file to disk, read it back, and give it its name.

        Raises:
            CheckpointError: the disk gave back other bytes than were written.
        """
        for name, region in self._regions.items():
            assert region.done == region.nbytes, f"{name} lacks {region.nbytes - region.done} bytes"
        self._sync()
        digest = self._read_back()
        if self._digest_key is not None:
            lead = f'"{self._digest_key}":"'.encode()
            self._put(self._header.index(lead + _DIGEST_HOLE.encode()) + len(lead), digest.encode())
            self._sync()
        self._check_header()
        self._file.close()
        self._partial.replace(self.path)
        sync_directory(self.path.parent)
        return WrittenShard(self.nbytes, digest)

    def _discard(self) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _put(self, offset: int, data: bytes | memoryview) -> None:
        self._file.seek(offset)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _sync(self) -> None:
        """Wait for the disk, and let go of the pages so that reading asks the disk."""
        os.fsync(self._file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _read_back(self) -> str:
        """Return the digest of the file as it is on disk, after comparing every tensor."""
        digest = hashlib.sha256()
        self._file.seek(0)
        digest.update(self._read_exactly(len(self._header)))
        for name, region in self._regions.items():
            crc = 0
            for first in range(0, region.nbytes, _READ_BYTES):
                piece = self._read_exactly(min(_READ_BYTES, region.nbytes - first))
                digest.update(piece)
                crc = zlib.crc32(piece, crc)
            if crc != region.crc:
                raise self._differs(name)
        return digest.hexdigest()

    def _read_exactly(self, count: int) -> bytes:
        pieces: list[bytes] = []
        while count:
            piece = self._file.read(count)
            if not piece:
                raise self._differs(None)
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _check_header(self) -> None:
        """Open the file as a reader does; every tensor must be where it was put."""
        opened = SafetensorsFile(self._partial)
        try:
            found = {name: (entry.offset, entry.nbytes) for name, entry in opened.entries.items()}
        finally:
            opened.close()
        wanted = {name: (region.offset, region.nbytes) for name, region in self._regions.items()}
        if found != wanted:
            raise self._differs(None)

    def _differs(self, tensor: str | None) -> CheckpointError:
        subject = "its header" if tensor is None else f"tensor {tensor}"
        return CheckpointError(
            f"{self._partial} reads back other bytes than were written ({subject})",
            path=self._partial,
            tensor=tensor,
            hint="the disk or the memory of this machine is failing; check both",
        )


def file_size(
    tensors: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    *,
    alignment: int = 8,
    digest_key: str | None = None,
) -> int:
    """Return the bytes a file will have; arguments as of `ShardWriter`."""
    header = file_header(tensors, metadata, alignment, digest_key)
    return len(header) + sum(tensor.nbytes for tensor in tensors)


def aligned_order(tensors: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Return tensors in the order common writers use: widest type first, then by name."""
    return sorted(tensors, key=lambda tensor: (-DTYPE_BITS[tensor.dtype], tensor.name))


def file_header(
    tensors: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    alignment: int,
    digest_key: str | None,
) -> bytes:
    """Return what a file begins with; see `ShardWriter` for the arguments."""
    strings = dict(metadata)
    if digest_key is not None:
        strings[digest_key] = _DIGEST_HOLE
    body: dict[str, object] = {"__metadata__": strings} if strings else {}
    offset = 0
    for tensor in tensors:
        assert tensor.name not in body, f"{tensor.name} is written twice"
        end = offset + tensor.nbytes
        body[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % alignment)
    return len(text).to_bytes(8, "little") + text
