"""The live panel: widths that add up, rows that tell the truth, a map that fits."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from colibri_cli.supervisor.telemetry import Telemetry
from colibri_cli.terminal.expert_heat import ExpertGrid, HitTimes, expert_heat
from colibri_cli.terminal.scheduler import scheduler_foot, scheduler_table
from colibri_cli.terminal.serve_panel import ServePanel, trend_line
from colibri_cli.terminal.tier_bar import cell_widths, tier_bar
from colibri_cli.terminal.upstream_line import upstream_line
from colibri_protocol.messages import ExpertHits, ExpertMap
from tests.fakes.screens import ReflowingTerminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rich.console import RenderableType

COUNTERS = {
    "active": 1, "queued": 2, "capacity": 2, "max_queue": 8, "queue_timeout_seconds": 300.0,
    "admitted": 9, "completed": 7, "failed": 0, "aborted": 1, "rejected": 3, "timed_out": 0,
    "cancelled": 0,
}  # fmt: skip
SLOT = {
    "slot": 1, "request": "0123456789abcdef0123", "state": "prefill", "prompt_tokens": 400,
    "prefilled_tokens": 256, "generated": 0, "tokens_per_second": 0.0, "wait_s": 0.25,
    "age_s": 75.0,
}  # fmt: skip
TIERS = {"vram": 0, "ram": 6, "disk": 2, "vram_gb": 0.0, "ram_gb": 0.5}
HEALTH: dict[str, Any] = {
    "status": "ok", "version": "0.1.0", "model": "demo", "uptime_s": 5, "kv_slots": 2,
    "scheduler": COUNTERS, "slots": [SLOT], "tiers": TIERS,
    "hwinfo": {"cores": 2, "ram_total_gb": 16.0, "gpus": 0, "cpu": "Fake CPU", "gpu": ""},
}  # fmt: skip


def drawn(what: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, height=40, color_system=None).print(what)
    return out.getvalue()


@given(counts=st.lists(st.integers(0, 50_000), min_size=1, max_size=5), width=st.integers(0, 200))
def test_widths_add_up_and_nothing_that_is_there_disappears(counts: list[int], width: int) -> None:
    widths = cell_widths(counts, width)
    assert len(widths) == len(counts)
    assert sum(widths) == (width if sum(counts) else 0)
    assert all(cells >= 0 for cells in widths)
    assert all(cells == 0 for cells, count in zip(widths, counts, strict=True) if count == 0)
    if width >= sum(count > 0 for count in counts):
        assert all(cells > 0 for cells, count in zip(widths, counts, strict=True) if count)


def test_the_largest_remainder_gets_the_cell() -> None:
    assert cell_widths([1, 1, 1], 10) == [4, 3, 3]
    assert cell_widths([10_000, 1, 0], 10) == [9, 1, 0]


def test_without_colour_tiers_have_characters() -> None:
    text = drawn(tier_bar({**TIERS, "vram": 2}, 10, has_color=False))
    assert text.splitlines()[0] == "##======.."
    assert "RAM 6 experts 0.5 GB" in text
    assert "disk 2 experts" in text


def test_every_slot_has_a_row() -> None:
    lines = drawn(scheduler_table(HEALTH)).splitlines()
    assert lines[0].split() == [
        "Slot", "State", "Request", "Prompt", "tok", "Gen", "tok", "tok/s", "Wait", "Age",
    ]  # fmt: skip
    assert lines[1].split() == ["0", "free"]
    assert lines[2].split() == ["1", "prefill", "0123456789abcdef", "256/400", "0", "0.2s",
                                "1m15s"]  # fmt: skip


def test_a_request_whose_slot_is_not_known_yet_is_shown_too() -> None:
    health = {**HEALTH, "slots": [{**SLOT, "slot": None, "state": "decode", "age_s": 7300.0}]}
    assert "?" in drawn(scheduler_table(health))
    assert "2h01m" in drawn(scheduler_table(health))


UPSTREAM = {
    "server": "vllm", "url": "http://box:8001", "running": 3, "waiting": 0, "kv_usage": 0.254,
    "decode_rate": 41.26, "prefill_rate": 0.0, "hit_ratio": None,
}  # fmt: skip


def test_hundreds_of_places_have_rows_for_what_runs_alone() -> None:
    health = {**HEALTH, "kv_slots": 256, "slots": [SLOT] * 40}
    table = scheduler_table(health)
    assert table.row_count == 16
    assert "free" not in drawn(table)
    assert scheduler_table({**health, "slots": []}).row_count == 0
    assert drawn(scheduler_foot(health)).startswith("running 1/256 · queued 2/8")


def test_the_server_behind_has_a_line_with_what_it_tells() -> None:
    line = upstream_line({**HEALTH, "upstream": UPSTREAM})
    assert line is not None
    assert line.plain == (
        "upstream vllm at http://box:8001 · running 3 · waiting 0 · KV cache 25% · 41.3 tok/s"
    )
    silent = {"server": "openai", "url": "http://box:1", **dict.fromkeys(list(UPSTREAM)[2:])}
    line = upstream_line({**HEALTH, "upstream": silent})
    assert line is not None
    assert line.plain == "upstream openai at http://box:1"
    assert upstream_line(HEALTH) is None


def test_the_foot_counts_what_went_wrong_only_if_something_did() -> None:
    text = drawn(scheduler_foot(HEALTH)).strip()
    assert text == "queued 2/8 · completed 7 · aborted 1 · rejected 3"
    assert drawn(scheduler_foot({})).strip() == ""


GRID = ExpertGrid(4, 8, bytes([0x40 | heat for heat in range(24)] + [0x00] * 8))


@pytest.mark.parametrize("has_color", [True, False])
@given(
    rows=st.integers(1, 90),
    cols=st.integers(1, 300),
    width=st.integers(1, 120),
    height=st.integers(1, 40),
)
def test_the_map_fits_and_shows_every_expert(
    has_color: bool, rows: int, cols: int, width: int, height: int
) -> None:
    grid = ExpertGrid(rows, cols, bytes(rows * cols))
    seen = [expert for line in grid.spots(width, height) for spot in line for expert in spot]
    assert sorted(seen) == list(range(rows * cols))
    text = expert_heat(grid, HitTimes(), (width, height), 0.0, has_color=has_color)
    lines = text.plain.split("\n")
    assert len(lines) <= height
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= max(width, len(str(rows - 1)) + 2)


def test_hot_experts_are_darker_shades_without_colour() -> None:
    lines = expert_heat(GRID, HitTimes(), (20, 4), 0.0, has_color=False).plain.split("\n")
    assert [line[:2] for line in lines] == ["0 ", "1 ", "2 ", "3 "]
    assert lines[2][-1] == "█"
    assert lines[3][-1] == "░"


def test_tier_gives_the_hue_and_heat_the_brightness() -> None:
    text = expert_heat(GRID, HitTimes(), (20, 2), 0.0, has_color=True)
    colors = [span.style for span in text.spans if getattr(span.style, "bgcolor", None)]
    cold, hot = colors[0].color, colors[8 + 7].color  # type: ignore[union-attr]
    assert cold is not None
    assert hot is not None
    assert cold.triplet is not None
    assert hot.triplet is not None
    assert cold.triplet.blue > cold.triplet.red  # RAM is blue
    assert hot.triplet.blue > cold.triplet.blue
    disk = colors[-1].bgcolor  # type: ignore[union-attr]
    assert disk is not None
    assert disk.triplet is not None
    assert disk.triplet.red == disk.triplet.green == disk.triplet.blue


def test_hits_glow_and_fade() -> None:
    hits = HitTimes()
    hits.note(b"\x05", 8, 1, now=10.0)
    assert hits.glow([0], 10.0) == 1
    assert hits.glow([1], 10.0) == 0
    assert hits.glow([1, 2], 10.6) == pytest.approx(0.5)
    assert hits.glow([0], 12.0) == 0
    hits.note(b"\xff", 8, 1, now=20.0)  # seen before
    assert hits.glow([0], 20.0) == 0
    hits.note(b"\xff\xff", 8, 2, now=20.0)
    assert hits.glow([7], 20.0) == 1


def test_a_map_that_is_too_short_is_no_map() -> None:
    short = ExpertGrid(4, 8, b"\x00")
    assert expert_heat(short, HitTimes(), (20, 4), 0.0, has_color=True).plain == "no experts"


class Source:
    """Figures that stand still."""

    url = "http://127.0.0.1:8000"
    rates: Sequence[float] = (4.0, 8.0)

    @property
    def health(self) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        async def health() -> Mapping[str, Any]:
            return HEALTH

        return health

    @property
    def telemetry(self) -> Callable[[], Telemetry]:
        found = Telemetry()
        found.feed(ExpertMap(2, 4, bytes(8)))
        found.feed(ExpertHits(2, 4, b"\x0f"))
        return lambda: found


def panel_text(width: int, height: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    panel = ServePanel(Source(), has_color=False, console=console)
    console.print(panel.render(HEALTH))
    return out.getvalue()


def test_the_panel_shows_state_slots_tiers_speed_and_map() -> None:
    text = panel_text(100, 40)
    for part in ("ok · demo", "Fake CPU", "prefill", "RAM 6 experts", "8.00 tok/s", "queued 2/8"):
        assert part in text
    assert len(text.splitlines()) <= 40


def test_a_small_terminal_gets_a_summary() -> None:
    text = panel_text(30, 8)
    assert "demo" in text
    assert "Slot" not in text


def test_the_trend_names_last_median_and_most() -> None:
    assert trend_line([1.0, 2.0, 8.0]).plain == "▂▃█  8.00 tok/s, median 2.00, most 8.00"


def test_what_is_logged_stands_above_and_no_width_leaves_anything_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("colibri_cli.terminal.serve_panel._INTERVAL_S", 0.005)
    terminal = ReflowingTerminal(80, 30)
    console = Console(file=io.StringIO(), width=80, height=30, color_system=None)
    logger = logging.getLogger("colibri_cli")
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)

    async def run() -> None:
        before = sys.stderr
        panel = ServePanel(Source(), has_color=False, console=console, output=terminal.output)
        async with panel:
            await asyncio.sleep(0.05)
            sys.stderr.write("one line\nand ")
            sys.stderr.write("another\n")
            for columns in (40, 120, 60, 80):
                terminal.resize(columns, 30)
                console.width = columns
                await asyncio.sleep(0.05)
            logger.warning("logged")
        assert sys.stderr is before

    asyncio.run(run())
    lines = terminal.lines()
    assert lines[:3] == ["one line", "and another", "logged"]
    for shown in ("coli 0.1.0 ok", "Slot", "queued 2/8", "tok/s, median"):
        assert sum(shown in line for line in lines[3:]) == 1
