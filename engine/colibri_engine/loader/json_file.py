"""JSON files and headers that nobody vouches for, bounded before they are parsed."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final, cast

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.weight_file import WeightFile
from colibri_protocol.json_text import load_object

if TYPE_CHECKING:
    from pathlib import Path

# Values one document may hold: 12 million Python objects are about a gigabyte. The largest real
# documents, a tokenizer of 300,000 tokens and a header of 120,000 tensors, hold about two.
_MAX_VALUES: Final = 12_000_000
_MAX_DEPTH: Final = 32  # real ones have some ten levels; repr and the like recurse


def is_there(path: Path) -> bool:
    """Tell whether a name is taken, be it by a link to nothing: to read that is an error.

    Whoever may do without a file asks this; a broken link means one that was lost, not one that a
    model never had.
    """
    return os.path.lexists(path)


def read_json(path: Path, max_bytes: int) -> dict[str, object]:
    """Read a JSON object from a file.

    Raises:
        CheckpointError: the file is missing, too large or no JSON object.
    """
    return parse_json(read_whole(path, max_bytes), path, path.name)


def read_whole(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file.

    Raises:
        CheckpointError: the file is missing or larger than `max_bytes`.
    """
    file = WeightFile(path)
    try:
        if file.size > max_bytes:
            raise CheckpointError(
                f"{path} has {file.size} bytes, more than the {max_bytes} allowed",
                path=path,
                hint="the file is damaged or not what its name says",
            )
        return file.read(0, file.size).tobytes()
    finally:
        file.close()


def parse_json(data: bytes, path: Path, what: str) -> dict[str, object]:
    """Parse a JSON object.

    Args:
        data: Its UTF-8 text.
        path: The file it stands in.
        what: What to call it in a message.

    Raises:
        CheckpointError: it is not a JSON object, names a key twice, or holds too many values.
    """
    num_values = data.count(b",") + data.count(b"[") + data.count(b"{") + data.count(b":")
    problem = f"holds more than {_MAX_VALUES} values" if num_values > _MAX_VALUES else None
    if problem is None:
        try:
            body = load_object(data)
        except ValueError as exc:
            problem = str(exc)
        else:
            if _depth_is_within(body, _MAX_DEPTH):
                return body
            problem = f"is nested more than {_MAX_DEPTH} levels deep"
    raise CheckpointError(
        f"{what} of {path} {problem}" if what != path.name else f"{path} {problem}",
        path=path,
        hint="the file is damaged; pull or copy the model again",
    )


def finite_number(value: object) -> float | None:
    """Return a value of JSON as a float; None for what is none, or beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer may have any number of digits
        return None
    return number if math.isfinite(number) else None


def shown(value: object, limit: int = 60) -> str:
    """Return a value of JSON for a message: printable, and not longer than a few words."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _depth_is_within(body: object, limit: int) -> bool:
    level: list[object] = [body]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else cast("list[object]", node))
            if isinstance(child, dict | list)
        ]
        if not level:
            return True
    return False
