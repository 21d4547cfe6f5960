"""The live region: what is done stays, what is live is replaced, nothing is lost or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_cli.terminal.live_region import Line, LiveRegion
from tests.fakes.screens import PyteTerminal, ReflowingTerminal

TEXTS = st.text("abc ", max_size=30).map(lambda text: f"x{text}".rstrip())
UPDATES = st.lists(st.tuples(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=5)), max_size=12)


def lines_of(*texts: str) -> list[Line]:
    return [Line.plain(text) for text in texts]


@given(updates=UPDATES, columns=st.integers(10, 40))
def test_the_screen_shows_what_is_done_and_then_what_is_live(
    updates: list[tuple[list[str], list[str]]], columns: int
) -> None:
    terminal = ReflowingTerminal(columns, 24)
    region = LiveRegion(terminal.output)
    done: list[str] = []
    for finished, live in updates:
        region.update(lines_of(*finished), lines_of(*live))
        done += finished
        assert terminal.lines() == done + live


@given(updates=UPDATES)
def test_a_real_terminal_emulator_agrees(updates: list[tuple[list[str], list[str]]]) -> None:
    terminal = PyteTerminal(40, 10)
    region = LiveRegion(terminal.output)
    done: list[str] = []
    for finished, live in updates:
        region.update(lines_of(*finished), lines_of(*live))
        done += finished
    region.keep()
    assert terminal.lines() == done + (updates[-1][1] if updates else [])


@given(
    updates=UPDATES,
    sizes=st.lists(st.tuples(st.integers(12, 60), st.integers(24, 30)), min_size=1, max_size=6),
)
def test_resizing_between_updates_doubles_nothing(
    updates: list[tuple[list[str], list[str]]], sizes: list[tuple[int, int]]
) -> None:
    terminal = ReflowingTerminal(40, 24)
    region = LiveRegion(terminal.output)
    done: list[str] = []
    for index, (finished, live) in enumerate(updates):
        region.update(lines_of(*finished), lines_of(*live))
        done += finished
        terminal.resize(*sizes[index % len(sizes)])
    region.update((), lines_of("last"))
    assert terminal.lines() == [*done, "last"]


def test_a_line_that_changes_at_its_end_costs_that_line_only() -> None:
    terminal = PyteTerminal()
    region = LiveRegion(terminal.output)
    region.update((), lines_of("one", "two", "thr"))
    terminal.written = ""
    region.update((), lines_of("one", "two", "three"))
    assert "three" in terminal.written
    assert "one" not in terminal.written
    assert "two" not in terminal.written


def test_lines_that_only_become_permanent_cost_nothing_but_a_line_feed() -> None:
    terminal = PyteTerminal()
    region = LiveRegion(terminal.output)
    region.update((), lines_of("one", "two"))
    terminal.written = ""
    region.update(lines_of("one", "two"), ())
    assert terminal.written.replace("\x1b[?2026h", "").replace("\x1b[?2026l", "") == "\n"


def test_the_same_again_writes_nothing() -> None:
    terminal = PyteTerminal()
    region = LiveRegion(terminal.output)
    region.update((), lines_of("one"))
    terminal.written = ""
    region.update((), lines_of("one"))
    assert terminal.written == ""


@pytest.mark.parametrize("size", [(20, 5), (7, 3)])
def test_a_line_wider_than_the_terminal_is_replaced_whole(size: tuple[int, int]) -> None:
    terminal = ReflowingTerminal(*size)
    region = LiveRegion(terminal.output)
    region.update((), lines_of("a" * 18))
    region.update((), lines_of("b" * 20))
    region.update(lines_of("c" * 19), lines_of("d"))
    assert terminal.lines() == ["c" * 19, "d"]


def test_a_tab_does_not_leave_what_stood_there() -> None:
    terminal = PyteTerminal()
    region = LiveRegion(terminal.output)
    region.update((), lines_of("0123456789"))
    region.update((), [Line("a\tb", 9)])
    assert terminal.lines() == ["a       b"]
