"""Where the record of every streamed expert lies: file, offset, length, and how it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from colibri_engine.loader.stream_layout import ExpertRecord
    from colibri_engine.loader.stream_tensors import StoredExperts


class RecordPlace(NamedTuple):
    """One record: the number of its file, and where it begins there."""

    file: int
    offset: int


@dataclass(frozen=True, slots=True)
class LayerRecords:
    """The records of one layer's experts.

    Args:
        prefix: What their names begin with ("model.layers.3.mlp.experts").
        record: How each is built.
        places: Where they are, by expert.
    """

    prefix: str
    record: ExpertRecord
    places: Sequence[RecordPlace]

    @property
    def nbytes(self) -> int:
        """Bytes of one record."""
        return self.record.nbytes


@dataclass(frozen=True, slots=True)
class RecordTable:
    """All streamed experts of a model.

    Args:
        paths: The files.
        layers: Their layers by prefix.
    """

    paths: Sequence[Path]
    layers: Mapping[str, LayerRecords]

    @classmethod
    def of(cls, found: Mapping[str, StoredExperts]) -> RecordTable:
        """Return the table of what a checkpoint offers."""
        numbers: dict[Path, int] = {}
        layers = {}
        for prefix, experts in found.items():
            places = [
                RecordPlace(numbers.setdefault(path, len(numbers)), offset)
                for path, offset in experts.places
            ]
            layers[prefix] = LayerRecords(prefix, experts.record, places)
        return cls(tuple(numbers), layers)
