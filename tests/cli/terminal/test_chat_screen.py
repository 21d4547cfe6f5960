"""The screen of a chat: what is shown when, in colour and without, and what never gets through."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from colibri_cli.console import theme_for
from colibri_cli.errors import EngineCrashed, UsageError
from colibri_cli.terminal.chat_screen import TerminalScreen
from colibri_cli.terminal.live_region import TerminalOutput
from tests.fakes.screens import PyteTerminal

if TYPE_CHECKING:
    from collections.abc import Callable

THEME = theme_for(is_light=False)
STEERING = "a\x1b[2J\x1b]0;title\x07\x9b31m\r\x08b\u202ec"


def screen_on(
    terminal: PyteTerminal,
    *,
    color: bool = False,
    encoding: str = "utf-8",
    columns: int | None = None,
    **options: bool,
) -> TerminalScreen:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    if color:
        console = Console(
            file=file,
            color_system="256",
            force_terminal=True,
            width=500,
            theme=THEME,
        )
    else:
        console = Console(file=file, color_system=None, width=500, theme=THEME)
    output = terminal.output
    if columns is not None:  # what the screen believes; the terminal shows what is too long
        output = TerminalOutput(terminal.write, lambda: (columns, 40))
    return TerminalScreen(console=console, output=output, **options)


def show(
    act: Callable[[TerminalScreen], None], *, is_quiet: bool = False, shows_reasoning: bool = True
) -> list[str]:
    """Let something be shown and return what then stands on the terminal."""
    terminal = PyteTerminal()

    async def run() -> None:
        act(screen_on(terminal, is_quiet=is_quiet, shows_reasoning=shows_reasoning))

    asyncio.run(run())
    return terminal.lines()


def test_a_status_stands_until_something_comes_and_leaves_nothing() -> None:
    async def run() -> list[list[str]]:
        terminal = PyteTerminal()
        screen = screen_on(terminal)

        async def shown(words: str) -> list[str]:
            """Wait for a drawing, however busy the machine is."""
            for _ in range(3_000):
                if words in (lines := terminal.lines())[0]:
                    return lines
                await asyncio.sleep(0.01)
            raise AssertionError(terminal.lines())

        screen.begin_answer()
        seen = [terminal.lines()]
        screen.show_progress(1, 4)
        seen.append(await shown("reading"))
        screen.show_text("Hello")
        seen.append(await shown("Hello"))
        screen.end_answer()
        return [*seen, terminal.lines()]

    begun, reading, answering, ended = asyncio.run(run())
    assert re.fullmatch(r". working · 0 s", begun[0])
    assert re.fullmatch(r". reading the prompt 25 % · \d+ s", reading[0])
    assert answering == ended == ["Hello"]


def test_reasoning_stands_apart_above_the_answer() -> None:
    def act(screen: TerminalScreen) -> None:
        screen.begin_answer()
        screen.show_reasoning("first *this*\nthen that")
        screen.show_text("The answer")
        screen.end_answer()
        screen.notice("done")

    lines = show(act)
    assert lines[:3] == ["thinking", "│ first *this*", "│ then that"]
    assert re.fullmatch(r"thought for 0\.\d s", lines[3])
    assert lines[4:] == ["", "The answer", "done"]


def test_hidden_reasoning_leaves_one_line() -> None:
    def act(screen: TerminalScreen) -> None:
        screen.begin_answer()
        screen.show_reasoning("secret")
        screen.show_text("The answer")
        screen.end_answer()

    lines = show(act, shows_reasoning=False)
    assert re.fullmatch(r"thought for 0\.\d s", lines[0])
    assert lines[1:] == ["", "The answer"]


def test_reasoning_that_is_interrupted_is_closed() -> None:
    def act(screen: TerminalScreen) -> None:
        screen.begin_answer()
        screen.show_reasoning("half a th")
        screen.end_answer()
        screen.begin_answer()
        screen.show_text("next")
        screen.end_answer()

    lines = show(act)
    assert lines[:2] == ["thinking", "│ half a th"]
    assert lines[-1] == "next"
    assert lines.count("thinking") == 1


@pytest.mark.parametrize("is_markdown", [True, False])
def test_nothing_that_is_shown_can_steer_the_terminal(is_markdown: bool) -> None:
    terminal = PyteTerminal()

    async def run() -> None:
        screen = screen_on(terminal, is_markdown=is_markdown)
        screen.begin_answer()
        screen.show_status(STEERING)
        screen.show_reasoning(STEERING)
        screen.show_text(f"{STEERING}\n\n```\n{STEERING}\n```\n")
        screen.end_answer()
        screen.notice(STEERING)
        screen.show_message(STEERING)
        screen.show_answer(STEERING)
        screen.show_reasoning_of(STEERING)
        screen.show_error(EngineCrashed(STEERING, stderr_tail=(STEERING,), hint=STEERING))

    asyncio.run(run())
    ours = re.compile(r"\r|\x1b\[(?:\?2026[hl]|\d*[AC]|[JK])")
    rest = ours.sub("", terminal.written)
    assert "\x1b" not in rest
    assert not re.search("[\x07\x08\x80-\x9f\u202e]", rest)


def test_errors_are_red_and_notices_faint_where_colour_is() -> None:
    terminal = PyteTerminal()
    screen = screen_on(terminal, color=True)
    screen.show_error(UsageError("wrong", hint="do this"))
    screen.notice("by the way")
    assert "\x1b[31mwrong\x1b[0m" in terminal.written
    assert "\x1b[38;5;242mby the way\x1b[0m" in terminal.written
    assert terminal.lines() == ["wrong", "  do this", "by the way"]


def test_without_colour_and_unicode_it_is_plain() -> None:
    terminal = PyteTerminal()
    screen = screen_on(terminal, encoding="ascii")

    async def run() -> None:
        screen.begin_answer()
        screen.show_reasoning("hm")
        screen.show_text("- a")
        screen.end_answer()
        screen.show_message("two\nlines")

    asyncio.run(run())
    assert terminal.written.isascii()
    assert "m" not in re.findall(r"\x1b\[[0-9;]*([A-Za-z])", terminal.written)
    assert terminal.lines()[1] == "| hm"
    assert terminal.lines()[-3:] == ["* a", "> two", "  lines"]


@pytest.mark.parametrize("name", ["tiers", "experts", "phases"])
def test_views_without_unicode_are_ascii(name: str) -> None:
    terminal = PyteTerminal()
    screen = screen_on(terminal, encoding="ascii")
    turn = {
        "wall_s": 2.0, "expert_disk_s": 0.5, "expert_wait_s": 0.1, "expert_matmul_s": 0.6,
        "attention_s": 0.3, "lm_head_s": 0.1, "prompt_tokens": 5, "completion_tokens": 40,
        "forwards": 41,
    }  # fmt: skip
    figures = {
        "tiers": {"vram": 0, "ram": 6, "disk": 2, "vram_gb": 0.0, "ram_gb": 0.5},
        "experts": {"rows": 3, "cols": 4, "map": "454a52" * 4, "hits": "ff", "seq": 1},
        "phases": [turn, turn],
    }
    screen.show_view(name, figures[name])
    assert terminal.written.isascii()
    assert terminal.lines()


def test_quiet_leaves_out_notices_but_not_errors() -> None:
    def act(screen: TerminalScreen) -> None:
        screen.notice("chatter")
        screen.show_error(UsageError("wrong"))

    assert show(act, is_quiet=True) == ["wrong"]


def test_notices_are_wrapped_between_words() -> None:
    lines = show(lambda screen: screen.notice("word " * 30))
    assert all(len(line) < 80 and line.endswith("word") for line in lines)


def test_what_is_wrapped_goes_on_below_its_column() -> None:
    words = " ".join(f"w{n:02}" for n in range(30))
    lines = show(lambda screen: screen.notice(f"/name [ARGUMENT]  {words}"))
    assert lines[0].startswith("/name [ARGUMENT]  w00 ")
    assert all(re.match(r" {18}w\d\d", line) for line in lines[1:])
    assert " ".join(lines).split()[2:] == words.split()
    lines = show(lambda screen: screen.notice(f"{'x' * 50}  {words}"))
    assert all(re.match(r" {4}w\d\d", line) for line in lines[1:])


def test_errors_are_wrapped_between_words_and_paths_stay_whole() -> None:
    names = ", ".join(f"name-of-{n:02}" for n in range(20))
    lines = show(lambda screen: screen.show_error(UsageError("wrong", hint=names)))
    assert lines[0] == "wrong"
    assert all(line.startswith("  name-of-") and len(line) < 80 for line in lines[1:])
    path = "/".join(["directory"] * 15)
    lines = show(lambda screen: screen.show_error(UsageError(f"there is no {path}")))
    assert "".join(lines) == f"there is no {path}"


def test_text_goes_to_the_clipboard_by_its_code_and_not_too_much_of_it() -> None:
    terminal = PyteTerminal()
    screen = screen_on(terminal)
    screen.copy("Grüße\x1b")
    code = re.fullmatch(r"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07", terminal.written)
    assert code is not None
    assert base64.b64decode(code[1]).decode() == "Grüße\x1b"
    with pytest.raises(UsageError, match="too many"):
        screen.copy("x" * 200_000)


def test_drawing_waits_after_it_took_long() -> None:
    async def run() -> int:
        terminal = PyteTerminal()
        screen = screen_on(terminal)
        screen.begin_answer()
        for _ in range(500):
            screen.show_text("word ")
        count = terminal.written.count("\x1b[?2026h")
        screen.end_answer()
        assert "".join(terminal.lines()).replace(" ", "") == "word" * 500
        return count

    assert asyncio.run(run()) < 50


@pytest.mark.parametrize("name", ["tiers", "experts", "phases", "queue"])
@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("color", [False, True])
def test_views_fit_the_width(name: str, columns: int, color: bool) -> None:
    terminal = PyteTerminal(300, 40)
    screen = screen_on(terminal, color=color, columns=columns)
    turn = {
        "wall_s": 2.0, "expert_disk_s": 0.5, "expert_wait_s": 0.1, "expert_matmul_s": 0.6,
        "attention_s": 0.3, "lm_head_s": 0.1, "prompt_tokens": 5, "completion_tokens": 40,
        "forwards": 41,
    }  # fmt: skip
    figures = {
        "tiers": {"vram": 0, "ram": 6, "disk": 2, "vram_gb": 0.0, "ram_gb": 0.5},
        "experts": {"rows": 3, "cols": 200, "map": "45" * 600, "hits": "ff", "seq": 1},
        "phases": [turn, turn],
        "queue": {"kv_slots": 1, "slots": []},
    }
    screen.show_view(name, figures[name])
    lines = terminal.lines()
    assert lines
    assert all(len(line) < columns for line in lines)
    if name == "phases" and color:
        assert re.search(r"\x1b\[4\d[0-9;]*m {2,}", terminal.written), "the bar is made of spaces"
    if name != "queue":
        assert bool(re.search(r"\x1b\[[0-9;]*m", terminal.written)) == color
