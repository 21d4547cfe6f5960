"""Chunked bodies, read by the letter; no I/O.

Not h11's reader: that one lets control characters pass in chunk extensions and takes bare line
feeds, where another reader may see the end of a line. Extensions and trailers are checked for their
form and dropped. Source: RFC 9112 7.1.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from colibri_cli.gateway.http_types import HttpError

_TEXT: Final = rb"[\t -~\x80-\xff]*"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,20})[\t ]*(?:;" + _TEXT + rb")?\r\n")
_TRAILER_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _TEXT + rb"\r\n")
# Sizes, line ends and trailers beyond the payload itself: one byte per chunk costs far more time
# than it carries.
_MAX_OVERHEAD: Final = 64 * 1024


class _Part(Enum):
    SIZE = auto()
    PAYLOAD = auto()
    PAYLOAD_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkDecoder:
    """Takes a chunked body as it comes and gives its payload.

    Attributes:
        num_due: Bytes of payload that the present chunk still has to bring.
    """

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # what is before was taken
        self._part = _Part.SIZE
        self._overhead = 0
        self.num_due = 0

    @property
    def is_complete(self) -> bool:
        """Whether the last chunk and the trailer were read."""
        return self._part is _Part.NOTHING

    @property
    def leftover(self) -> bytes:
        """What was fed and is not taken; once the body is complete, what follows it."""
        return self._data[self._at :]

    def feed(self, data: bytes) -> bytes:
        """Return the payload of the next bytes.

        Raises:
            HttpError: 400, malformed chunks, or chunks so small that they are mostly overhead.
        """
        self._data, self._at = self.leftover + data, 0
        pieces: list[bytes] = []
        while not self.is_complete and self._step(pieces):
            pass
        return b"".join(pieces)

    def _step(self, pieces: list[bytes]) -> bool:
        """Take one part; return whether there may be another one."""
        if self._part is _Part.PAYLOAD:
            piece = self._data[self._at : self._at + self.num_due]
            pieces.append(piece)
            self._at += len(piece)
            self.num_due -= len(piece)
            if not self.num_due:
                self._part = _Part.PAYLOAD_END
            return bool(piece)
        line = self._take_line()
        if line is None:
            return False
        if self._part is _Part.SIZE:
            size = _SIZE_LINE.fullmatch(line)
            if size is None:
                raise _malformed()
            self.num_due = int(size[1], 16)
            self._part = _Part.PAYLOAD if self.num_due else _Part.TRAILER
        elif line == b"\r\n":
            is_last = self._part is _Part.TRAILER
            self._part = _Part.NOTHING if is_last else _Part.SIZE
        elif self._part is _Part.PAYLOAD_END or not _TRAILER_LINE.fullmatch(line):
            raise _malformed()
        return True

    def _take_line(self) -> bytes | None:
        """Return the next line with its end; None when it is not complete yet."""
        end = self._data.find(b"\n", self._at) + 1
        length = (end or len(self._data)) - self._at
        if self._overhead + length > _MAX_OVERHEAD:
            raise HttpError(400, "the chunks of the body are too small for its size")
        if self._part is _Part.PAYLOAD_END and length > 2:
            raise _malformed()
        if not end:
            return None
        line = self._data[self._at : end]
        self._at = end
        self._overhead += length
        return line


def _malformed() -> HttpError:
    return HttpError(400, "the chunked body is malformed")
