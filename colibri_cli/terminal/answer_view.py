"""An answer on its way to a terminal: what of it is final, and what may still change.

Blocks that are complete are final. Of the last one, complete lines of code are final at once; of
the rest only what is left must fit on the screen, so when it grows beyond that its first lines are
made final as they stand, and no line is ever lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from colibri_cli.terminal.answer_text import visible
from colibri_cli.terminal.live_region import EMPTY, Line, Size
from colibri_cli.terminal.markdown_blocks import MarkdownReader, language_of, presentable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

    from colibri_cli.terminal.line_view import LineView
    from colibri_cli.terminal.markdown_blocks import Block
    from colibri_cli.terminal.markdown_view import MarkdownView

_MAX_WIDTH: Final = 100  # of prose
_MIN_WIDTH: Final = 10

_MAX_MARKER: Final = 3

Lines = tuple[list[Line], list[Line]]  # final, may change


class MarkdownAnswer:
    """An answer as Markdown.

    Args:
        view: Makes lines of blocks.
        before: The beginning of the answer, where this is its continuation.
    """

    def __init__(self, view: MarkdownView, before: str = "") -> None:
        self._view = view
        self._reader = MarkdownReader()
        self._source = ""  # from the first block that is not final on
        self._is_below = False  # something of this answer stands above that block
        self._list_number: int | None = None  # of that block, if it goes on a list
        self._num_final = 0  # lines of that block that are final
        self._width: int | None = None  # at which they were made
        self._reopen(before)

    def feed(self, text: str) -> None:
        """Take more of the answer."""
        self._source += visible(text)

    def lines(self, size: Size) -> Lines:
        """Return what became final and what stands below it, for a terminal of this size."""
        final: list[Line] = []
        blocks = self._blocks(self._source)
        if len(blocks) > 1 and self._is_certain(blocks[-1]):
            final = self._settled(blocks, size)
        first, num_certain, others = self._unfinished(size)
        if others and _overflow(first + others, size) > len(first):
            final += self._settled(blocks, size)
            first, num_certain, others = self._unfinished(size)
        num_final = min(max(num_certain, _overflow(first + others, size)), len(first))
        if num_final:
            self._width = self._width or _width_for(size)
            self._num_final += num_final
        return final + first[:num_final], first[num_final:] + others

    def finish(self, size: Size) -> list[Line]:
        """Return all that is left; the answer is over."""
        final: list[Line] = []
        for block in self._blocks(self._source):
            final += self._closed(block, size)
        self._source = ""
        return final

    def _is_certain(self, block: Block) -> bool:
        """Whether the last block is one for sure, and not a line that will become something else.

        A hash may begin a word, and three backticks code within a line.
        """
        *before, last = self._source.split("\n")
        if block.first_line < len(before):
            return True
        begun = last.strip()
        is_apart = not before or not before[-1].strip()
        return is_apart or (len(begun) > _MAX_MARKER and begun[0] not in "`~|")

    def _settled(self, blocks: Sequence[Block], size: Size) -> list[Line]:
        """Make all blocks but the last final, and forget their source."""
        *closed, last = blocks
        final = [line for block in closed for line in self._closed(block, size)]
        self._source = "\n".join(self._source.split("\n")[last.first_line :])
        self._list_number = _number(last)
        return final

    def _closed(self, block: Block, size: Size) -> list[Line]:
        """Return the lines of the first block that are not final yet, and go on to the next."""
        lines = self._view.lines(block, self._width or _width_for(size))
        if self._is_below and not block.joins_previous:
            lines = [EMPTY, *lines]
        lines = lines[self._num_final :]
        self._num_final, self._width, self._is_below = 0, None, True
        return lines

    def _unfinished(self, size: Size) -> tuple[list[Line], int, list[Line]]:
        """Return the lines of the first block, how many of them are certain, and the others'."""
        blocks = self._blocks(self._source)
        if not blocks:
            return [], 0, []
        width = self._width or _width_for(size)
        last = blocks.pop()
        shown = [(block, self._view.lines(block, width)) for block in blocks]
        num_certain = num_lines = 0
        if last.fence is not None:
            lines, num_certain = self._open_fence(last.fence)
            num_lines = len(lines)
            shown += [(last, lines)] if lines else []
        else:
            shown += [(block, self._view.lines(block, width)) for block in self._presentable(last)]
        spaced = [
            [EMPTY, *lines] if (self._is_below or n) and not block.joins_previous else lines
            for n, (block, lines) in enumerate(shown)
        ]
        if not spaced:
            return [], 0, []
        others = [line for lines in spaced[1:] for line in lines]
        if num_certain:
            num_certain += len(spaced[-1]) - num_lines - self._num_final
        return spaced[0][self._num_final :], 0 if others else num_certain, others

    def _open_fence(self, fence: Token) -> tuple[list[Line], int]:
        """Return the lines of a fenced block that is written, and how many cannot change."""
        assert fence.map is not None
        source = self._source.split("\n")[fence.map[0] :]
        if len(source) == 1:  # its first line is not complete
            return [], 0
        language = language_of(fence)
        if _is_closed(fence, source):
            return self._view.code_lines(fence.content, language, is_open=False), 0
        head, newline, last = fence.content.rpartition("\n")
        is_held_back = last.strip() and not last.strip().strip(fence.markup[0])
        code = head + newline if is_held_back else fence.content
        # The first line that is final may be the empty one above the block.
        known = max(self._num_final - 1, 0) if len(self._blocks(self._source)) == 1 else 0
        lines = self._view.code_lines(code, language, is_open=True, num_known=known)
        return lines, 1 + code.count("\n")

    def _presentable(self, last: Block) -> list[Block]:
        """Return what is shown of the last block: without markers that are not complete."""
        if any(token.type in {"fence", "code_block"} for token in last.tokens):
            return [last]
        tail = "\n".join(self._source.split("\n")[last.first_line :])
        shown = self._reader.blocks(presentable(tail), goes_on=_number(last))
        return shown if len(shown) < 2 else [last]

    def _blocks(self, source: str) -> list[Block]:
        return self._reader.blocks(source, goes_on=self._list_number)

    def _reopen(self, before: str) -> None:
        """Go on inside a fenced block that the beginning of the answer left open."""
        blocks = self._reader.blocks(before)
        if not blocks or (fence := blocks[-1].fence) is None or fence.map is None:
            return
        if not _is_closed(fence, before.split("\n")[fence.map[0] :]):
            self._source = f"{fence.markup}{fence.info}\n"
            self._num_final = 1


