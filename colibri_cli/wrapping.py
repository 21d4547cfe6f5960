"""Where lines are broken: between words, what is wrapped goes on below its column."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COLUMN: Final = re.compile(r" +(?=\S)|\S.*?  +(?=\S)")
_WORD: Final = re.compile(r"\S+")
_FIGURE: Final = re.compile(r"\S.*?(?: ·(?= )|$)")  # up to the dot that parts it from the next
_NARROW_INDENT: Final = 4
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Breaks:
    """How one line becomes rows.

    Args:
        rows: Beginning and end of each row in the line.
        indent: Spaces in front of all rows but the first.
        head: Where the first column ends, if what is behind it comes nearer; it is no row itself.
    """

    rows: tuple[tuple[int, int], ...]
    indent: int = 0
    head: int = 0


def breaks_of(line: str, width: int) -> Breaks:
    """Return rows of at most this width.

    Figures with dots between them stay whole where each of them fits.

    The column is the second one of a table (two spaces stand before it), else where the line
    begins. Where that leaves little room, it is the fifth cell, and the table's second column comes
    as near as it can. A line with a word that does not fit, as a path may be, is left to the
    terminal, which keeps it whole for whoever copies it.
    """
    from rich.cells import cell_len

    found = _COLUMN.match(line)
    begin = len(found[0]) if found else 0
    column, head = cell_len(line[:begin]), 0
    if column > width // 2:
        head = len(line[:begin].rstrip())
        column = _NARROW_INDENT
    words = list((_FIGURE if " · " in line else _WORD).finditer(line))
    longest = max((cell_len(word[0]) for word in words), default=0)
    if longest > width - column and " · " in line:
        words = list(_WORD.finditer(line))
        longest = max((cell_len(word[0]) for word in words), default=0)
    if cell_len(line) <= width or longest > width - column:
        return Breaks(((0, len(line)),))
    start = end = begin
    room = width - (cell_len(line[:head]) + _GAP if head else column)
    rows = []
    for word in (word for word in words if word.start() >= begin):
        if end > start and cell_len(line[start : word.end()]) > room:
            rows.append((start, end))
            start, room = word.start(), width - column
        end = word.end()
    rows.append((start, end))
    if not head:
        rows[0] = (0, rows[0][1])
    return Breaks(tuple(rows), column, head)


def hung(line: str, width: int) -> list[str]:
    """Return a line as rows of at most this width."""
    breaks = breaks_of(line, width)
    first, *rest = (line[start:end] for start, end in breaks.rows)
    if breaks.head:
        first = line[: breaks.head] + " " * _GAP + first
    return [first, *(" " * breaks.indent + row for row in rest)]


def fitted(lines: Sequence[str], stream: IO[str]) -> list[str]:
    """Return lines as they are, or, for a terminal, as rows that fit it."""
    if not stream.isatty():
        return list(lines)
    width = shutil.get_terminal_size().columns
    return [row for line in lines for row in hung(line, width)]


def say(text: str) -> None:
    """Write lines to standard error, as a terminal there has room for them."""
    sys.stderr.write("".join(f"{line}\n" for line in fitted(text.split("\n"), sys.stderr)))
    sys.stderr.flush()


def teller(*, is_quiet: bool) -> Callable[[str], None]:
    """Return `say`, or what says nothing."""
    return _keep_silent if is_quiet else say


def _keep_silent(text: str) -> None:
    del text


def flowed(items: Sequence[str], width: int, gap: str) -> list[list[int]]:
    """Return rows of items, by their numbers, that stay whole where one row has no room for all."""
    from rich.cells import cell_len

    rows: list[list[int]] = []
    used = 0
    for number, item in enumerate(items):
        cells = cell_len(item)
        if rows and used + len(gap) + cells <= width:
            rows[-1].append(number)
            used += len(gap) + cells
        else:
            rows.append([number])
            used = cells
    return rows
