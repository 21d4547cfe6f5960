"""Pieces of the chat: what a line means, how text and figures are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colibri_cli.backends.base import Completed
from colibri_cli.chat.command import ChatCommand, CommandTable, built_in_commands
from colibri_cli.chat.slash import Invocation, Message, UnknownCommand, is_open_block, parse_line
from colibri_cli.errors import UsageError
from colibri_cli.terminal.answer_text import cut_notice, statistics_line, visible

COMMANDS = built_in_commands()
DONE = Completed("stop", 37, 7, 0, 101.5, 44.0, 0.23, 0.07, 0.14)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("hello", Message("hello")),
        ("  indented", Message("  indented")),
        ("", None),
        (" \n", None),
        ("exit now", Message("exit now")),
        ("//x y", Message("/x y")),
        ("//exit", Message("/exit")),
        ("/nope it", UnknownCommand("/nope")),
        ("/", UnknownCommand("/")),
        (":)", Message(":)")),
        ("/help\nmore", Message("/help\nmore")),
        ("/usr/bin/x\nis a path", Message("/usr/bin/x\nis a path")),
        ('"""\n a\nb\n"""', Message(" a\nb", is_literal=True)),
    ],
)
def test_lines(line: str, meaning: object) -> None:
    assert parse_line(line, COMMANDS) == meaning


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/?", "help", ""),
        ("/STATS off", "stats", "off"),
        (":reset", "reset", ""),
        ("/clear", "reset", ""),
        (":più", "more", ""),
        (":continua", "more", ""),
        ("exit", "exit", ""),
        (":q", "exit", ""),
        ("/bye", "exit", ""),
        ("/list", "history", ""),
        ("/system two\nlines", "system", "two\nlines"),
        ("/file  a b.txt ", "file", "a b.txt"),
    ],
)
def test_commands_are_found_by_all_their_names(line: str, name: str, argument: str) -> None:
    meaning = parse_line(line, COMMANDS)
    assert isinstance(meaning, Invocation)
    assert (meaning.command.name, meaning.argument) == (name, argument)


def test_a_name_that_is_taken_is_refused() -> None:
    table = built_in_commands()
    help_command = table.find("help")
    assert help_command is not None
    with pytest.raises(UsageError, match="/q exists already"):
        table.add(ChatCommand("own", "mine", help_command.run, ("q",)))
    table.add(ChatCommand("own", "mine", help_command.run))
    assert table.find("/OWN") is not None
    assert CommandTable().find("help") is None


@pytest.mark.parametrize(
    ("text", "is_open"),
    [('"""', True), ('"""a', True), ('"""a\n"""', False), ("a", False), ('""""""', False)],
)
def test_blocks(text: str, is_open: bool) -> None:
    assert is_open_block(text) is is_open


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 世界 👋\n\tx", "Grüße, 世界 👋\n\tx"),
        ("a\x1b[31mb\x07\r\x00", "a[31mb"),
        ("\x9b31m\x85\u2028\u202e", "31m"),
    ],
)
def test_text_cannot_steer_the_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_the_line_of_figures() -> None:
    assert statistics_line(DONE) == (
        "37 → 7 tokens · 101.50 tok/s · hit 44 % · RSS 0.23 GB · 0.14 s · TTFT 0.07 s"
    )


def test_the_line_of_figures_leaves_out_what_is_not_known_or_does_not_apply() -> None:
    dense = replace(DONE, completion_tokens=1)
    assert statistics_line(dense, has_experts=False).startswith("37 → 1 token · 101.50 tok/s · RSS")
    left = replace(DONE, prompt_tokens=0, rss_gb=0.0)
    assert statistics_line(left) == "7 tokens · 101.50 tok/s · 0.14 s · TTFT 0.07 s"


@pytest.mark.parametrize(
    ("finish", "context", "named"),
    [("stop", 100, None), ("length", 100, "--max-tokens"), ("length", 44, "--ctx")],
)
def test_a_cut_answer_names_the_setting(finish: str, context: int, named: str | None) -> None:
    done = Completed(finish, 37, 7, 0, 1.0, 0.0, 0.1, None, 0.1)
    notice = cut_notice(done, context)
    assert notice is None if named is None else named in (notice or "")
