"""Answers while they are written: the same whatever the pieces, final early, never lost."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from colibri_cli.terminal.answer_view import MarkdownAnswer, MarkedText, RawAnswer
from colibri_cli.terminal.live_region import LiveRegion
from colibri_cli.terminal.markdown_blocks import presentable
from colibri_cli.terminal.markdown_view import MarkdownView
from tests.fakes.screens import PyteTerminal

TALL = (70, 1000)
ANSWER = """\
# Title with `code`

A **bold** word, an *italic* one, ~~none~~, [a link](https://example.org/x) and <b>markup</b>.
A line of its own, 世界, snake_case_name and 2 * 3 * 4.

- one
  - within
- two, long enough to be wrapped once more because it goes on and on to the end of the line
  ```py
  def f(x): return 1
  ```

```python
def f(x):
\t\"\"\"Text.\"\"\"

    return "s" + x  # a comment

```

| a | b |
|---|--:|
| 1 | 22222 |

> a quotation
> of two lines

9. nine
9. ten

   more of it

---
The end
"""
SHOWN = """\
Title with code

A bold word, an italic one, none, a link (https://example.org/x) and
<b>markup</b>.
A line of its own, 世界, snake_case_name and 2 * 3 * 4.

• one
  • within
• two, long enough to be wrapped once more because it goes on and on
  to the end of the line
  def f(x): return 1

── python ──────────────────────────────
def f(x):
    \"\"\"Text.\"\"\"

    return "s" + x  # a comment

────────────────────────────────────────

 a      b
 ────────
 1  22222

▌ a quotation
▌ of two lines

9. nine
10. ten
    more of it

────────────────────────────────────────

The end"""


def view(*, color: bool = False, encoding: str = "utf-8") -> MarkdownView:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    if color:
        return MarkdownView(Console(file=file, width=500, color_system="256", force_terminal=True))
    return MarkdownView(Console(file=file, width=500, color_system=None))


def shown(pieces: list[str], size: tuple[int, int] = TALL, before: str = "") -> list[str]:
    answer = MarkdownAnswer(view(), before)
    lines = []
    for piece in pieces:
        answer.feed(piece)
        lines += answer.lines(size)[0]
    lines += answer.finish(size)
    return [line.text for line in lines]


def cut(text: str, lengths: list[int]) -> list[str]:
    pieces, start, index = [], 0, 0
    while start < len(text):
        step = lengths[index % len(lengths)]
        pieces.append(text[start : start + step])
        start, index = start + step, index + 1
    return pieces


def test_an_answer_looks_like_this() -> None:
    assert "\n".join(shown([ANSWER])) == SHOWN


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_pieces_do_not_change_what_becomes_final(lengths: list[int]) -> None:
    assert "\n".join(shown(cut(ANSWER, lengths))) == SHOWN


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    columns=st.integers(24, 90),
    rows=st.integers(5, 12),
)
def test_on_a_small_screen_no_word_is_lost(lengths: list[int], columns: int, rows: int) -> None:
    terminal = PyteTerminal(columns, rows)
    region = LiveRegion(terminal.output)
    answer = MarkdownAnswer(view())
    for piece in cut(ANSWER, lengths):
        answer.feed(piece)
        region.update(*answer.lines((columns, rows)))
    region.update(answer.finish((columns, rows)), ())
    words = "".join("".join(terminal.lines()).split())
    for word in (
        "Title",
        "snake_case_name",
        "within",
        "return1",
        "acomment",
        "22222",
        "The",
        "end",
    ):
        assert word in words, word
    assert words.count("acomment") == 1
    assert words.count("Theend") == 1


PIECES = (
    "# ", "- ", "1. ", "> ", "```", "```py\n", "~~~", "`", "**", "*", "_", "~~", "|", "| a | b |\n",
    "|---|:-:|\n", "---", "===", "\n", "\n\n", "    ", "\t", "[x](", "](http://a b)", "[a]",
    "[1]: http://x\n", "![i](u)", "<b>", "&amp;", "\\", "word", "世界", "שלום", "12", "  \n",
    "\x1b[31m",
)  # fmt: skip
SIZES = st.tuples(st.sampled_from([10, 20, 40, 80]), st.sampled_from([4, 6, 10, 24]))


@settings(max_examples=80, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=40),
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    before=st.sampled_from(["", "x", "```py\nfoo"]),
)
def test_no_text_breaks_the_view_or_outgrows_the_screen(
    pieces: list[str], sizes: list[tuple[int, int]], before: str
) -> None:
    answer = MarkdownAnswer(view(color=True), before)
    final = []
    for index, piece in enumerate(pieces):
        answer.feed(piece)
        columns, height = size = sizes[index % len(sizes)]
        more, live = answer.lines(size)
        final += more
        assert len(live) <= 1 or sum(line.rows(columns) for line in live) <= height - 2
    final += answer.finish(sizes[0])
    assert not any("\n" in line.text for line in final)


def test_what_is_live_fits_on_the_screen() -> None:
    size = (40, 8)
    answer = MarkdownAnswer(view())
    for word in ("word " * 200).split(" "):
        answer.feed(f"{word} ")
        live = answer.lines(size)[1]
        assert sum(line.rows(size[0]) for line in live) <= size[1] - 2


def test_complete_lines_of_code_are_final_at_once() -> None:
    answer = MarkdownAnswer(view())
    answer.feed("Text\n\n```py\na = 1\nb = 2\nc =")
    final, live = answer.lines(TALL)
    assert [line.text for line in final][3:] == ["a = 1", "b = 2"]
    assert [line.text for line in live] == ["c ="]


def test_an_item_of_a_list_is_final_when_the_next_one_begins() -> None:
    answer = MarkdownAnswer(view())
    answer.feed("1. one\n2. two\n3. thr")
    final, live = answer.lines(TALL)
    assert [line.text for line in final] == ["1. one", "2. two"]
    assert [line.text for line in live] == ["3. thr"]
    answer.feed("ee\n4")
    final, live = answer.lines(TALL)
    assert [line.text for line in final] == []
    assert [line.text for line in live] == ["3. three"]


def test_an_answer_that_is_continued_in_the_middle_of_code_stays_code() -> None:
    lines = shown(["b = 2\n", "```\n\nDone **now**"], before="Text\n\n```py\na = 1\n")
    assert lines == ["b = 2", "────────────────────────────────────────", "", "Done now"]
    assert shown(["*x*"], before="```py\na\n```\n") == ["x"]


@pytest.mark.parametrize(
    ("source", "presented"),
    [
        ("a **bo", "a **bo**"),
        ("a *it", "a *it*"),
        ("`co", "`co`"),
        ("a ``c`", "a ``c``"),
        ("see [text](http", "see text"),
        ("![al", "al"),
        ("2 * 3", "2 * 3"),
        ("**a** b", "**a** b"),
        ("snake_case_x", "snake_case_x"),
        ("a **b *c", "a **b *c***"),
        ("~~s", "~~s~~"),
        ("- ", ""),
        ("12.", ""),
        ("text\n#", "text\n"),
        ("text **", "text "),
        ("a ```py\nb\n~", "a ```py\nb```"),
        ("", ""),
    ],
)
def test_markers_that_are_not_complete_are_not_shown(source: str, presented: str) -> None:
    assert presentable(source) == presented


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("4.", ["4."]),
        ("120. ", ["120."]),
        ("1. one\n2.\n3. three", ["1. one", "2.", "3. three"]),
        ("-", ["•"]),
        ("#", ["#"]),
        (">", [">"]),
    ],
)
def test_a_block_without_a_text_is_shown_and_not_lost(source: str, lines: list[str]) -> None:
    assert shown([source]) == shown(list(source)) == lines


def test_codes_that_steer_the_terminal_are_left_out() -> None:
    lines = shown(["a\x1b[31mb\x07\x9b2J `\x1b]0;t\x07`\n\n```\n\x1b[H\r\x08\n```"])
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for line in lines for c in line)
    with_color = MarkdownAnswer(view(color=True))
    with_color.feed("a \x1b]8;;https://x\x1b\\b [c](https://x/\x1b[31m)")
    text = "".join(line.text for line in with_color.finish(TALL))
    assert "\x1b]" not in text
    assert "\x1b[31m" not in text


def test_without_colour_there_are_no_codes_and_without_unicode_no_boxes() -> None:
    answer = MarkdownAnswer(view(encoding="ascii"))
    answer.feed("- a\n\n---\n\n| a |\n|---|\n| 1 |\n\n```\nx\n```\n")
    text = "\n".join(line.text for line in answer.finish(TALL))
    assert text.isascii()
    assert text.splitlines()[0] == "* a"


@pytest.mark.parametrize("color", [False, True])
def test_an_unknown_language_is_shown_as_it_is(color: bool) -> None:
    answer = MarkdownAnswer(view(color=color))
    answer.feed("```no-such-language\n<x>\n\n\n```")
    lines = answer.finish(TALL)
    assert [line.cells for line in lines] == [40, 3, 0, 0, 40]


def test_reasoning_is_marked_and_final_line_by_line() -> None:
    thought = MarkedText(view(), "faint", "| ")
    thought.feed("one\ntwo ")
    final, live = thought.lines((20, 10))
    assert [line.text for line in final] == ["| one"]
    assert [line.text for line in live] == ["| two"]
    thought.feed("and a good deal more of this")
    _, live = thought.lines((20, 10))
    assert all(line.cells < 20 for line in live)
    assert [line.text for line in thought.finish((20, 10))] == [line.text for line in live]


def test_reasoning_longer_than_the_screen_is_shown_whole() -> None:
    words = [f"w{n}" for n in range(300)]
    thought = MarkedText(view(), "faint", "| ")
    lines = []
    for word in words:
        thought.feed(f"{word} ")
        lines += thought.lines((30, 6))[0]
    lines += thought.finish((30, 6))
    assert " ".join(line.text.removeprefix("| ") for line in lines).split() == words


def test_raw_text_is_wrapped_by_the_terminal_alone() -> None:
    answer = RawAnswer()
    answer.feed("**a**\n\tb" + "c" * 100)
    final, live = answer.lines((40, 10))
    assert [line.text for line in final] == ["**a**"]
    assert [line.text for line in live] == ["\tb" + "c" * 100]
    answer.feed("d" * 400)
    lines = [*answer.lines((40, 10))[0], *answer.finish((40, 10))]
    assert "".join(line.text for line in lines) == "\tb" + "c" * 100 + "d" * 400
