"""Writing files of the streaming layout.

What a file will hold is declared first (`StreamShard`), then each tensor is handed over whole or
in chunks, so that no more than one expert needs to be in memory.
Source: docs/formats.md, "The streaming layout".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np

from colibri_engine.loader.shard_writer import ShardWriter, TensorSpec, aligned_order, file_size
from colibri_engine.loader.stream_layout import (
    DIGEST_KEY,
    EXPERTS_KEY,
    LAYOUT_KEY,
    LAYOUT_NAME,
    MATRICES_KEY,
    RECORD_ALIGNMENT,
    ExpertRecord,
    PackedPlace,
    encode_experts,
    encode_matrices,
)
from colibri_engine.quant.tiles import TileLayout, packed_chunks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    import numpy.typing as npt

    from colibri_engine.loader.shard_writer import WrittenShard
    from colibri_engine.quant.base import Bytes, Fp8Tensor, IntTensor

_FLOAT_TYPES: Final = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(np.uint16): "BF16",
}


class StreamContents:
    """What one file of the streaming layout will hold: declared first, in the order of the file."""

    def __init__(self) -> None:
        self.records: dict[str, ExpertRecord] = {}
        self.matrices: dict[str, PackedPlace] = {}
        self._experts: dict[str, str] = {}  # tensor -> prefix
        self._floats: dict[str, TensorSpec] = {}

    def add_expert(self, prefix: str, expert: int, record: ExpertRecord) -> None:
        """Declare the record `prefix.expert`; all experts of a prefix have the same layout."""
        known = self.records.setdefault(prefix, record)
        assert known == record, f"the experts of {prefix} differ in layout"
        self._experts[f"{prefix}.{expert}"] = prefix

    def add_matrix(self, name: str, layout: TileLayout, format_name: str, rest: int = 0) -> None:
        """Declare a packed matrix, with the bytes of its rest."""
        self.matrices[name] = PackedPlace(layout, 0, format_name, rest)

    def add_floats(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Declare a tensor of plain floats: "F32", "F16" or "BF16"."""
        self._floats[name] = TensorSpec(name, dtype, shape)

    def tensors(self) -> list[TensorSpec]:
        """Return the tensors in file order: records first, so that each begins a page."""
        records = [
            TensorSpec(name, "U8", (self.records[prefix].nbytes,))
            for name, prefix in self._experts.items()
        ]
        others = [TensorSpec(name, "U8", (place.end,)) for name, place in self.matrices.items()]
        return [*records, *aligned_order([*self._floats.values(), *others])]

    def metadata(self) -> dict[str, str]:
        """Return the metadata strings, without the digest."""
        strings = {LAYOUT_KEY: LAYOUT_NAME}
        if self.records:
            strings[EXPERTS_KEY] = encode_experts(self.records)
        if self.matrices:
            strings[MATRICES_KEY] = encode_matrices(self.matrices)
        return strings

    def nbytes(self) -> int:
        """Return the size of the file."""
        return file_size(
            self.tensors(), self.metadata(), alignment=RECORD_ALIGNMENT, digest_key=DIGEST_KEY
        )

    def record_of(self, name: str) -> ExpertRecord:
        """Return the layout of an expert's tensor."""
        return self.records[self._experts[name]]


class StreamShard:
    """A file of the streaming layout in the making; see `ShardWriter` for its life.

    Args:
        path: Its final name.
        contents: Everything it will hold.
    """

    def __init__(self, path: Path, contents: StreamContents) -> None:
        self._contents = contents
        self._writer = ShardWriter(
            path,
            contents.tensors(),
            contents.metadata(),
            alignment=RECORD_ALIGNMENT,
            digest_key=DIGEST_KEY,
        )

    def __enter__(self) -> Self:
        """Return the shard."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the file unless it was finished."""
        self._writer.__exit__(kind, error, trace)

    def write_expert(self, name: str, parts: Mapping[str, IntTensor | Fp8Tensor]) -> None:
        """Write the record of one expert from its matrices by name."""
        record = self._contents.record_of(name)
        end = 0
        for part, place in record.parts.items():
            assert TileLayout.of(parts[part]) == place.layout, f"{name}.{part} is of another layout"
            for chunk in packed_chunks(parts[part]):
                self._writer.write(name, chunk)
            end = place.end
        self._writer.write(name, np.zeros(record.nbytes - end, np.uint8))

    def write_matrix(self, name: str, tensor: IntTensor | Fp8Tensor) -> None:
        """Write a packed matrix."""
        layout = self._contents.matrices[name].layout
        assert TileLayout.of(tensor) == layout, f"{name} is of another layout"
        for chunk in packed_chunks(tensor):
            self._writer.write(name, chunk)

    def write_floats(
        self, name: str, array: npt.NDArray[np.float32 | np.float16 | np.uint16]
    ) -> None:
        """Write a tensor of plain floats; uint16 holds the bits of bfloat16."""
        assert array.dtype in _FLOAT_TYPES
        self._writer.write(name, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def write_chunk(self, name: str, chunk: Bytes) -> None:
        """Append packed bytes of a tensor that is too large to be handed over whole."""
        self._writer.write(name, chunk)

    def finish(self) -> WrittenShard:
        """Check the file on disk and give it its name."""
        return self._writer.finish()
