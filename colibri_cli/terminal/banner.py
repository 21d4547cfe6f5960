"""The hummingbird beside four lines of text, as plain codes: nothing heavy is imported to greet.

Two rows of the drawing make one line of the terminal: the upper pixel is the colour of a half
block, the lower one its background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.palette import PALETTE

if TYPE_CHECKING:
    from collections.abc import Sequence

# One letter, one pixel: teal back, cyan wing, magenta throat, orange bill, green belly, amber tail.
BIRD: Final = (
    "..CC............",
    "..CCCC...TTT....",
    "...CCCCCTTTTT...",
    "....CCCCTTT.TOOO",
    ".....CCTTTTMM...",
    "......TTTTGMM...",
    ".....TTTTGGG....",
    "...TTTTGGG......",
    ".ATTT..A........",
    "AA..............",
)
_NAMES: Final = {
    "C": "accent", "T": "brand", "M": "marker", "O": "code", "G": "good", "A": "warn",
}  # fmt: skip
# Names of the palette, and its numbers: on a dark background, on a light one.
PIXELS: Final = {pixel: (name, *PALETTE[name]) for pixel, name in _NAMES.items()}
FAINT: Final = PALETTE["faint"]
_NOTHING: Final = "."
_RULE: Final = 58
_NARROW: Final = 60
_GAP: Final = 2
_TEXT_FROM: Final = 1  # the line that the bill points at


def render(
    texts: Sequence[str],
    *,
    width: int,
    has_color: bool,
    is_light: bool = False,
    has_blocks: bool = True,
) -> str:
    """Return the banner, whole lines.

    Args:
        texts: Name, tagline, model and note; empty ones are left out.
        width: Columns there are; below 60 there are only the texts.
        has_color: Colours may be used.
        is_light: They are for a light background.
        has_blocks: The terminal can show half blocks.
    """
    texts = [text for text in texts if text]
    is_drawn = width >= _NARROW and has_blocks
    room = width - (len(BIRD[0]) + _GAP if is_drawn else 0)
    styled = [
        _styled(_cut(text, room), _style(n, is_light=is_light) if has_color else "")
        for n, text in enumerate(texts)
    ]
    if not is_drawn:
        return "".join(f"{line}\n" for line in styled)
    rows = []
    for number in range(len(BIRD) // 2):
        upper, lower = BIRD[2 * number], BIRD[2 * number + 1]
        drawing = _line(upper, lower, has_color=has_color, is_light=is_light)
        index = number - _TEXT_FROM
        text = styled[index] if 0 <= index < len(styled) else ""
        rows.append(f"{drawing}{' ' * _GAP}{text}".rstrip())
    rule = _styled("─" * _RULE, f"38;5;{FAINT[is_light]}" if has_color else "")
    return "\n".join([*rows, rule, ""])


def _line(upper: str, lower: str, *, has_color: bool, is_light: bool) -> str:
    """Return two rows of pixels as one line; neighbours of the same look share their codes."""
    cells = [
        _cell(*pair, has_color=has_color, is_light=is_light)
        for pair in zip(upper, lower, strict=True)
    ]
    parts, start = [], 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end][1] != cells[start][1]:
            text = "".join(character for character, _ in cells[start:end])
            parts.append(_styled(text, cells[start][1]))
            start = end
    return "".join(parts)


def _cell(upper: str, lower: str, *, has_color: bool, is_light: bool) -> tuple[str, str]:
    """Return the character of two pixels, one above the other, and its codes."""
    if upper == lower == _NOTHING:
        return " ", ""
    if lower == _NOTHING:
        return "▀", _ink(upper, is_light=is_light) if has_color else ""
    if upper == _NOTHING:
        return "▄", _ink(lower, is_light=is_light) if has_color else ""
    if upper == lower or not has_color:
        return "█", _ink(upper, is_light=is_light) if has_color else ""
    paper = PIXELS[lower][1 + is_light]
    return "▀", f"{_ink(upper, is_light=is_light)};48;5;{paper}"


def _ink(pixel: str, *, is_light: bool) -> str:
    return f"38;5;{PIXELS[pixel][1 + is_light]}"


def _style(number: int, *, is_light: bool) -> str:
    if number == 0:
        return "1;" + _ink("T", is_light=is_light)
    return f"38;5;{FAINT[is_light]}" if number != 2 else _ink("C", is_light=is_light)


def _styled(text: str, codes: str) -> str:
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _cut(text: str, room: int) -> str:
    """Return a text that fits."""
    if text.isascii() and len(text) <= room:
        return text
    from rich.cells import cell_len

    if cell_len(text) <= room:
        return text
    kept = text
    while cell_len(kept) > room - 1:
        kept = kept[:-1]
    return kept + "…"
