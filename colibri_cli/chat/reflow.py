"""An application of prompt_toolkit that knows how a narrower terminal wraps lines anew.

prompt_toolkit erases what it drew by going up as many rows as it drew above the cursor. Most
terminals have wrapped these rows before the program hears of the new width, so some of them would
stay above what is drawn next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Char

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")


class ReflowingApplication(Application[_T]):
    """Erases all it drew when the width changes."""

    def _on_resize(self) -> None:
        self._erase_rows()
        super()._on_resize()

    def _erase_rows(self) -> None:
        """Erase all rows the application takes now, and leave the cursor where it was drawn.

        Row by row: tmux keeps in its history what is erased at once from the first cell on.
        """
        screen = self.renderer.last_rendered_screen
        if screen is None:
            return
        output = self.output
        columns = output.get_size().columns
        cursor = screen.get_cursor_position(self.layout.current_window)
        rows = [rows_of(screen.data_buffer[y], columns) for y in range(screen.height)]
        before = {x: cell for x, cell in screen.data_buffer[cursor.y].items() if x < cursor.x}
        in_line = rows_of(before | {cursor.x: Char("|")}, columns)
        output.cursor_up(sum(rows[: cursor.y]) + in_line - 1)
        output.write_raw("\r")
        for number in range(sum(rows)):
            output.cursor_down(min(number, 1))
            output.erase_end_of_line()
        output.cursor_up(max(sum(rows) - 1 - cursor.y, 0))


def rows_of(cells: Mapping[int, Char], columns: int) -> int:
    """Return how many rows the cells of a line take on a terminal of this width."""
    rows, column = 1, 0
    end = max((x + 1 for x, cell in cells.items() if cell.char.strip()), default=0)
    for x in range(end):
        width = cells[x].width if x in cells else 1
        if column + width > columns:  # a wide character is not cut in two
            rows, column = rows + 1, 0
        column += width
    return rows
