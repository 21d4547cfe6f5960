"""Packed matrices of a container: `X`, the weights as bytes, and `X.qs`, their scales."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError, UnsupportedQuantFormat
from colibri_engine.loader.container import ENTROPY_CODED, PackedMatrix, num_rows, resolve
from colibri_engine.loader.format_stamps import FormatStamps
from colibri_engine.loader.matrix_shapes import matrix_shape
from colibri_engine.loader.tensor_source import RawRows
from colibri_engine.quant import e8, fp8_b128, mxfp4
from colibri_engine.quant.base import FloatTensor, IntTensor, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from colibri_engine.loader.shards import ShardSet
    from colibri_engine.quant.base import Bytes, MatrixFormat

SCALES: Final = ".qs"

_BYTES: Final = frozenset({"U8", "I8"})
_SCALE_TYPES: Final = frozenset({"F32", "U8", "F8_E8M0"})
_POWERS_OF_TWO: Final = frozenset({mxfp4.ROWS, fp8_b128.FORMAT_UE8M0})  # one byte per scale
_RAW: Final = frozenset({e8.FORMAT, fp8_b128.FORMAT, fp8_b128.FORMAT_UE8M0})
_DECODING_TABLE: Final = f"colibri.{ENTROPY_CODED}.table"


class ContainerTensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.
        config: Keys of `config.json`, from which the shapes follow.

    Raises:
        CheckpointError: scales without weights, or claims that contradict each other.
        UnsupportedQuantFormat: the container is entropy coded.
    """

    def __init__(self, shards: ShardSet, config: Mapping[str, Any]) -> None:
        self._shards = shards
        self._config = config
        scales = [name for name in shards.names() if name.endswith(SCALES)]
        self._names = [name.removesuffix(SCALES) for name in scales]
        self.claimed = {*scales, *self._names}
        for name in self._names:
            self._check_pair(name)
        metadata = shards.metadata() if scales else []
        for path, strings in metadata:
            if _DECODING_TABLE in strings:
                raise UnsupportedQuantFormat(
                    f"{path} is stored as {ENTROPY_CODED}, which is not supported",
                    hint="it is for storage: decode it to int4-row with the tool that wrote it",
                )
        self._stamps = FormatStamps(metadata)

    def names(self) -> Collection[str]:
        """Return the names of the matrices."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return (O, I), which the configuration gives."""
        return matrix_shape(self._config, name, self._shards.path(name))

    def num_rows(self, name: str) -> int:
        """Return how many rows the bytes of a matrix are, whatever the configuration says.

        Raises:
            CheckpointError: no format has such bytes.
        """
        return num_rows(self.describe(name))

    def format_name(self, name: str) -> str:
        """Return the name of the format a matrix was found to have."""
        return resolve(self.describe(name))[0].name

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix."""
        return resolve(self.describe(name))[0] in _RAW

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows as the files hold them; see `RawSource`."""
        self.read_rows(name, first, count)  # refuses what cannot be right
        weights, scales = self._bytes_of(name, first, count)
        is_e8 = resolve(self.describe(name))[0] is e8.FORMAT
        return RawRows(weights, None if is_e8 else scales)

    def read(self, name: str) -> StoredTensor:
        """Read a matrix as it is stored."""
        return self.read_rows(name, 0, self.shape(name)[0])

    def read_rows(self, name: str, first: int, count: int) -> StoredTensor:
        """Read some rows of a matrix as they are stored; `first` begins a block of every format."""
        number_format, shape = resolve(self.describe(name))
        weights, scales = self._bytes_of(name, first, count)
        self._check_scales(name, number_format, scales)
        with np.errstate(invalid="ignore", over="ignore"):  # damaged scales are refused below
            stored = number_format.to_stored(weights, scales, replace(shape, num_outputs=count))
        is_finite = (
            stored.is_finite
            if isinstance(stored, IntTensor)
            else np.isfinite(stored.array if isinstance(stored, FloatTensor) else stored.scales)
        )
        if not np.all(is_finite):
            raise self._refuse(name, "has a scale or a value that is not finite")
        if isinstance(stored, IntTensor) and (stored.scales < 0).any():
            raise self._refuse(name, "has a scale that is negative")
        return stored

    def describe(self, name: str) -> PackedMatrix:
        """Return what decides about the format of a matrix; reads headers only."""
        num_outputs, num_inputs = self.shape(name)
        return PackedMatrix(
            name=name,
            path=self._shards.path(name),
            shape=(num_outputs, num_inputs),
            weight_bytes=self._shards.entry(name).nbytes,
            scale_bytes=self._shards.entry(name + SCALES).nbytes,
            stamp=self._stamps.format_of(name),
            group=self._stamps.group_of(name),
        )

    def _bytes_of(self, name: str, first: int, count: int) -> tuple[Bytes, Bytes]:
        """Return the bytes of some rows and of their scales."""
        number_format, shape = resolve(self.describe(name))
        before, rows = (replace(shape, num_outputs=number) for number in (first, count))
        row_bytes = number_format.row_bytes(shape.num_inputs)
        weights = self._shards.read_range(name, first * row_bytes, count * row_bytes)
        start = 0 if number_format is e8.FORMAT else number_format.scale_bytes(before)
        scales = self._shards.read_range(name + SCALES, start, number_format.scale_bytes(rows))
        return weights.reshape(count, -1), scales

    def _check_scales(self, name: str, number_format: MatrixFormat, scales: Bytes) -> None:
        if number_format in _POWERS_OF_TWO:
            return  # all but NaN are fine, and that shows in the values
        values = scales.view("<f4")
        if number_format is e8.FORMAT and values[0] != e8.TAG:
            raise self._refuse(name, f"has {name}{SCALES} other than {e8.TAG}, the mark of e8")
        if (values < 0).any():
            raise self._refuse(name, "has a scale that is negative")

    def _check_pair(self, name: str) -> None:
        if name not in self._shards:
            raise CheckpointError(
                f"{self._shards.directory} holds the scales {name}{SCALES} but not {name}: "
                "it looks incomplete",
                path=self._shards.path(name + SCALES),
                tensor=name,
                hint="copy or convert the model again",
            )
        weights, scales = self._shards.entry(name), self._shards.entry(name + SCALES)
        if weights.dtype not in _BYTES:
            raise self._refuse(name, f"has scales but is stored as {weights.dtype}, not as bytes")
        if scales.dtype not in _SCALE_TYPES:
            raise self._refuse(name, f"has scales stored as {scales.dtype}, not as F32 or bytes")

    def _refuse(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"tensor {name} in {self._shards.path(name)} {problem}",
            path=self._shards.path(name),
            tensor=name,
            hint="the container is damaged; copy or convert the model again",
        )
