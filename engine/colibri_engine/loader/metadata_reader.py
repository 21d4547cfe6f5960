"""Typed reading of untrusted key/value data, with the key and the limit in every refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REQUIRED: Final = object()


class MetadataReader:
    """Access to metadata by key and type.

    Args:
        data: Keys and values.
        path: The file they come from, for messages.
    """

    def __init__(self, data: Mapping[str, Any], path: Path) -> None:
        self._data = data
        self._path = path

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def integer(self, key: str, low: int, high: int, default: object = REQUIRED) -> Any:  # noqa: ANN401 - int, or the default's type
        """Return an integer within low..high, or `default` when the key is absent."""
        value = self._get(key, default)
        if value is default and default is not REQUIRED:
            return value
        if isinstance(value, np.ndarray):  # one entry per layer, allowed when all agree
            value = self._uniform(key, value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(f"{key} is {value!r}, not an integer")
        if not low <= value <= high:
            raise self.fail(f"{key} is {value}, not within {low} to {high}")
        return value

    def number(self, key: str, default: object = REQUIRED) -> Any:  # noqa: ANN401
        """Return a finite number as float, or `default` when the key is absent.

        A float32 becomes the shortest decimal that means it: 1e-05, not 9.999999747378752e-06.
        """
        value = self._get(key, default)
        if value is default and default is not REQUIRED:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(f"{key} is {value!r}, not a number")
        if not np.isfinite(value):
            raise self.fail(f"{key} is {value}")
        narrow = np.float32(value)
        return float(str(narrow)) if float(narrow) == value else float(value)

    def text(self, key: str, default: object = REQUIRED) -> Any:  # noqa: ANN401
        """Return a string, or `default` when the key is absent."""
        value = self._get(key, default)
        if value is not default and not isinstance(value, str):
            raise self.fail(f"{key} is {_short(value)}, not a string")
        return value

    def boolean(self, key: str, default: object = REQUIRED) -> Any:  # noqa: ANN401
        """Return a bool, or `default` when the key is absent."""
        value = self._get(key, default)
        if value is not default and not isinstance(value, bool):
            raise self.fail(f"{key} is {_short(value)}, not a boolean")
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        value = self._get(key, REQUIRED)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"{key} is not a list of strings")
        return value

    def array(self, key: str, length: int | None) -> np.ndarray[Any, Any] | None:
        """Return an array of numbers, of the given length if any, or None for an absent key."""
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or len(value) != (length or len(value)):
            raise self.fail(f"{key} is not a list of {length or 'some'} numbers")
        return value

    def fail(self, problem: str) -> CheckpointError:
        """Return the error for a value that cannot be used."""
        return CheckpointError(
            f"{self._path}: {problem}",
            path=self._path,
            hint="the file is damaged or was made by an unsuitable converter",
        )

    def _get(self, key: str, default: object) -> Any:  # noqa: ANN401
        value = self._data.get(key, default)
        if value is REQUIRED:
            raise self.fail(f"the metadata key {key} is missing")
        return value

    def _uniform(self, key: str, values: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401
        if len(values) == 0 or not (values == values[0]).all():
            raise self.fail(f"{key} differs between layers, which is not supported")
        return values[0].item()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