class MarkedText:
    """Plain text in one style, each line behind a mark: reasoning.

    Args:
        view: Makes lines.
        style: Name of the style.
        mark: What every line begins with.
    """

    def __init__(self, view: LineView, style: str, mark: str) -> None:
        self._view = view
        self._style = style
        self._mark = mark
        self._source = ""

    def feed(self, text: str) -> None:
        """Take more."""
        self._source += visible(text)

    def lines(self, size: Size) -> Lines:
        """Return what became final and what stands below it."""
        head, newline, last = self._source.rpartition("\n")
        final = self._marked(self._texts(head, size)) if newline else []
        rows = self._texts(last, size) if last else []
        live = self._marked(rows)
        num_final = _overflow(live, size)
        # The rows that stay are the end of the text: that is where the next lines begin.
        self._source = " ".join(row.plain for row in rows[num_final:]) if num_final else last
        return final + live[:num_final], live[num_final:]

    def finish(self, size: Size) -> list[Line]:
        """Return all that is left."""
        source, self._source = self._source.rstrip("\n"), ""
        return self._marked(self._texts(source, size)) if source else []

    def _texts(self, text: str, size: Size) -> list[Text]:
        styled = Text(text.expandtabs(4), style=self._style)
        return self._view.wrapped(styled, _width_for(size) - len(self._mark))

    def _marked(self, rows: Sequence[Text]) -> list[Line]:
        mark = Text(self._mark, style=self._style)
        return [self._view.line(Text.assemble(mark, row)) for row in rows]


class RawAnswer:
    """An answer as the text it is, wrapped by the terminal alone."""

    def __init__(self) -> None:
        self._source = ""

    def feed(self, text: str) -> None:
        """Take more of the answer."""
        self._source += visible(text)

    def lines(self, size: Size) -> Lines:
        """Return what became final and what stands below it."""
        *complete, last = self._source.split("\n")
        final = [_raw_line(line) for line in complete]
        room = max(size[0] * (size[1] - 2), size[0])
        while _raw_line(last).cells > room:  # more than a screen without a line feed
            head = set_cell_size(last, room)
            final.append(_raw_line(head.rstrip(" ")))
            last = last[len(head.rstrip(" ")) :]
        self._source = last
        return final, [_raw_line(last)] if last else []

    def finish(self, size: Size) -> list[Line]:
        """Return all that is left."""
        source, self._source = self._source, ""
        return [_raw_line(line) for line in source.split("\n")] if source else []


def _raw_line(text: str) -> Line:
    return Line(text, cell_len(text.expandtabs(8)))


def _width_for(size: Size) -> int:
    """Return how wide prose may be: the last column stays free, where some terminals wrap early."""
    return max(min(size[0] - 1, _MAX_WIDTH), _MIN_WIDTH)


def _overflow(lines: Sequence[Line], size: Size) -> int:
    """Return how many of the first lines do not fit on the screen."""
    columns, height = size
    room = max(height - 2, 1)
    count = len(lines)
    while count and (room := room - lines[count - 1].rows(columns)) >= 0:
        count -= 1
    return count if count < len(lines) else max(len(lines) - 1, 0)


def _number(block: Block) -> int | None:
    """Return what `MarkdownReader.blocks` is told of a source that begins with this block."""
    return (block.number or 0) if block.joins_previous else None


def _is_closed(fence: Token, source: Sequence[str]) -> bool:
    """Whether a fenced block has its end, given the lines of the source from its beginning on."""
    assert fence.map is not None
    num_lines = fence.map[1] - fence.map[0]
    last = source[num_lines - 1].strip() if num_lines > 1 else ""
    return len(last) >= len(fence.markup) and not last.strip(fence.markup[0])
