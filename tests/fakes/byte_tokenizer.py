"""A tokenizer whose ids are bytes, followed by a few control tokens. No files, no surprises."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Iterable

EOS = 256
USER = 257
PAIR = 258  # an ordinary token of several bytes that end inside a character: "h" and half of "é"
VOCAB_SIZE = 260


class ByteTokenizer:
    special_tokens: ClassVar = {"<eos>": EOS, "<|user|>": USER}
    vocab_size = VOCAB_SIZE

    def encode(self, segments: Iterable[Segment]) -> list[int]:
        ids: list[int] = []
        for segment in segments:
            pieces = [segment.text]
            if segment.kind is SegmentKind.CONTROL:
                pieces = re.split(r"(<eos>|<\|user\|>)", segment.text)
            for piece in pieces:
                if segment.kind is SegmentKind.CONTROL and piece in self.special_tokens:
                    ids.append(self.special_tokens[piece])
                else:
                    ids.extend(piece.encode())
        return ids

    def encode_text(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        return {EOS: b"<eos>", USER: b"<|user|>", PAIR: b"h\xc3"}.get(token_id, b"?")
