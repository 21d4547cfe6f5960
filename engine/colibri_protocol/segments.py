r"""Framed prompts: `C <n>\n<n bytes>` and `T <n>\n<n bytes>`, one after the other.

A control segment may spell special tokens, a text segment never does, so a user's words cannot
become control words.
"""

from __future__ import annotations

from typing import Final

from colibri_protocol.limits import MAX_PROMPT_BYTES, MAX_SEGMENTS, TooLarge
from colibri_protocol.messages import Segment, SegmentKind

_HEADER_BYTES: Final = 16  # kind, space, at most 8 digits, newline: with room to spare


def join_segments(segments: tuple[Segment, ...]) -> bytes:
    """Write segments as one payload.

    Raises:
        TooLarge: Too many, or too long.
        ValueError: No Unicode text.
    """
    if len(segments) > MAX_SEGMENTS:
        raise TooLarge(f"{len(segments)} segments, at most {MAX_SEGMENTS} are allowed")
    parts: list[bytes] = []
    for segment in segments:
        payload = segment.text.encode()
        parts += (f"{segment.kind.value} {len(payload)}\n".encode(), payload)
    joined = b"".join(parts)
    if len(joined) > MAX_PROMPT_BYTES:
        raise TooLarge(f"a prompt of {len(joined)} bytes, at most {MAX_PROMPT_BYTES} are allowed")
    return joined


def split_segments(payload: bytes) -> tuple[Segment, ...]:
    """Read the segments of a payload.

    Raises:
        ValueError: The payload is not exactly a row of segments in UTF-8.
    """
    segments: list[Segment] = []
    position = 0
    while position < len(payload):
        if len(segments) == MAX_SEGMENTS:
            raise ValueError(f"more than {MAX_SEGMENTS} segments")
        newline = payload.find(b"\n", position, position + _HEADER_BYTES)
        kind, _, size = payload[position : max(newline, position)].partition(b" ")
        if kind not in {b"C", b"T"} or not size.isdigit():
            raise ValueError(f"no segment header at byte {position}")
        start = newline + 1
        position = start + int(size)
        if position > len(payload):
            raise ValueError(f"the segment at byte {start} is shorter than announced")
        segments.append(Segment(SegmentKind(kind.decode()), _text(payload[start:position], start)))
    return tuple(segments)


def _text(payload: bytes, start: int) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"the segment at byte {start} is not UTF-8") from exc
