"""The metadata of a GGUF file: a bounded parser and typed access.

Every count, length and range is checked against the bytes that are really there before anything
is allocated for it. Little endian, versions 2 and 3.
Source: the GGUF format description.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine.errors import CheckpointError

if TYPE_CHECKING:
    from colibri_engine.loader.weight_file import WeightFile

_STRING: Final = 8
_ARRAY: Final = 9
_BOOL: Final = 7
_NUMBERS: Final = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_SCALARS: Final = {
    kind: struct.Struct(code)
    for kind, code in {
        0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B",
        10: "<Q", 11: "<q", 12: "<d",
    }.items()
}  # fmt: skip

_FIRST_READ: Final = 4 << 20
_MAX_KEY_BYTES: Final = 65_535  # the format's own limit
_MAX_STRING_BYTES: Final = 64 << 20  # a chat template or an embedded tokenizer.json
_MAX_ELEMENTS: Final = 1 << 24  # the largest vocabularies have some 300,000 tokens and merges
_MAX_NESTING: Final = 2
_MIN_STRING_BYTES: Final = 8
_MIN_ARRAY_BYTES: Final = 12

_U64: Final = struct.Struct("<Q")


class Cursor:
    """Reads forward through the start of a file, fetching more as needed.

    Args:
        file: The file.
    """

    def __init__(self, file: WeightFile) -> None:
        self._file = file
        self._buffer = b""
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes of the file not yet passed."""
        return self._file.size - self.position

    def fail(self, problem: str) -> CheckpointError:
        """Return the error for a malformed file."""
        return CheckpointError(
            f"{self._file.path} is damaged: {problem} (near byte {self.position})",
            path=self._file.path,
            hint="pull or copy the model again",
        )

    def scalar(self, kind: int) -> int | float | bool:
        """Read one number of a GGUF value type."""
        parser = _SCALARS[kind]
        start = self._advance(parser.size)
        (value,) = parser.unpack_from(self._buffer, start)
        if kind == _BOOL:
            if value > 1:
                raise self.fail(f"a boolean is {value}")
            return bool(value)
        return value  # type: ignore[no-any-return]

    def u32(self) -> int:
        """Read one unsigned 32-bit number."""
        return int(self.scalar(4))

    def u64(self) -> int:
        """Read one unsigned 64-bit number."""
        return int(self.scalar(10))

    def text(self, max_bytes: int = _MAX_STRING_BYTES) -> str:
        """Read one length-prefixed UTF-8 string."""
        length = self.u64()
        if length > max_bytes:
            raise self.fail(f"a string claims {length} bytes, more than {max_bytes}")
        start = self._advance(length)
        return self._decode(self._buffer[start : start + length])

    def value(self, kind: int, depth: int = 0) -> Any:  # noqa: ANN401 - the file decides
        """Read one value: a number, bool, str, numpy array, or list of str or of such values."""
        if kind in _SCALARS:
            return self.scalar(kind)
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.fail(f"unknown value type {kind}")
        if depth >= _MAX_NESTING:
            raise self.fail("arrays are nested too deeply")
        element = self.u32()
        count = self.u64()
        if count > _MAX_ELEMENTS:
            raise self.fail(f"an array claims {count} elements, more than {_MAX_ELEMENTS}")
        if element in _NUMBERS:
            dtype = np.dtype(_NUMBERS[element])
            start = self._advance(count * dtype.itemsize)
            return np.frombuffer(self._buffer, dtype, count, start).copy()
        if element == _STRING:
            return self._texts(count)
        if count * _MIN_ARRAY_BYTES > self.remaining:
            raise self.fail(f"an array claims {count} arrays, more than the file holds")
        return [self.value(element, depth + 1) for _ in range(count)]

    def _texts(self, count: int) -> list[str]:
        if count * _MIN_STRING_BYTES > self.remaining:
            raise self.fail(f"an array claims {count} strings, more than the file holds")
        texts: list[str] = []
        position, read_length = self.position, _U64.unpack_from
        while len(texts) < count:
            # The fast loop runs to the end of what is in memory.
            buffer, limit = self._buffer, len(self._buffer) - 8
            try:
                while len(texts) < count and position <= limit:
                    (length,) = read_length(buffer, position)
                    end = position + 8 + length
                    if end > limit + 8:
                        break
                    texts.append(str(buffer[position + 8 : end], "utf-8"))
                    position = end
            except UnicodeDecodeError as exc:
                self.position = position
                raise self.fail("a string is not UTF-8") from exc
            self.position = position
            if len(texts) < count:
                texts.append(self.text())
                position = self.position
        return texts

    def _advance(self, count: int) -> int:
        """Make `count` more bytes available, step past them and return where they begin."""
        start, end = self.position, self.position + count
        if end > len(self._buffer):
            if end > self._file.size:
                raise CheckpointError(
                    f"{self._file.path} looks incomplete: its header needs at least {end} bytes, "
                    f"found {self._file.size}",
                    path=self._file.path,
                    hint="pull or copy the model again",
                )
            have = len(self._buffer)
            want = min(max(end, 2 * have, _FIRST_READ), self._file.size)
            self._buffer += self._file.read(have, want - have).tobytes()
        self.position = end
        return start

    def _decode(self, raw: bytes) -> str:
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as exc:
            raise self.fail("a string is not UTF-8") from exc


def read_pairs(cursor: Cursor, count: int) -> dict[str, Any]:
    """Read `count` key/value pairs.

    Raises:
        CheckpointError: they are malformed, or a key stands twice.
    """
    pairs: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text(_MAX_KEY_BYTES)
        if key in pairs:
            raise cursor.fail(f"the metadata key {key[:80]!r} stands twice")
        pairs[key] = cursor.value(cursor.u32())
    return pairs
