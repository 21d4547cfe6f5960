"""Bytes received but not yet understood: lines and counted bodies, within a memory bound.

Knows lengths and newlines; knows no messages. Splitting the input differently changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.limits import MAX_LINE_BYTES, MAX_MAP_LINE_BYTES

if TYPE_CHECKING:
    import re
    from collections.abc import Container

_PREFIX_BYTES = 64  # what is kept of a skipped line; no word of ours is longer


def first_word(line: bytes) -> bytes:
    """Return what stands before the first space of a line."""
    return line[:_PREFIX_BYTES].partition(b" ")[0]


class LineBuffer:
    """Incoming bytes.

    Args:
        known_words: First words of lines that may not exceed MAX_LINE_BYTES; a longer line with
            another first word is skipped as it arrives.
        map_words: First words of lines that may have MAX_MAP_LINE_BYTES.
    """

    def __init__(self, known_words: Container[bytes], map_words: Container[bytes] = ()) -> None:
        self._data = bytearray()
        self._searched = 0
        self._num_skipped = 0  # bytes of the current line that were dropped
        self._prefix = b""  # how a line began that is being skipped
        self._known_words = known_words
        self._map_words = map_words

    def __len__(self) -> int:
        return len(self._data)

    @property
    def is_inside_line(self) -> bool:
        """Whether a line has begun but not ended."""
        return bool(self._data) or self._num_skipped > 0

    def append(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def clear(self) -> None:
        """Forget everything."""
        self._data.clear()
        self._searched = self._num_skipped = 0
        self._prefix = b""

    def take(self, count: int) -> bytes | None:
        """Return the next `count` bytes, or None while they are not all there."""
        if len(self._data) < count:
            return None
        taken = bytes(self._data[:count])
        del self._data[:count]
        self._searched = 0
        return taken

    def take_line(self) -> bytes | None:
        r"""Return the next line without its `\n`, or None while none is complete.

        Of a skipped line only the beginning is returned.

        Raises:
            RemoteProtocolError: The line is longer than it may be.
        """
        end = self._data.find(b"\n", self._searched)
        length = (end if end >= 0 else len(self._data)) + self._num_skipped
        if length > MAX_LINE_BYTES:
            self._check_long_line(length)
        if end < 0:
            self._searched = len(self._data)
            return None
        line = self.take(end)
        del self._data[:1]
        if self._num_skipped:
            line, self._prefix, self._num_skipped = self._prefix, b"", 0
        return line

    def take_counted(self, head: re.Pattern[bytes], most: int) -> tuple[int, bytes] | None:
        r"""Return number and payload of a line with a counted body, if all of it comes next.

        Short for `take_line` and `take`, for what comes very often. None leaves the bytes to those:
        another line, one that is not complete, or a fault.

        Args:
            head: The line with its `\n`; its groups are the number and the size of the body.
            most: Largest size of a body.
        """
        match = head.match(self._data)
        if match is None or self._num_skipped:
            return None
        begin, size = match.end(), int(match[2])
        end = begin + size
        if size > most or len(self._data) <= end or self._data[end] != 0x0A:
            return None
        number, payload = int(match[1]), bytes(self._data[begin:end])
        del self._data[: end + 1]
        self._searched = 0
        return number, payload

    def take_match(self, pattern: re.Pattern[bytes], keep: int) -> re.Match[bytes] | None:
        """Drop everything up to and including the first match and return it.

        Without a match only the last `keep` bytes stay: fewer than the longest match has.
        """
        match = pattern.search(bytes(self._data))
        del self._data[: match.end() if match else max(0, len(self._data) - keep)]
        return match

    def _check_long_line(self, length: int) -> None:
        """Refuse a line that is too long; drop what has arrived of one that is nobody's."""
        start = self._prefix or bytes(self._data[:_PREFIX_BYTES])
        word = first_word(start)
        if word in self._known_words and word not in self._map_words:
            raise RemoteProtocolError(
                f"a {word.decode()} line is longer than {MAX_LINE_BYTES} bytes"
            )
        if length > MAX_MAP_LINE_BYTES:
            raise RemoteProtocolError(f"a line is longer than {MAX_MAP_LINE_BYTES} bytes")
        if word not in self._map_words and self._data.find(b"\n", self._searched) < 0:
            self._prefix = start
            self._num_skipped += len(self._data)
            self._data.clear()
