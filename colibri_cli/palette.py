"""The colours of the terminal by what they stand for; a leaf, since greeting imports no Rich."""

from __future__ import annotations

from typing import Final

# Numbers of the 256 colours: on a dark background, on a light one. A test holds each to a contrast
# that can be read.
PALETTE: Final = {
    "brand": (37, 30),
    "accent": (80, 24),
    "marker": (170, 127),
    "code": (208, 130),
    "good": (78, 28),
    "warn": (179, 94),
    "bad": (203, 160),
    "faint": (242, 242),
}
