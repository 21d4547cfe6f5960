"""`coli chat` in a real terminal program: long answers, resizing, keys at every moment."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from colibri_cli import __version__
from tests.fakes.tmux import Tmux

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.alone,
    pytest.mark.skipif(not Tmux.is_here(), reason="needs tmux"),
]

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


def chat(served: CommandLine, size: tuple[int, int] = (80, 24)) -> Tmux:
    terminal = Tmux([*served.argv, "chat", "--no-attach"], served.environment, served.home, size)
    terminal.wait_for(PROMPT)
    return terminal


def ask(terminal: Tmux, served: CommandLine, answer: str, slow: float = 0.0) -> None:
    """Make the scripted engine answer with this text."""
    terminal.paste(f"[[json {json.dumps(answer)}]] [[slow {slow}]]", served.home)
    terminal.wait_for("]]")
    terminal.type("Enter")


def shown(text: str) -> str:
    """Return what stands below the message."""
    return text.rpartition("[[slow")[2].partition("]]\n")[2]


def test_name_and_version_are_said_once_with_the_banner_and_without(served: CommandLine) -> None:
    for variables in ({}, {"COLI_BANNER": "0"}):
        served.variables |= variables
        with chat(served) as terminal:
            assert terminal.text.count(f"coli {__version__}") == 1


def test_a_long_answer_stands_in_the_scrollback_once_and_whole(served: CommandLine) -> None:
    code = "\n".join(f"value_{n} = {n}  # line {n}" for n in range(60))
    rows = "\n".join(f"| row{n} | {n} |" for n in range(40))
    answer = (
        f"# Title\n\nBefore **bold**.\n\n```python\n{code}\n```\n\n| a | b |\n|---|--:|\n{rows}\n"
    )
    with chat(served) as terminal:
        ask(terminal, served, answer + "\nThe end.\n")
        text = shown(terminal.wait_for("tok/s"))
    assert [line for line in text.splitlines() if line.startswith("value_")] == code.splitlines()
    assert re.findall(r"^ (row\d+) ", text, re.MULTILINE) == [f"row{n}" for n in range(40)]
    assert text.count("Before bold.") == 1
    assert text.count("── python ─") == 1
    assert text.count("The end.") == 1
    assert "**" not in text


def test_resizing_during_an_answer_loses_and_doubles_nothing(served: CommandLine) -> None:
    words = [f"w{n:03}" for n in range(120)]
    answer = " ".join(words[:60]) + "\n\n- " + "\n- ".join(words[60:90])
    answer += "\n\n" + " ".join(words[90:]) + " finished\n"
    with chat(served) as terminal:
        ask(terminal, served, answer, slow=0.03)
        for marker, size in (("w010", (50, 24)), ("w035", (110, 30)), ("w065", (40, 20)),
                             ("w095", (80, 24))):  # fmt: skip
            terminal.wait_for(f"{marker} " if marker < "w060" else marker)
            terminal.resize(*size)
        text = shown(terminal.wait_for("tok/s"))
    assert re.findall(r"w\d{3}", text) == words


def test_the_box_of_the_editor_stands_once_whatever_the_width(served: CommandLine) -> None:
    with chat(served, (90, 30)) as terminal:
        # tmux scrolls when lines get longer, even on an empty screen; what has left it, stays.
        terminal.type("/help", "Enter")
        terminal.wait_for("Ctrl-C stops")
        terminal.type("draft")
        terminal.wait_for(f"{PROMPT} draft")
        for columns in (70, 50, 42, 100):
            terminal.resize(columns, 30)
            text = terminal.wait_for(f"╭{'─' * (columns - 2)}╮")
            assert (text.count("╭"), text.count("╰"), text.count(f"{PROMPT} draft")) == (1, 1, 1)
        terminal.type(" " + "word " * 30)  # several rows above the cursor
        terminal.wait_for("draft word")
        terminal.resize(60, 30)
        text = terminal.wait_for(f"╭{'─' * 58}╮")
        assert (text.count("╭"), text.count("word")) == (1, 30)


def test_keys_at_every_moment(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.type("half")
        terminal.wait_for(f"{PROMPT} half")
        terminal.type("C-c")
        terminal.paste("[[echo]] if x:\n    y\n\tz", served.home)
        terminal.wait_for("    y")
        terminal.type("Enter")
        terminal.wait_for("tok/s")
        terminal.type("[[endless]] [[silent 60]]", "Enter")  # before the first token
        terminal.wait_for("working")
        terminal.type("C-c")
        terminal.wait_for("stopped before the answer began")
        terminal.type("[[endless]] [[slow 0.02]]", "Enter")
        terminal.wait_for("word5")
        terminal.type("C-c")
        terminal.wait_for("stopped; /more continues")
        terminal.type("/retry", "Enter")
        terminal.wait_for("no message without an answer")
        terminal.type("C-d")
        text = terminal.wait_for("exit 0")
    assert "    y" in text
    assert "Traceback" not in text
