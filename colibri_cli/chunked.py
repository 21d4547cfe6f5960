"""Chunked bodies, read by the letter; no I/O. For requests that come and for answers of others.

Not h11's reader: that one lets control characters pass in chunk extensions and takes bare line
feeds, where another reader may see the end of a line; and its events take ten times as long, which
counts where every token of an answer is a chunk. Extensions and trailers are checked for their form
and dropped. Source: RFC 9112 7.1.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

_TEXT: Final = rb"[\t -~\x80-\xff]*"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,20})[\t ]*(?:;" + _TEXT + rb")?\r\n")
_TRAILER_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _TEXT + rb"\r\n")
_MAX_LINE: Final = 4 * 1024  # extensions and trailers are allowed, and used by nobody
# Sizes, line ends and trailers beyond the payload itself: one byte per chunk costs far more time
# than it carries.
_MAX_OVERHEAD: Final = 64 * 1024


class MalformedChunks(Exception):
    """What came is no chunked body, or one that is mostly overhead."""


class _Part(Enum):
    SIZE = auto()
    PAYLOAD_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkDecoder:
    """Takes a chunked body as it comes and gives its payload.

    Args:
        may_be_small: The chunks may carry as little as they like, as those of an answer that is
            sent while it is made; otherwise what is not payload is bounded for the whole body.

    Attributes:
        num_due: Bytes of payload that the present chunk still has to bring.
        leftover: What was fed and is not taken; once the body is complete, what follows it.
    """

    def __init__(self, *, may_be_small: bool = False) -> None:
        self._may_be_small = may_be_small
        self._part = _Part.SIZE
        self._overhead = 0
        self.num_due = 0
        self.leftover = b""

    @property
    def is_complete(self) -> bool:
        """Whether the last chunk and the trailer were read."""
        return self._part is _Part.NOTHING

    def feed(self, data: bytes) -> bytes:
        """Return the payload of the next bytes.

        Raises:
            MalformedChunks: there is no way to go on.
        """
        data, at = self.leftover + data if self.leftover else data, 0
        pieces: list[bytes] = []
        while at < len(data) and self._part is not _Part.NOTHING:
            if self.num_due:
                piece = data[at : at + self.num_due]
                pieces.append(piece)
                at += len(piece)
                self.num_due -= len(piece)
                if self.num_due:
                    break
                if self._may_be_small:
                    self._overhead = 0
                if data.startswith(b"\r\n", at):  # as _read_line would, in a quarter of the time
                    at += 2
                    self._overhead += 2
                    continue
                self._part = _Part.PAYLOAD_END
            line_end = data.find(b"\n", at) + 1
            self._check_length((line_end or len(data)) - at)
            if not line_end:
                break
            self._read_line(data[at:line_end])
            at = line_end
        self.leftover = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_length(self, length: int) -> None:
        """Refuse a line, complete or not, that no well-formed body of use has."""
        if self._part is _Part.PAYLOAD_END and length > 2:
            raise MalformedChunks("a chunk is longer than its size")
        if length > _MAX_LINE:
            raise MalformedChunks(f"a line between chunks is longer than {_MAX_LINE} bytes")
        if self._overhead + length > _MAX_OVERHEAD:
            raise MalformedChunks("the chunks of the body are too small for its size")

    def _read_line(self, line: bytes) -> None:
        self._overhead += len(line)
        part = self._part
        if part is _Part.SIZE:
            size = _SIZE_LINE.fullmatch(line)
            if size is None:
                raise MalformedChunks("the size of a chunk is malformed")
            self.num_due = int(size[1], 16)
            if not self.num_due:
                self._part = _Part.TRAILER
        elif line == b"\r\n":
            self._part = _Part.NOTHING if part is _Part.TRAILER else _Part.SIZE
        elif part is _Part.PAYLOAD_END or not _TRAILER_LINE.fullmatch(line):
            raise MalformedChunks("the end of a chunk or of the chunks is malformed")
