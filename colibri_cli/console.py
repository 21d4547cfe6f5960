"""The two Rich consoles, progress and tables; the only module that imports Rich.

Results go to standard output, everything else to standard error. Colour only on a terminal;
Rich reads the variables that force or forbid it (`settings` sets them for our own options).
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from colibri_cli.palette import PALETTE
from colibri_cli.settings import given_columns, is_light_terminal
from colibri_cli.wrapping import fitted, hung

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.status import Status
    from rich.table import Table

_MARKDOWN: Final = {
    "markdown.code": "code",
    "markdown.h1": "bold underline brand",
    "markdown.h2": "bold brand",
    "markdown.h3": "brand",
    "markdown.h4": "italic brand",
    "markdown.block_quote": "faint",
    "markdown.item.number": "bold",
    "markdown.table.border": "faint",
    "markdown.table.header": "bold",
}
_PLAIN_INTERVAL_S: Final = 5.0
_NARROW: Final = 60
_GAP: Final = 2  # between columns
_MAX_WIDTH: Final = 100
_BAR_AND_BYTES: Final = 28  # columns of a short bar and of "100.0/100.0 MB" with their gaps
_FIGURE: Final = 11  # and of a speed or a time


def theme_for(*, is_light: bool) -> Theme:
    """Return the styles for a terminal with a light or a dark background."""
    colors = {name: f"color({numbers[is_light]})" for name, numbers in PALETTE.items()}
    styles = {
        name: " ".join(colors.get(word, word) for word in style.split())
        for name, style in _MARKDOWN.items()
    }
    return Theme(colors | styles)


@cache
def stdout_console() -> Console:
    """Return the console of results."""
    return Console(theme=theme_for(is_light=is_light_terminal()), highlight=False)


@cache
def stderr_console() -> Console:
    """Return the console of progress, warnings and statistics."""
    return Console(theme=theme_for(is_light=is_light_terminal()), stderr=True, highlight=False)


def print_traceback() -> None:
    """Print the exception being handled, without local variables."""
    stderr_console().print_exception(show_locals=False)


def _table(**options: Any) -> Table:  # noqa: ANN401 - those of Rich
    from rich.table import Table  # not before a prompt, which needs none

    return Table(box=None, pad_edge=False, **options)


def print_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; a column is (title, is a number).

    Where standard output is no terminal nothing is wrapped or cut, whatever its width. A terminal
    that would break words to fit the columns gets each row as a block of its own.
    """
    console = stdout_console()
    if not console.is_terminal:
        _print_plain_table(columns, rows)
        return
    least = _least_widths(columns, rows)
    if sum(least) + _GAP * (len(columns) - 1) > console.width:
        _print_blocks(columns, rows)
        return
    table = _table(header_style="bold")
    for (title, is_number), width in zip(columns, least, strict=True):
        table.add_column(
            title, justify="right" if is_number else "left", overflow="fold", min_width=width
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _least_widths(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return what each column needs to keep words and numbers whole; paths may be broken."""
    half = stdout_console().width // 2
    widths = []
    for number, (title, is_number) in enumerate(columns):
        cells = [title, *(row[number] for row in rows)]
        if is_number:
            widths.append(max(map(cell_len, cells)))
            continue
        words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        indent = max(len(cell) - len(cell.lstrip()) for cell in cells)
        widths.append(min(words + indent, half))
    return widths


def _print_blocks(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """Print each row below its first cell, one line for each further cell that has a text."""
    console = stdout_console()
    titles = [title for title, _ in columns][1:]
    for head, *cells in rows:
        indent = " " * (len(head) - len(head.lstrip()) + _GAP)
        console.print(Text(head, style="bold"), overflow="fold")
        block = _table(show_header=False)
        block.add_column(style="brand", no_wrap=True)
        block.add_column(overflow="fold")
        for title, cell in zip(titles, cells, strict=True):
            if cell:
                block.add_row(Text(f"{indent}{title}"), Text(cell))
        console.print(block)


def print_prose(lines: Sequence[str]) -> None:
    """Print sentences and facts on standard output, broken between words.

    For a terminal, and in a pipe where COLUMNS is set; the rows of tables stay whole there, as
    whoever reads them goes by lines.
    """
    columns = None if sys.stdout.isatty() else given_columns()
    rows = (
        fitted(lines, sys.stdout)
        if columns is None
        else [row for line in lines for row in hung(line, columns)]
    )
    sys.stdout.write("".join(f"{row}\n" for row in rows))
    sys.stdout.flush()


def stdout_width() -> int:
    """Return the columns charts and bars may take."""
    return min(stdout_console().width, _MAX_WIDTH)


def print_lines(lines: Sequence[str | Text]) -> None:
    """Print lines that fit the width, with their styles where colour is wanted."""
    for line in lines:
        stdout_console().print(line, no_wrap=True, crop=False, markup=False)


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what there is to say of them on standard output, one or more lines each."""
    width = max(len(name) for name, _ in rows)
    console = stdout_console()
    if not console.is_terminal:
        sys.stdout.write("".join(f"{name:<{width}}  {text}\n" for name, text in rows))
        return
    table = _table(show_header=False)
    table.add_column(style="brand", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(table)


def print_checks(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print results on standard output: (mark, its style, name, text), one line each if it fits."""
    console = stdout_console()
    if not console.is_terminal:
        width = max(len(name) for _, _, name, _ in rows)
        lines = (f"[{mark}] {name:<{width}} {text}\n" for mark, _, name, text in rows)
        sys.stdout.write("".join(lines))
        return
    if console.width < _NARROW:
        for mark, style, name, text in rows:
            console.print(Text(f"[{mark}] ", style=style).append(name, style="none"))
            for line in hung(f"  {text}", console.width):
                console.print(Text(line))
        return
    table = _table(padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for mark, style, name, text in rows:
        table.add_row(Text(f"[{mark}]", style=style), Text(name), Text(text))
    console.print(table)


def _print_plain_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    lines = [[title for title, _ in columns], *(list(row) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = []
        for cell, width, (_, is_number) in zip(line, widths, columns, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if is_number else cell + space)
        text = (" " * _GAP).join(padded)
        sys.stdout.write(text.rstrip() + "\n")


def notice(text: str, style: str = "faint") -> None:
    """Print one line about what is going on, on standard error."""
    stderr_console().print(Text(text, style=style))


@contextmanager
def spinner(text: str) -> Iterator[Status | None]:
    """Show that something is going on; nothing at all where standard error is no terminal."""
    console = stderr_console()
    if not console.is_terminal:
        yield None
        return
    from colibri_cli.logs import lines_wait

    # What is logged would begin behind the text and leave half of it standing.
    with lines_wait(), console.status(Text(text, style="faint")) as status:
        yield status


class Meter(Protocol):
    """Somebody to tell how far things are."""

    def update(self, done: int, total: int | None) -> None:
        """Report bytes done, and all bytes if known."""
        ...


def _byte_progress(console: Console, *further: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    from rich.table import Column

    # A bar is one line: a long title is cut, and speed and time are left out before figures are.
    shown = further if console.width >= _NARROW else ()
    room = console.width - _BAR_AND_BYTES - _FIGURE * len(shown)
    columns = (
        TextColumn(
            "[faint]{task.description}",
            table_column=Column(no_wrap=True, overflow="ellipsis", max_width=max(room, 8)),
        ),
        BarColumn(bar_width=None, complete_style="brand", finished_style="good"),
        DownloadColumn(table_column=Column(no_wrap=True)),
        *shown,
    )
    return Progress(*columns, console=console)


@contextmanager
def byte_meter(title: str) -> Iterator[Meter]:
    """Show progress in bytes on standard error: a bar, or lines where it is no terminal."""
    console = stderr_console()
    if not console.is_terminal:
        yield _LineMeter(title)
        return
    from rich.progress import TimeElapsedColumn
    from rich.table import Column

    with _byte_progress(console, TimeElapsedColumn(table_column=Column(no_wrap=True))) as progress:
        yield _BarMeter(progress, progress.add_task(title, total=None))


class Meters(Protocol):
    """Several things that go on at once, each known by a key."""

    def update(self, key: str, title: str, done: int, total: int | None) -> None:
        """Report bytes of one of them; the title may change."""
        ...


@contextmanager
def byte_meters() -> Iterator[Meters]:
    """Show progress of several things on standard error: bars, or lines where it is no terminal."""
    console = stderr_console()
    if not console.is_terminal:
        yield _LineMeters()
        return
    from rich.progress import TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    speed = TransferSpeedColumn(table_column=Column(no_wrap=True))
    left = TimeRemainingColumn(table_column=Column(no_wrap=True))
    with _byte_progress(console, speed, left) as progress:
        yield _BarMeters(progress)


class _BarMeters:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def update(self, key: str, title: str, done: int, total: int | None) -> None:
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(title, total=total)
        self._progress.update(self._tasks[key], description=title, completed=done, total=total)


class _LineMeters:
    """One line per interval for each key, and one when it ends; then it may begin anew."""

    def __init__(self) -> None:
        self._meters: dict[str, _LineMeter] = {}

    def update(self, key: str, title: str, done: int, total: int | None) -> None:
        meter = self._meters.get(key)
        if meter is None or (meter.has_ended and done != total):
            meter = self._meters[key] = _LineMeter(title)
        meter.title = title
        meter.update(done, total)


class _BarMeter:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def update(self, done: int, total: int | None) -> None:
        self._progress.update(self._task, completed=done, total=total)


class _LineMeter:
    """One line at the start, at most one per interval, one at the end."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.has_ended = False
        self._last: float | None = None

    def update(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        is_end = total is not None and done >= total
        is_early = self._last is not None and now - self._last < _PLAIN_INTERVAL_S
        if self.has_ended or (is_early and not is_end):
            return
        self._last, self.has_ended = now, is_end
        of = f" of {total / 1e6:.1f}" if total is not None else ""
        sys.stderr.write(f"{self.title}: {done / 1e6:.1f}{of} MB\n")
        sys.stderr.flush()
