"""Strict JSON: one object in UTF-8, no NaN, no name given twice; compact when written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Mapping


def load_object(text: bytes) -> dict[str, object]:
    """Parse a JSON object.

    Raises:
        ValueError: Saying what is wrong, without quoting the text.
    """
    try:
        body: object = json.loads(
            text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique_names
        )
    except _Refused:
        raise
    except (ValueError, RecursionError) as exc:
        raise ValueError("must be a JSON object in UTF-8") from exc
    loaded = as_object(body)
    if loaded is None:
        raise ValueError("must be a JSON object")
    return loaded


def dump_object(body: Mapping[str, object]) -> bytes:
    """Write a JSON object without spaces.

    Raises:
        ValueError: A value is NaN, infinite or no JSON at all, or the text is not Unicode.
    """
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def as_object(value: object) -> dict[str, object] | None:
    """Return a parsed JSON object with its type, or None."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    """Return a parsed JSON array with its type, or None."""
    return cast("list[object]", value) if isinstance(value, list) else None


class _Refused(ValueError):
    """JSON that the module `json` would take."""


def _refuse_constant(word: str) -> NoReturn:
    raise _Refused(f"holds {word}, which is not a JSON number")


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise _Refused("names a field twice")
    return body
