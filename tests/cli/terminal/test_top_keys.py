"""Keys of `coli top`: what they change, and what is drawn then."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from colibri_cli.terminal.expert_heat import ExpertGrid, HitTimes, Window, expert_heat
from colibri_cli.terminal.scheduler import scheduler_table
from colibri_cli.terminal.top_keys import TopState
from colibri_cli.terminal.top_view import RemoteSource, TopView
from tests.cli.terminal.shown_views import EXPERTS, HEALTH, TURNS

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


def drawn(state: TopState) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, height=40, color_system=None)
    source = RemoteSource("http://127.0.0.1:8000")
    source.take({"health": HEALTH, "experts": EXPERTS, "profile": {"turns": TURNS}})
    view = TopView(source, console, has_color=False)
    view._state = state
    console.print(view.render())
    return out.getvalue()


def pressed(*keys: str) -> TopState:
    state = TopState()
    for key in keys:
        state.press(key)
    return state


@pytest.mark.parametrize("key", ["q", "Q", "\x1b", ""])
def test_it_ends_with_q_escape_and_the_end_of_input(key: str) -> None:
    assert pressed(key).is_over


@pytest.mark.parametrize("key", [UP, DOWN, RIGHT, LEFT, "\x1bOA", "x", "9", "\x1b[15~", "ü"])
def test_other_keys_do_not_end_it(key: str) -> None:
    assert not pressed(key).is_over


def test_p_pauses_and_goes_on() -> None:
    assert pressed("p").is_paused
    assert not pressed("p", " ").is_paused


@pytest.mark.parametrize(
    ("key", "part"),
    [("1", "queued"), ("2", "VRAM"), ("3", "median"), ("4", "▓"), ("5", "wait 20 %")],
)
def test_a_number_hides_its_part_and_brings_it_back(key: str, part: str) -> None:
    assert part in drawn(pressed())
    assert part not in drawn(pressed(key))
    assert part in drawn(pressed(key, key))


def test_the_keys_are_told() -> None:
    assert "zoom the map" in drawn(pressed("?"))
    assert "zoom the map" not in drawn(pressed("?", "?"))


def test_zooming_and_moving_stay_within_the_map() -> None:
    assert pressed().window(12, 160) is None
    assert pressed("+").window(12, 160) == Window(3, 40, 6, 80)
    assert pressed("+", LEFT, LEFT, UP, UP, UP).window(12, 160) == Window(0, 0, 6, 80)
    assert pressed("+", RIGHT * 9 + DOWN * 9).window(12, 160) == Window(6, 80, 6, 80)
    assert pressed("+", RIGHT, "-").window(12, 160) is None
    assert pressed("+", "+", "0").window(12, 160) is None
    assert pressed(*"+" * 9).window(3, 2) is not None


def test_a_window_shows_its_own_experts_and_layers() -> None:
    cells = bytes(40 if (row, col) == (9, 70) else 0 for row in range(10) for col in range(80))
    grid = ExpertGrid(10, 80, cells, Window(8, 64, 2, 16))
    spots = grid.spots(100, 100)
    assert [len(line) for line in spots] == [16, 16]
    assert spots[1][6] == [9 * 80 + 70]
    lines = expert_heat(grid, HitTimes(), (40, 4), 0.0, has_color=False).plain.split("\n")
    assert [line[:2] for line in lines] == ["8 ", "9 "]
    assert lines[1][2 + 6] == "█"


@pytest.mark.parametrize(("order", "slots"), [("slot", "012"), ("tokens", "120"), ("age", "210")])
def test_slots_stand_in_the_order_asked_for(order: str, slots: str) -> None:
    first = scheduler_table(HEALTH, 80, order).columns[0]
    assert "".join(Text.from_markup(str(cell)).plain for cell in first.cells) == slots
    assert [pressed(*"s" * n).order for n in range(4)] == ["slot", "tokens", "age", "slot"]
