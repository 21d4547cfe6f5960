"""Blocks of Markdown as lines of a terminal.

Code is not framed at its sides and not wrapped, so that what is copied from the terminal is the
code. Colours are those of the terminal's own palette, so they fit dark and light ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from markdown_it.token import Token
from rich import markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from colibri_cli.terminal.line_view import LineView
from colibri_cli.terminal.live_region import EMPTY, Line
from colibri_cli.terminal.markdown_blocks import language_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from colibri_cli.terminal.markdown_blocks import Block

_CODE_THEME: Final = "ansi_dark"
_MAX_RULE: Final = 40
_TAB: Final = 4


class MarkdownView(LineView):
    """Makes lines of blocks."""

    def lines(self, block: Block, width: int) -> list[Line]:
        """Return a block at this width; a block of nothing has no lines."""
        if (fence := block.fence) is not None:
            return self.code_lines(fence.content, language_of(fence), is_open=False)
        lines = self.rendered(_Blocks(_readable(block.tokens), block.number), width)
        if not lines and block.tokens and (mark := block.tokens[0].markup):
            return [self.line(Text(mark))]  # a heading or a quotation of nothing
        return lines

    def code_lines(
        self, code: str, language: str, *, is_open: bool, num_known: int = 0
    ) -> list[Line]:
        """Return a fenced block: a rule with the language, the code, a rule unless it is open.

        Args:
            code: What stands in it.
            language: Its language, or nothing.
            is_open: It has no end yet.
            num_known: So many lines are not looked at any more; empty ones stand in for them.
        """
        lines = [self._rule(language)]
        if code:
            shown = _highlighted(code, language).split("\n", allow_blank=True)
            num_known = min(max(num_known - 1, 0), len(shown))
            lines += [EMPTY] * num_known + [self.line(line) for line in shown[num_known:]]
        return lines if is_open else [*lines, self._rule("")]

    def _rule(self, title: str) -> Line:
        dash = _dash(self._console)
        text = Text(f"{dash * 2} {title} " if title else "", style="faint")
        text.append(dash * (_MAX_RULE - text.cell_len))
        return self.rendered(text, None)[0]


def _dash(console: Console) -> str:
    return "-" if console.options.ascii_only else "─"


def _highlighted(code: str, language: str) -> Text:
    """Return code in colours; a language nobody knows gets none."""
    code = code.expandtabs(_TAB).removesuffix("\n")
    syntax = Syntax(code, language or "text", theme=_CODE_THEME, background_color="default")
    if syntax.lexer is None:
        return Text(code)
    text = syntax.highlight(code)
    # The highlighter ends with a line feed of its own, and some lexers drop empty lines at the end.
    text = text[: len(code)]
    return text if text.plain == code else Text(code)


def _readable(tokens: Iterable[Token]) -> list[Token]:
    """Return tokens with line breaks kept and the addresses of links spelled out."""
    return [_with_children(token) if token.children else token for token in tokens]


def _with_children(token: Token) -> Token:
    children: list[Token] = []
    targets: list[tuple[str, int]] = []
    for child in token.children or ():
        if child.type == "softbreak":
            children.append(Token("hardbreak", "br", 0))
        elif child.type == "link_open":
            targets.append((str(child.attrs.get("href", "")), len(children)))
        elif child.type == "link_close":
            target, start = targets.pop()
            shown = "".join(inner.content for inner in children[start:])
            if target not in {shown, f"mailto:{shown}"}:
                children.append(_text(f" ({target})"))
        elif child.type == "image":
            children.append(_text(f"{child.content} ({child.attrs.get('src', '')})"))
        else:
            children.append(child)
    return token.copy(children=children)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


class _Heading(markdown.Heading):
    """A heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Rule(markdown.HorizontalRule):
    """A rule as short as those around code."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(_dash(console) * min(_MAX_RULE, options.max_width), style="faint")


class _Code(markdown.TextElement):
    """Code inside a list or a quotation."""

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> _Code:
        return cls(language_of(token) if token.type == "fence" else "")

    def __init__(self, language: str) -> None:
        self._language = language

    def on_text(self, context: markdown.MarkdownContext, text: str | Text) -> None:
        self._code = text if isinstance(text, str) else text.plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _highlighted(self._code, self._language)


class _Item(markdown.ListItem):
    """An item behind its bullet or number."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = "* " if options.ascii_only else "• "
        yield from self._behind(mark, "markdown.item.bullet", console, options)

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        yield from self._behind(f"{number}. ", "markdown.item.number", console, options)

    def _behind(
        self, mark: str, style: str, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        inner = options.update(width=max(options.max_width - len(mark), 1))
        # An answer such as "4." is an item without a text, and must not become nothing.
        lines = console.render_lines(self.elements, inner, pad=False) or [[]]
        first = Segment(mark, console.get_style(style, default="none"))
        for index, line in enumerate(lines):
            yield first if index == 0 else Segment(" " * len(mark), Style.null())
            yield from line
            yield Segment.line()


class _Blocks(markdown.Markdown):
    """Rich's renderer over tokens of ours.

    Args:
        tokens: The blocks.
        number: Number of the first item, where the tokens are one of an ordered list.
    """

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
        "list_item_open": _Item,
    }

    def __init__(self, tokens: Sequence[Token], number: int | None) -> None:
        super().__init__("")
        self.parsed = list(tokens)
        if number is not None:
            self.parsed[0] = self.parsed[0].copy(attrs={"start": number})
