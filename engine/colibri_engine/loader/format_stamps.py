"""What the metadata of containers claims about tensors: format names and group sizes.

A claim is checked against the bytes, never taken on trust. It may name one tensor or, with `*`
for any characters, many: `model.layers.3.mlp.experts.*`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.json_file import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

FORMAT_KEY: Final = "colibri.fmt"
GROUP_KEY: Final = "colibri.group_size"

_MAX_PATTERNS: Final = 1024
_MAX_GROUP: Final = 1 << 24

_T = TypeVar("_T")


class FormatStamps:
    """The claims of all files of a directory.

    Args:
        metadata: Each file with its metadata strings.

    Raises:
        CheckpointError: a claim is malformed, or two for one tensor differ.
    """

    def __init__(self, metadata: Iterable[tuple[Path, Mapping[str, str]]]) -> None:
        self._formats = _Claims[str](FORMAT_KEY, "a format name", _is_name)
        self._groups = _Claims[int](GROUP_KEY, "a group size", _is_group)
        for path, strings in metadata:
            self._formats.add(path, strings)
            self._groups.add(path, strings)

    def format_of(self, name: str) -> str | None:
        """Return the name of the format a tensor is claimed to have.

        Raises:
            CheckpointError: two claims for it differ.
        """
        return self._formats.of(name)

    def group_of(self, name: str) -> int | None:
        """Return the group size a tensor is claimed to have. Raises as `format_of`."""
        return self._groups.of(name)


class _Claims(Generic[_T]):
    def __init__(self, key: str, what: str, is_valid: Callable[[object], bool]) -> None:
        self._key = key
        self._what = what
        self._is_valid = is_valid
        self._exact: dict[str, tuple[_T, Path]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], _T, Path]] = {}

    def add(self, path: Path, strings: Mapping[str, str]) -> None:
        text = strings.get(self._key)
        if text is None:
            return
        for name, value in parse_json(text.encode(), path, self._key).items():
            if not self._is_valid(value):
                raise self._refuse(
                    path, name, f"is claimed to have {str(value)[:60]!r}, which is not {self._what}"
                )
            if "*" in name:
                self._add_pattern(path, name, value)  # type: ignore[arg-type]
            else:
                known = self._exact.setdefault(name, (value, path))  # type: ignore[arg-type]
                self._compare(name, known, (value, path))  # type: ignore[arg-type]

    def of(self, name: str) -> _T | None:
        claims = [
            (value, path)
            for pattern, value, path in self._patterns.values()
            if pattern.fullmatch(name)
        ]
        if name in self._exact:
            claims.append(self._exact[name])
        for claim in claims[1:]:
            self._compare(name, claims[0], claim)
        return claims[0][0] if claims else None

    def _add_pattern(self, path: Path, name: str, value: _T) -> None:
        words = (re.escape(word) for word in re.split(r"\*+", name))
        known = self._patterns.setdefault(name, (re.compile(".*".join(words)), value, path))
        self._compare(name, known[1:], (value, path))
        if len(self._patterns) > _MAX_PATTERNS:
            raise self._refuse(path, name, f"is one of more than {_MAX_PATTERNS} patterns")

    def _compare(self, name: str, one: tuple[_T, Path], other: tuple[_T, Path]) -> None:
        if one[0] != other[0]:
            raise self._refuse(
                other[1],
                name,
                f"is claimed to have {one[0]!r} in {one[1].name} and {other[0]!r} in "
                f"{other[1].name}",
            )

    def _refuse(self, path: Path, name: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{path}: {self._key}: {name[:120]!r} {problem}",
            path=path,
            tensor=name[:120],
            hint="the container is damaged or mixes two conversions; convert or copy it again",
        )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and value.isprintable()


def _is_group(value: object) -> bool:
    return type(value) is int and 0 < value <= _MAX_GROUP
