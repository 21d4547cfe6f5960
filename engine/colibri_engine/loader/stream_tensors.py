"""Packed matrices of the streaming layout: experts' records, and matrices of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.stream_layout import (
    EXPERTS_KEY,
    LAYOUT_KEY,
    LAYOUT_NAME,
    MATRICES_KEY,
    RECORD_ALIGNMENT,
    decode_experts,
    decode_matrices,
)
from colibri_engine.loader.tensor_source import RawRows
from colibri_engine.quant import e8, fp8_b128
from colibri_engine.quant.base import Fp8Tensor
from colibri_engine.quant.tiles import TILE, PackedTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from colibri_engine.loader.shards import ShardSet
    from colibri_engine.loader.stream_layout import ExpertRecord, PackedPlace
    from colibri_engine.quant.base import Bytes, StoredTensor
    from colibri_engine.quant.tiles import TileLayout

_WEIGHT: Final = ".weight"


@dataclass(frozen=True, slots=True)
class _Home:
    """The tensor a matrix stands in, and where."""

    tensor: str
    place: PackedPlace


@dataclass(frozen=True, slots=True)
class StoredExperts:
    """The routed experts of one layer.

    Args:
        record: How each is built.
        places: File and byte position of each record, by expert.
    """

    record: ExpertRecord
    places: tuple[tuple[Path, int], ...]


class StreamTensors:
    """See `loader.tensor_source.TensorSource`.

    Args:
        shards: The files.

    Raises:
        CheckpointError: a description is damaged or does not fit its tensor.
    """

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self._homes: dict[str, _Home] = {}
        self._records: dict[str, ExpertRecord] = {}
        self._experts: dict[str, dict[int, tuple[Path, int]]] = {}
        self.claimed: set[str] = set()
        for path, strings in shards.metadata():
            if LAYOUT_KEY in strings:
                self._add_file(path, strings)

    def names(self) -> Collection[str]:
        """Return the names of the matrices."""
        return self._homes.keys()

    def experts(self) -> dict[str, StoredExperts]:
        """Return the layers of which every expert has a record, by what precedes its number."""
        return {
            prefix: StoredExperts(
                self._records[prefix], tuple(places[number] for number in range(len(places)))
            )
            for prefix, places in self._experts.items()
            if places.keys() == set(range(len(places)))
        }

    def shape(self, name: str) -> tuple[int, ...]:
        """Return (O, I)."""
        layout = self._homes[name].place.layout
        return (layout.num_outputs, layout.num_inputs)

    def tile_layout(self, name: str) -> TileLayout:
        """Return the sizes of a packed matrix."""
        return self._homes[name].place.layout

    def format_name(self, name: str) -> str:
        """Return the name of the format a matrix was made from."""
        return self._homes[name].place.format

    def has_raw(self, name: str) -> bool:
        """Tell whether `raw_rows` can give the bytes of a matrix."""
        place = self._homes[name].place
        if place.format in fp8_b128.NAMES:
            return place.layout.fp8
        return place.format == e8.FORMAT.name and place.rest > 0

    def raw_rows(self, name: str, first: int, count: int) -> RawRows:
        """Read rows as the layout with separate scales holds them; see `RawSource`."""
        home = self._homes[name]
        stored = self.read_rows(name, first, count).to_codes()
        try:
            if isinstance(stored, Fp8Tensor):
                return RawRows(stored.codes, self._block_scales(home.place, stored))
            size = e8.rest_bytes(home.place.layout.num_inputs)
            start = home.place.rest_offset + first * size
            rest = self._shards.read_range(home.tensor, start, count * size)
            return RawRows(e8.join(stored, rest.reshape(count, size)), None)
        except ValueError as error:
            raise self._refuse(home.tensor, name, f"has {error}") from error

    @staticmethod
    def _block_scales(place: PackedPlace, stored: Fp8Tensor) -> Bytes:
        scales = fp8_b128.block_scales(stored)
        if place.format == fp8_b128.FORMAT_UE8M0.name:
            return fp8_b128.powers(scales).reshape(-1)
        return scales.reshape(-1).view(np.uint8)

    def read(self, name: str) -> StoredTensor:
        """Read a matrix as it is stored."""
        home = self._homes[name]
        place = home.place
        packed = self._shards.read_range(home.tensor, place.offset, place.layout.nbytes)
        return self._checked(name, PackedTensor(packed, place.layout))

    def read_rows(self, name: str, first: int, count: int) -> PackedTensor:
        """Read some rows of a matrix as they are stored."""
        home = self._homes[name]
        layout, offset = home.place.layout, home.place.offset
        assert first % TILE == 0
        part = replace(layout, num_outputs=count)
        tile = first // TILE
        packed = np.zeros(part.nbytes, np.uint8)

        def copy(stream: int, step: int, to: int) -> None:
            size = part.num_tiles * step
            start = offset + stream + tile * step
            packed[to : to + size] = self._shards.read_range(home.tensor, start, size)

        copy(0, layout.tile_nbytes, 0)
        for place in range(1 if layout.zero is not None else 2):
            copy(
                layout.codes_nbytes + place * layout.scales_nbytes,
                layout.tile_scales_nbytes,
                part.codes_nbytes + place * part.scales_nbytes,
            )
        return self._checked(name, PackedTensor(packed, part))

    def _checked(self, name: str, tensor: PackedTensor) -> PackedTensor:
        if not tensor.has_finite_scales():
            problem = "has a code or a scale" if tensor.layout.fp8 else "has a scale"
            raise self._refuse(self._homes[name].tensor, name, f"{problem} that is not finite")
        return tensor

    def _add_file(self, path: Path, strings: Mapping[str, str]) -> None:
        if strings[LAYOUT_KEY] != LAYOUT_NAME:
            raise CheckpointError(
                f"{path} has the layout {strings[LAYOUT_KEY][:40]!r}, which is not supported",
                path=path,
                hint=f"supported: {LAYOUT_NAME}; it may come from a newer version",
            )
        names = self._shards.names_in(path)
        records = decode_experts(strings.get(EXPERTS_KEY, "{}"), path)
        for name in names:
            prefix, _, number = name.rpartition(".")
            if prefix in records and number.isdecimal():
                self._check_size(name, records[prefix].nbytes)
                if self._shards.entry(name).offset % RECORD_ALIGNMENT:
                    raise self._refuse(
                        name, name, f"does not begin at a multiple of {RECORD_ALIGNMENT} bytes"
                    )
                self._add_record(prefix, int(number), records[prefix], path, name)
                for part, place in records[prefix].parts.items():
                    self._homes[f"{name}.{part}{_WEIGHT}"] = _Home(name, place)
                self.claimed.add(name)
        for name, place in decode_matrices(strings.get(MATRICES_KEY, "{}"), path).items():
            if name not in names:
                raise self._refuse(None, name, f"is described in {path} but is not there")
            self._check_size(name, place.end)
            self._homes[name] = _Home(name, place)
            self.claimed.add(name)

    def _add_record(
        self, prefix: str, number: int, record: ExpertRecord, path: Path, name: str
    ) -> None:
        if self._records.setdefault(prefix, record) != record:
            raise self._refuse(
                name, name, "is described in another way than other experts of its layer"
            )
        offset = self._shards.entry(name).offset
        self._experts.setdefault(prefix, {})[number] = (path, offset)

    def _check_size(self, name: str, wanted: int) -> None:
        entry = self._shards.entry(name)
        if entry.dtype != "U8" or entry.nbytes != wanted:
            raise self._refuse(
                name,
                name,
                f"has {entry.nbytes} bytes of {entry.dtype}, described are {wanted} of U8",
            )

    def _refuse(self, tensor: str | None, name: str, problem: str) -> CheckpointError:
        path = self._shards.directory if tensor is None else self._shards.path(tensor)
        return CheckpointError(
            f"tensor {name[:160]!r} in {path} {problem}",
            path=path,
            tensor=name,
            hint="the container is damaged; copy or convert the model again",
        )
