"""Fields of a line: strict reading of numbers and hex, and how numbers are written.

Every reader raises FieldError with a reason; the caller knows what that means for its line.
"""

from __future__ import annotations

import math
import re
from typing import Final

from colibri_protocol.limits import MAX_ID

_WHOLE: Final = re.compile(rb"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_NOT_FINITE: Final = re.compile(rb"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


class FieldError(ValueError):
    """A field of a line, or of the JSON in a body, is not what it must be."""


def read_whole(field: bytes, low: int = 0, high: int = MAX_ID) -> int:
    """Read a decimal integer in low..high."""
    if not _WHOLE.fullmatch(field):
        raise FieldError(f"{show(field)} is not a whole number")
    value = int(field)
    if not low <= value <= high:
        raise FieldError(f"{value} is not in {low}..{high}")
    return value


def read_id(field: bytes) -> int:
    """Read a request id."""
    return read_whole(field, 1)


def read_number(field: bytes) -> float:
    """Read a finite number."""
    if not _NUMBER.fullmatch(field):
        raise FieldError(f"{show(field)} is not a number")
    value = float(field)
    if not math.isfinite(value):
        raise FieldError(f"{show(field)} is too large")
    return value


def read_measure(field: bytes) -> float:
    """Read a number that was computed: what C prints for 0/0 reads as 0."""
    return 0.0 if _NOT_FINITE.fullmatch(field) else read_number(field)


def read_hex(field: bytes, num_bytes: int) -> bytes:
    """Read exactly `num_bytes` bytes of two hex digits each."""
    if len(field) != 2 * num_bytes:
        raise FieldError(f"{len(field)} hex digits instead of {2 * num_bytes}")
    return bytes.fromhex(field.decode("ascii"))


def read_text(field: bytes) -> str:
    """Read text for people: broken UTF-8 is replaced, the ends trimmed."""
    return field.decode(errors="replace").strip()


def expect_fields(rest: bytes, count: int) -> list[bytes]:
    """Split a line's rest into at least `count` fields."""
    found = rest.split()
    if len(found) < count:
        raise FieldError(f"{len(found)} fields instead of {count}")
    return found


def show(field: bytes) -> str:
    """Show a few bytes of what was received."""
    return repr(field[:32].decode("ascii", errors="replace"))


def write_number(value: float) -> str:
    """Write a number in its shortest form of at most 8 significant digits."""
    return f"{value:.8g}"
