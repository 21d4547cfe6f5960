"""Which weight files are worth a copy on a second disk, by how often their experts were chosen.

A file's worth is the bytes of its experts, each times its selections, over the file's size. A part
of an expert counts only once the file with that expert's gate matrix is chosen: half an expert is
no use to a reader.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colibri_cli.plugin_api import ColibriError

MAX_HEADER_BYTES = 512 << 20
_EXPERT = re.compile(r"^model\.layers\.(\d+)\..*experts\.(\d+)(?:\.(.+))?$")
_STACK = re.compile(r"^model\.layers\.(\d+)\..*\.experts\.[a-z]")  # all experts of a layer in one
_GATE = re.compile(r"gate|^w1\b")
_USAGE_LINE = re.compile(r"(-?\d+) (\d+) (\d+)")

Usage = Mapping[tuple[int, int], int]
Key = tuple[int, int]  # layer, expert


@dataclass(slots=True)
class WeightFile:
    """One file and the experts in it.

    Args:
        path: The file.
        nbytes: Its size.
        whole: Bytes that count at once, by expert: gate matrices, or records of whole experts.
        parts: Bytes that count when the expert's gate is chosen too.
        layers: Bytes of all experts of a layer in one tensor, by layer; -1 for all layers.
    """

    path: Path
    nbytes: int
    whole: dict[Key, int] = field(default_factory=dict)
    parts: dict[Key, int] = field(default_factory=dict)
    layers: dict[int, int] = field(default_factory=dict)


def weight_files(roots: Sequence[Path]) -> list[WeightFile]:
    """Return the weight files of a model with their experts, by name.

    Raises:
        ColibriError: a header cannot be read, or there are no weight files.
    """
    found: dict[str, WeightFile] = {}
    for root in roots:
        names = [root] if root.is_file() else sorted(root.iterdir())
        for path in names:
            if path.suffix in {".safetensors", ".gguf"} and path.name not in found:
                found[path.name] = _weight_file(path)
    if not found:
        raise ColibriError(f"there are no weight files in {', '.join(map(str, roots))}")
    return [found[name] for name in sorted(found)]


def read_usage(path: Path) -> dict[Key, int]:
    """Return selections by layer and expert; empty where there is no history.

    Raises:
        ColibriError: it is damaged.
    """
    counts: dict[Key, int] = {}
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return counts
    except (OSError, UnicodeDecodeError) as error:
        raise ColibriError(f"the history {path} cannot be read") from error
    for number, line in enumerate(lines, 1):
        numbers = _USAGE_LINE.fullmatch(line.strip())
        if numbers is None:
            raise ColibriError(f"the history {path} is damaged in line {number}")
        layer, expert, count = map(int, numbers.groups())
        if layer >= 0:
            counts[layer, expert] = counts.get((layer, expert), 0) + count
    return counts


def choose(
    files: Sequence[WeightFile], usage: Usage, budget: int
) -> list[tuple[WeightFile, float]]:
    """Return the files to copy, the worthiest first, with their worth; none beyond the budget."""
    chosen: list[tuple[WeightFile, float]] = []
    gates: set[Key] = set()
    left = list(files)
    while left:
        ranked = sorted(
            ((_worth(file, usage, gates), file) for file in left if file.nbytes <= budget),
            key=lambda row: (-row[0], row[1].path.name),
        )
        if not ranked or ranked[0][0] <= 0:
            break
        worth, best = ranked[0]
        chosen.append((best, worth))
        gates |= best.whole.keys()
        budget -= best.nbytes
        left.remove(best)
    return chosen


def _worth(file: WeightFile, usage: Usage, gates: set[Key]) -> float:
    if file.nbytes == 0:
        return 0.0
    useful = sum(nbytes * usage.get(key, 0) for key, nbytes in file.whole.items())
    useful += sum(
        nbytes * usage.get(key, 0)
        for key, nbytes in file.parts.items()
        if key in gates or key in file.whole
    )
    if file.layers:
        totals: dict[int, int] = {}
        for (layer, _), count in usage.items():
            for counted in (layer, -1):
                totals[counted] = totals.get(counted, 0) + count
        useful += sum(nbytes * totals.get(layer, 0) for layer, nbytes in file.layers.items())
    return useful / file.nbytes


def _weight_file(path: Path) -> WeightFile:
    file = WeightFile(path, path.stat().st_size)
    if path.suffix == ".gguf":  # not looked into: every file has its share of all experts
        file.layers[-1] = file.nbytes
        return file
    for name, nbytes in tensors_of(path):
        if known := _EXPERT.match(name):
            key = int(known[1]), int(known[2])
            is_whole = known[3] is None or _GATE.search(known[3]) is not None
            target = file.whole if is_whole else file.parts
            target[key] = target.get(key, 0) + nbytes
        elif stacked := _STACK.match(name):
            layer = int(stacked[1])
            file.layers[layer] = file.layers.get(layer, 0) + nbytes
    return file


def tensors_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of each tensor of a safetensors file.

    Raises:
        ColibriError: it is none.
    """
    for name, row in _header(path).items():
        if name != "__metadata__":
            try:
                first, last = row["data_offsets"]
                yield name, int(last) - int(first)
            except (KeyError, TypeError, ValueError) as error:
                raise ColibriError(f"the header of {path} is damaged at {name}") from error


def header_bytes(path: Path) -> bytes:
    """Return what begins a weight file: length and header of safetensors, 1 MiB of others."""
    with path.open("rb") as file:
        if path.suffix != ".safetensors":
            return file.read(1 << 20)
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        return start + file.read(min(length, MAX_HEADER_BYTES))


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(header_bytes(path)[8:])
    except OSError as error:
        raise ColibriError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ColibriError(f"the header of {path} is damaged") from error
    if not isinstance(header, dict):
        raise ColibriError(f"the header of {path} is damaged")
    return header
