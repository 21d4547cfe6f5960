"""What `coli top` draws, at several widths, with and without colour; figures are the server's."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from colibri_cli.terminal.durations import duration
from colibri_cli.terminal.phases import part_seconds, phase_bar
from colibri_cli.terminal.top_view import RemoteSource, TopView

TURN = {
    "wall_s": 2.0,
    "prompt_tokens": 10,
    "completion_tokens": 30,
    "expert_disk_s": 0.0,
    "expert_wait_s": 0.5,
    "expert_matmul_s": 0.75,
    "attention_s": 0.25,
    "lm_head_s": 0.1,
    "forwards": 30,
}
RUNNING = {
    "slot": 1,
    "request": "req_abcdef",
    "state": "decode",
    "prompt_tokens": 12,
    "prefilled_tokens": 12,
    "generated": 34,
    "tokens_per_second": 5.5,
    "wait_s": 0.0,
    "age_s": 75.0,
}
FIGURES: dict[str, dict[str, Any]] = {
    "health": {
        "status": "ok",
        "version": "0.1.0",
        "model": "demo",
        "uptime_s": 9,
        "kv_slots": 2,
        "slots": [RUNNING],
        "scheduler": {"queued": 3, "max_queue": 8, "completed": 5, "cancelled": 1},
        "tiers": {"vram": 0, "ram": 3, "disk": 5, "vram_gb": 0.0, "ram_gb": 0.5},
    },
    "experts": {"rows": 2, "cols": 4, "map": "4041420001020300", "hits": "01", "seq": 1},
    "profile": {"seq": 1, "turns": [TURN]},
}


def drawn(width: int, height: int = 40, *, has_color: bool = False) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        height=height,
        force_terminal=has_color,
        color_system="truecolor" if has_color else None,
        legacy_windows=False,
    )
    source = RemoteSource("http://127.0.0.1:8000")
    source.take(FIGURES)
    console.print(TopView(source, console, has_color=has_color).render("q quit"))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_and_nothing_is_cut(width: int) -> None:
    text = drawn(width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for shown in (
        "demo",
        "queued 3/8",
        "completed 5",
        "cancelled 1",
        "34",
        "5.50",
        "1m15s",
        "q quit",
    ):
        assert shown in text
    assert "15.00 tok/s" in text  # 30 tokens in 2 s
    assert "\x1b" not in text


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    assert "Prompt tok" in drawn(80)
    assert "Prompt tok" not in drawn(40)
    assert "Gen tok" in drawn(40)


def test_colour_is_used_where_it_may_be() -> None:
    assert "\x1b[" in drawn(80, has_color=True)


def test_a_screen_that_is_too_small_gets_a_summary() -> None:
    text = drawn(39)
    assert "queued 3/8" in text
    assert "Slot" not in text


def test_the_map_leaves_room_for_what_stands_below_it() -> None:
    lines = drawn(80, height=16).splitlines()
    assert len(lines) <= 16
    assert lines[-1].strip() == "q quit"


def test_parts_and_the_rest_make_the_whole() -> None:
    seconds = part_seconds(TURN)
    assert sum(seconds.values()) == pytest.approx(2.0)
    assert seconds["other"] == pytest.approx(0.4)


@pytest.mark.parametrize("width", [6, 20, 60])
def test_the_bar_is_as_wide_as_asked_for_and_shows_every_part_there_was(width: int) -> None:
    bar, *legend = phase_bar(TURN, width, has_color=False).plain.split("\n")
    assert len(bar) == width
    assert set(bar) == {"w", "e", "a", "h", "."}
    assert "w wait 25 %" in "   ".join(legend)
    assert "disk" not in "".join(legend)


def test_an_answer_that_took_no_time_has_an_empty_bar() -> None:
    nothing = dict.fromkeys(TURN, 0)
    assert phase_bar(nothing, 20, has_color=False).plain.strip() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (12.9, "12s"), (185, "3m05s"), (7800, "2h10m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
