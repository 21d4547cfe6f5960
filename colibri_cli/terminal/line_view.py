"""Texts and renderables as lines of a terminal, codes for colour included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.segment import Segment, Segments
from rich.text import Text

from colibri_cli.terminal.live_region import EMPTY, Line
from colibri_cli.wrapping import breaks_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNBOUNDED: Final = 100_000


class LineView:
    """Makes lines.

    Args:
        console: Knows the colours that may be used.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def rendered(self, what: RenderableType, width: int | None) -> list[Line]:
        """Return the lines of a renderable; without width nothing is wrapped."""
        options = self._console.options.update(
            width=width or _UNBOUNDED, no_wrap=width is None, highlight=False
        )
        segments = self._console.render(what, options)
        rows = [_trimmed(row) for row in Segment.split_lines(segments)]
        filled = [index for index, row in enumerate(rows) if row]
        rows = rows[filled[0] : filled[-1] + 1] if filled else []
        joined = [segment for row in rows for segment in (*row, Segment.line())]
        with self._console.capture() as captured:
            self._console.print(Segments(joined), soft_wrap=True)
        texts = captured.get().split("\n")
        cells = [sum(segment.cell_length for segment in row) for row in rows]
        return [Line(text, width) for text, width in zip(texts, cells, strict=False)]

    def line(self, text: Text) -> Line:
        """Return a text as one line, however long."""
        lines = self.rendered(text, None)
        return lines[0] if lines else EMPTY

    def wrapped(self, text: Text, width: int) -> list[Text]:
        """Return a text in lines of at most this width."""
        return list(text.wrap(self._console, max(width, 1)))

    def hung(self, text: Text, width: int) -> list[Text]:
        """Return lines of at most this width, broken as `colibri_cli.wrapping` says."""
        rows = []
        for line in text.split("\n", allow_blank=True):
            breaks = breaks_of(line.plain, width)
            first, *rest = (line[start:end] for start, end in breaks.rows)
            if breaks.head:
                first = line[: breaks.head] + Text("  ") + first
            rows += [first, *(Text(" " * breaks.indent) + row for row in rest)]
        return rows


def _trimmed(row: list[Segment]) -> list[Segment]:
    """Return a row without spaces at its end, which would wrap when the terminal gets narrower."""
    row = [segment for segment in row if segment.text]
    while row:
        text, style, control = row[-1]
        bare = text.rstrip(" ")
        is_bar = style is not None and style.bgcolor is not None and not style.bgcolor.is_default
        if bare == text or is_bar:
            break
        row.pop()
        if bare:
            row.append(Segment(bare, style, control))
            break
    return row
