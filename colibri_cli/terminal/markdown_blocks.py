"""Markdown that is still being written: which blocks of it are complete, and what the last one is.

A block is what a renderer can show alone: a paragraph, a heading, a table, a fenced block, one item
of a list. All but the last can no longer change. Line breaks within paragraphs are kept, because
models mean them; HTML is text like any other.

Source: CommonMark 0.31, with the tables and strikethrough of GitHub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

_LISTS: Final = frozenset({"bullet_list_open", "ordered_list_open"})
_BARE_MARKER: Final = re.compile(r"\s*(?:(?:[>*+-]|#{1,6}|\d{1,9}[.)])\s*)*[-=*_`~|:\s]*")
_OPEN_LINK: Final = re.compile(r"(!?)\[([^\[\]\n]*)(?:\]\([^()\s]*)?$")
_CODE_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)
_OPENING: Final = re.compile(r"(?<![\w\\])(\*{1,3}|~~|_{1,2})(?=[^\s*_~])")


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Args:
        tokens: What the parser made of it.
        first_line: Line of the source it begins in.
        is_item: It is an item of a list.
        joins_previous: It belongs to the same list as the block before it.
        number: Its number in an ordered list, else None.
    """

    tokens: tuple[Token, ...]
    first_line: int
    is_item: bool = False
    joins_previous: bool = False
    number: int | None = None

    @property
    def fence(self) -> Token | None:
        """The token of a fenced block, or None."""
        return self.tokens[0] if self.tokens[0].type == "fence" else None


@dataclass(slots=True)
class MarkdownReader:
    """Splits a growing source; remembers link definitions of what is already cut off."""

    env: dict[str, Any] = field(default_factory=dict)
    parser: MarkdownIt = field(
        default_factory=lambda: MarkdownIt("commonmark", {"html": False}).enable(
            ["strikethrough", "table"]
        )
    )

    def blocks(self, source: str, *, goes_on: int | None = None) -> list[Block]:
        """Return the blocks of a source.

        Args:
            source: Markdown.
            goes_on: The source begins with an item of a list that was begun before: its number,
                0 in a list without numbers. None: it begins anew.
        """
        found: list[Block] = []
        tokens = self.parser.parse(source, self.env)
        for group in _top_level(tokens):
            if group[0].type in _LISTS:
                joins = goes_on if not found else None
                found += _items(group, joins)
            elif group[0].map is not None:
                found.append(Block(tuple(group), group[0].map[0]))
        return found


def language_of(fence: Token) -> str:
    """Return the language a fenced block says it is in, or nothing."""
    words = fence.info.split()
    return words[0] if words else ""


def code_blocks(source: str) -> list[str]:
    """Return the contents of all fenced and indented blocks of code, wherever they stand."""
    tokens = MarkdownReader().parser.parse(source)
    return [token.content for token in tokens if token.type in {"fence", "code_block"}]


def presentable(source: str) -> str:
    """Return an unfinished source as it will probably look once it is finished.

    Markers that are not complete are held back, emphasis and code that is open is closed.
    """
    head, newline, last = source.rpartition("\n")
    may_be_number = newline and last.strip().isdigit()
    if _BARE_MARKER.fullmatch(last) or may_be_number:
        source = head + newline if newline else ""
    else:
        source = source.rstrip("*_~`") if last.endswith(("*", "_", "~", "`")) else source
    start = max(source.rfind("\n\n"), 0)
    return source[:start] + _closed(source[start:])


def _closed(text: str) -> str:
    """Close what is open in the last paragraph."""
    bare = _CODE_SPAN.sub(lambda found: "x" * len(found[0]), text)
    if (code := re.search(r"(?<!`)(`+)(?!`)[^`]*$", bare)) is not None:
        return text.rstrip("\n") + code[1]  # on a line of its own it would be a fence
    if (link := _OPEN_LINK.search(bare)) is not None:
        text = text[: link.start()] + link[2]
        bare = bare[: link.start()] + link[2]
    open_marks: list[str] = []
    position = 0
    while (mark := re.compile(r"\*{1,3}|~~|__?").search(bare, position)) is not None:
        position = mark.end()
        if open_marks and mark[0] == open_marks[-1] and not bare[mark.start() - 1].isspace():
            open_marks.pop()
        elif _OPENING.match(bare, mark.start()):
            open_marks.append(mark[0])
    if not open_marks:
        return text
    return text.rstrip() + "".join(reversed(open_marks))


def _top_level(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield group
            group = []


def _items(tokens: list[Token], goes_on: int | None) -> list[Block]:
    """Return the items of a list, each wrapped in a list of its own."""
    opening, closing = tokens[0], tokens[-1]
    number = None
    if opening.type == "ordered_list_open":
        number = goes_on or int(opening.attrs.get("start", 1))
    found: list[Block] = []
    item: list[Token] = []
    for token in tokens[1:-1]:
        item.append(token)
        if token.type != "list_item_close" or token.level != 1:
            continue
        first = item[0].map
        joins = bool(found) or goes_on is not None
        line = first[0] if first is not None else 0
        found.append(Block((opening, *item, closing), line, True, joins, number))
        number = None if number is None else number + 1
        item = []
    return found
