"""Terminals in memory: one that wraps old lines anew when its width changes, and pyte's.

Both keep what has scrolled away, so a test can see that nothing was lost or doubled.
"""

from __future__ import annotations

import re

import pyte
from rich.cells import cell_len

from colibri_cli.terminal.live_region import TerminalOutput

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|.", re.DOTALL)


class PyteTerminal:
    """pyte with a memory of what scrolled away."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self.screen.set_mode(pyte.modes.LNM)
        self.stream = pyte.Stream(self.screen)
        self.written = ""

    @property
    def output(self) -> TerminalOutput:
        """What a live region draws on."""
        return TerminalOutput(self.write, lambda: (self.screen.columns, self.screen.lines))

    def write(self, text: str) -> None:
        """Show text."""
        self.written += text
        self.stream.feed(text)

    def lines(self) -> list[str]:
        """All lines, those that scrolled away first, without spaces at their ends."""
        gone = [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return _without_end(gone + [line.rstrip() for line in self.screen.display])


class ReflowingTerminal:
    """A terminal that keeps lines whole: a narrower one shows them in more rows.

    Knows the few codes that a live region uses; colours are ignored.
    """

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.height = columns, rows
        self.rows: list[str] = [""]
        self.wraps: list[bool] = [False]  # the row goes on in the next one
        self.row = self.column = 0

    @property
    def output(self) -> TerminalOutput:
        """What a live region draws on."""
        return TerminalOutput(self.write, lambda: (self.columns, self.height))

    def write(self, text: str) -> None:
        """Show text."""
        for piece in _PIECE.finditer(text):
            if piece[2]:
                self._control(piece[1], piece[2])
            elif piece[0] == "\r":
                self.column = 0
            elif piece[0] == "\n":
                self.wraps[self.row] = False
                self._next_row()
            else:
                self._put(piece[0])

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; every line is wrapped anew and the cursor stays with its text."""
        lines, cursor = self._logical()
        self.columns, self.height = columns, rows
        self.rows, self.wraps = [], []
        for index, line in enumerate(lines):
            pieces = [line[i : i + columns] for i in range(0, len(line), columns)] or [""]
            if index == cursor[0]:
                before = min(cursor[1], len(line))
                within = max(before - 1, 0) // columns if before == len(line) else before // columns
                self.row = len(self.rows) + within
                self.column = before - within * columns
            self.rows += pieces
            self.wraps += [True] * (len(pieces) - 1) + [False]

    def lines(self) -> list[str]:
        """All lines as they were written, however many rows they take now."""
        return _without_end([line.rstrip() for line in self._logical()[0]])

    def _logical(self) -> tuple[list[str], tuple[int, int]]:
        lines: list[str] = []
        cursor, begun = (0, 0), ""
        for index, row in enumerate(self.rows):
            if index == self.row:
                cursor = (len(lines), len(begun) + self.column)
            begun += row
            if not self.wraps[index]:
                lines.append(begun)
                begun = ""
        return lines, cursor

    def _put(self, character: str) -> None:
        assert cell_len(character) == 1, "only narrow characters here"
        if self.column >= self.columns:
            self.wraps[self.row] = True
            self._next_row()
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
        self.column += 1

    def _next_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append("")
            self.wraps.append(False)

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            top = max(len(self.rows) - self.height, 0)
            self.row = max(self.row - int(number or 1), top)
        elif letter == "C":
            self.column = min(self.column + int(number or 1), self.columns - 1)
        elif letter == "K":
            self.rows[self.row] = self.rows[self.row][: self.column]
        elif letter == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :], self.wraps[self.row + 1 :]
            self.wraps[self.row] = False
        else:
            assert letter in "mhl", letter


def _without_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines
