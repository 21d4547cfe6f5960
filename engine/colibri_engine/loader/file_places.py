"""Which weight files must be at hand to read a tensor."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from colibri_engine.loader.shards import ShardSet

_LAYER: Final = re.compile(r"\.(layers\.[0-9]+)\.")


class FilePlaces:
    """Where tensors lie, by file name.

    Args:
        shards: The files.
    """

    def __init__(self, shards: ShardSet) -> None:
        self._names = sorted(shards.names())
        self._files = {name: shards.path(name).name for name in self._names}
        self._layers: dict[str, set[str]] = {}
        for name, file in self._files.items():
            self._layers.setdefault(_layer_of(name), set()).add(file)

    def of(self, name: str) -> frozenset[str]:
        """Return the files of a tensor and of what begins with its name (its scales).

        Where no stored tensor has the name it is a part of others: then those of its layer.
        """
        if name not in self._files:
            return frozenset(self._layers.get(_layer_of(name), ()))
        found: set[str] = set()
        for other in self._names[bisect_left(self._names, name) :]:
            if not other.startswith(name):
                break
            found.add(self._files[other])
        return frozenset(found)


def _layer_of(name: str) -> str:
    match = _LAYER.search(name)
    return "" if match is None else match.group(1)
