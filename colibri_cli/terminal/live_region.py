"""The last lines of a terminal, redrawn in place below text that is already permanent.

Lines that are done scroll away like any output and are never touched again; only lines that differ
from what stands there are written, so nothing flickers. A line longer than the terminal is wrapped
by the terminal itself, which keeps it one line for whoever copies it. When the width changes, the
terminal wraps what stands there anew; the region counts where it begins now and draws it again.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Size = tuple[int, int]  # columns, rows

_NEW_LINE: Final = "\n"  # the terminal adds the carriage return
_ERASE_BELOW: Final = "\x1b[J"
_ERASE_RIGHT: Final = "\x1b[K"
_BEGIN_FRAME: Final = "\x1b[?2026h"  # terminals that know it show the frame at once
_END_FRAME: Final = "\x1b[?2026l"


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is written, codes for colour included, and how many cells it takes."""

    text: str
    cells: int

    @classmethod
    def plain(cls, text: str) -> Line:
        """Return the line of a text without codes."""
        return cls(text, cell_len(text))

    def rows(self, columns: int) -> int:
        """Return how many rows it takes on a terminal of this width."""
        return max(1, -(-self.cells // max(columns, 1)))


EMPTY: Final = Line("", 0)


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """A terminal to draw on.

    Args:
        write: Writes to it at once.
        size: Tells its size.
        reflows: Whether it wraps old lines anew when its width changes; most do.
    """

    write: Callable[[str], None]
    size: Callable[[], Size]
    reflows: bool = True

    @classmethod
    def standard(cls, *, reflows: bool = True) -> TerminalOutput:
        """Return the terminal that standard output is."""
        return cls(_write_out, _size_of_stdout, reflows)


def _write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _size_of_stdout() -> Size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return (size.columns or 80, size.lines or 24)


class LiveRegion:
    """Lines at the cursor.

    Args:
        output: Where it is drawn.
    """

    def __init__(self, output: TerminalOutput) -> None:
        self._output = output
        self._drawn: list[Line] = []
        self._columns = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is drawn that may change."""
        return not self._drawn

    def update(self, done: Sequence[Line], live: Sequence[Line]) -> None:
        """Make `done` permanent below what is permanent already, and `live` the new region."""
        columns, height = self._output.size()
        wanted = [*done, *live]
        if wanted == self._drawn and not done and columns == self._columns:
            return
        out = []
        if self._drawn and columns != self._columns:
            out.append(self._up(self._rows_now(self._drawn, columns), height) + _ERASE_BELOW)
            self._drawn = []
        self._columns = columns
        out.append(self._difference(wanted, columns, height))
        self._drawn = list(live)
        if done and not live:
            out.append(_NEW_LINE)
        text = "".join(out)
        if text:
            self._output.write(_BEGIN_FRAME + text + _END_FRAME)

    def clear(self) -> None:
        """Take away what is not permanent."""
        self.update((), ())

    def keep(self) -> None:
        """Make what is drawn permanent."""
        if self._drawn:
            self.update(self._drawn, ())

    def _difference(self, wanted: list[Line], columns: int, height: int) -> str:
        """Return what turns the drawn lines into the wanted ones; the cursor ends at the last."""
        old = self._drawn
        same = 0
        while same < min(len(old), len(wanted)) and old[same] == wanted[same]:
            same += 1
        if same == len(old) == len(wanted):
            return ""
        new = wanted[same:]
        if same == len(old):  # only more of them
            return (_NEW_LINE if old else "") + _NEW_LINE.join(line.text for line in new)
        begin = self._up(sum(line.rows(columns) for line in old[same:]), height)
        if not new:
            end = begin + _ERASE_BELOW
            # The cursor belongs behind the last line that stays.
            return end if same == 0 else f"{end}\x1b[A\x1b[{max(old[same - 1].cells, 1)}C"
        if any(line.rows(columns) > 1 for line in [*old[same:], *new]):
            return begin + _ERASE_BELOW + _NEW_LINE.join(line.text for line in new)
        rows = _NEW_LINE.join(self._over_old(line, columns) for line in new)
        return begin + rows + (_ERASE_BELOW if len(wanted) < len(old) else "")

    def _rows_now(self, lines: Sequence[Line], columns: int) -> int:
        """Return how many rows lines take that were drawn at another width."""
        if not self._output.reflows:
            return len(lines)
        return sum(line.rows(columns) for line in lines)

    @staticmethod
    def _up(rows: int, height: int) -> str:
        """Return what moves from the last of some rows to the beginning of the first."""
        up = min(rows - 1, height - 1)  # what has scrolled away cannot be reached
        return "\r" + (f"\x1b[{up}A" if up > 0 else "")

    @staticmethod
    def _over_old(line: Line, columns: int) -> str:
        """Return what writes a line over another one."""
        if "\t" in line.text:  # a tab leaves what stands in the cells it passes
            return _ERASE_RIGHT + line.text
        # On a full row the cursor still stands on its last cell, which must not be erased.
        return line.text + (_ERASE_RIGHT if line.cells < columns else "")
