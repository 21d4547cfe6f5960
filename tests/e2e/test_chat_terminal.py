"""`coli chat` on a terminal: typing, pasting, history, Ctrl-C, dead engines, reasoning."""

from __future__ import annotations

import json
import re
import signal
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.terminal import Terminal

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


def chat(served: CommandLine, *arguments: str) -> Terminal:
    """Start a chat that shows answers as the text they are."""
    argv = [*served.argv, "chat", "--raw", *arguments]
    return Terminal(argv, served.environment, served.home)


def test_it_greets_answers_and_leaves(served: CommandLine) -> None:
    with chat(served) as terminal:
        greeting = terminal.expect("/help lists commands")
        assert "tiny (llama, 4 experts, 2 per token)" in greeting
        assert "context 4096" in greeting
        terminal.expect(PROMPT)
        terminal.type("[[reply Good day]]\r")
        terminal.expect("Good day")
        terminal.expect("tok/s")
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_pasted_lines_are_one_message_and_history_brings_them_back(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.paste("[[echo]]\n  indented\n\ttabbed\n    deep")
        terminal.type("\r")
        terminal.expect("tok/s")
        terminal.type("\x1b[A\r")
        terminal.expect("tok/s")
        terminal.type("[[prompt]]\r")
        terminal.expect("<|im_start|>assistant")
        terminal.expect("tok/s")
        terminal.type("\x04")
        assert terminal.wait() == 0
        message = "<|im_start|>user\n[[echo]]\n  indented\n\ttabbed\n    deep<|im_end|>"
        assert terminal.text.count(message) == 2


def test_history_is_private_and_can_be_left_out(served: CommandLine) -> None:
    history = served.home / "state" / "colibri" / "chat_history"
    for arguments in ((), ("--no-history",)):
        with chat(served, *arguments) as terminal:
            terminal.expect(PROMPT)
            terminal.type(f"remember {len(arguments)}\r")
            terminal.expect("tok/s")
            terminal.type("\x04")
            assert terminal.wait() == 0
    text = history.read_text()
    assert "remember 0" in text
    assert "remember 1" not in text
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


@pytest.mark.timed
def test_ctrl_c_stops_the_answer_and_more_continues_it(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[endless]] [[slow 0.02]]\r")
        terminal.expect("word3")
        began = time.monotonic()
        terminal.type("\x03")
        terminal.expect("stopped; /more continues")
        assert time.monotonic() - began < 1
        terminal.expect(PROMPT)
        terminal.type("/more\r")
        terminal.expect("tok/s")
        terminal.type("[[prompt]]\r")
        shown = terminal.expect("<|im_start|>assistant\nword0")
        assert "[[endless]]" in shown
        terminal.expect("tok/s")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_a_second_ctrl_c_leaves(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[endless]] [[slow 0.02]]\r")
        terminal.expect("word1")
        terminal.type("\x03")
        terminal.expect("stopped")
        terminal.expect(PROMPT)
        terminal.type("\x03")
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.text


def test_a_second_ctrl_c_does_not_wait_for_an_engine_that_hangs(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[hang 2]] [[endless]]\r")
        terminal.expect("word1")
        terminal.type("\x03")
        time.sleep(0.3)
        terminal.type("\x03")
        assert terminal.wait() == 0


def test_keys_pressed_during_an_answer_are_the_next_message(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[pieces a|b|c]] [[slow 0.2]]\r")
        terminal.expect("a")
        terminal.type("[[reply typed ahead]]\r")
        assert "ahead" not in terminal.expect("tok/s")
        terminal.expect("typed ahead\n")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("half a thought")
        terminal.expect("half a thought")
        terminal.type("\x03")
        terminal.expect(PROMPT)
        terminal.type("[[prompt]]\r")
        assert "half a thought<|im_end|>" not in terminal.expect("tok/s")
        terminal.expect(PROMPT)
        terminal.type("\x03")
        terminal.expect("Ctrl-C again, Ctrl-D or /exit leaves")  # where the editor was
        terminal.expect(PROMPT)
        terminal.type("\x03")
        assert terminal.wait() == 0


def test_commands_act_and_unknown_ones_are_not_sent(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("/help\r")
        terminal.expect("/more")
        terminal.expect(PROMPT)
        terminal.type("/nope\r")
        terminal.expect("there is no command /nope")
        terminal.expect(PROMPT)
        terminal.type("/more\r")
        terminal.expect("no answer to continue")
        terminal.expect(PROMPT)
        terminal.type("first message\r")
        terminal.expect("tok/s")
        terminal.type(":reset\r")
        terminal.expect("new conversation")
        terminal.expect(PROMPT)
        terminal.type("//literal [[prompt]]\r")
        shown = terminal.expect("tok/s")
        assert "user\n/literal [[prompt]]" in shown
        assert "first message<|im_end|>" not in shown
        terminal.expect(PROMPT)
        terminal.type("/stats off\r")
        terminal.expect("figures off")
        terminal.expect(PROMPT)
        terminal.type("[[reply quiet]]\r")
        terminal.expect("quiet")
        assert "tok/s" not in terminal.expect(PROMPT)
        terminal.type(":q\r")
        assert terminal.wait() == 0


@pytest.mark.parametrize("way", ["dumb", "plain"])
def test_plain_lines_on_a_terminal_are_asked_for_and_ctrl_c_stops_an_answer(
    served: CommandLine, way: str
) -> None:
    flags = ("--plain",) if way == "plain" else ()
    environment = {**served.environment, **({"TERM": "dumb"} if way == "dumb" else {})}
    argv = [*served.argv, "chat", "--no-attach", *flags]
    with Terminal(argv, environment, served.home) as terminal:
        terminal.expect("\n> ")
        terminal.type("[[endless]] [[slow 0.02]]\n")
        terminal.expect("word5 ")
        terminal.type("\x03")
        terminal.expect("stopped; /more continues")
        terminal.expect("\n> ")
        terminal.type("/reset\n")  # else Ctrl-C leaves, as was said
        terminal.expect("\n> ")
        terminal.type("half")
        terminal.expect("half")
        terminal.type("\x03")
        terminal.expect("\nCtrl-C again")
        terminal.expect("\n> ")
        terminal.type("[[reply still here]]\n")
        terminal.expect("still here\n")
        terminal.expect("\n> ")
        terminal.type("\x03")
        terminal.expect("\nCtrl-C again")
        terminal.expect("\n> ")
        terminal.type("\x03")
        assert terminal.wait() == 0
    assert way == "plain" or b"\x1b" not in terminal.raw


def test_an_engine_killed_in_mid_answer_is_explained_and_replaced(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[die 2]] [[tokens 9]]\r")
        terminal.expect("word1")
        shown = terminal.expect("ready again")
        assert "ended by SIGKILL" in shown
        assert "memory" in shown
        assert "dying on demand" in shown
        terminal.expect(PROMPT)
        terminal.type("[[reply fresh]]\r")
        terminal.expect("fresh")
        terminal.expect("tok/s")
        terminal.type("/exit\r")
        assert terminal.wait() == 6
        assert "ended unexpectedly once" in terminal.text


def test_an_engine_that_stays_dead_ends_the_chat(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        start = {"failed": {"code": "checkpoint_error", "message": "the disk is gone"}}
        (served.home / "tiny" / "fake_engine.json").write_text(json.dumps(start))
        terminal.type("[[die]]\r")
        terminal.expect("the disk is gone")
        assert terminal.wait() == 6


def test_a_message_too_long_shows_both_numbers_and_the_next_works(served: CommandLine) -> None:
    served.variables["FAKE_ENGINE"] = json.dumps({"context_length": 100})
    with chat(served) as terminal:
        assert "context 100" in terminal.expect(PROMPT)
        terminal.paste("x" * 440)
        terminal.type("\r")
        shown = terminal.expect("limit of 100")
        assert "the prompt has 12" in shown
        terminal.expect(PROMPT)
        terminal.type("[[reply short]]\r")
        terminal.expect("short")
        terminal.expect("tok/s")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_reasoning_is_shown_apart_and_a_cut_answer_is_marked(served: CommandLine) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
    served.variables["FAKE_ENGINE"] = json.dumps({"model": {"chat_template": template}})
    with chat(served, "--max-tokens", "3") as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[pieces abc|</think>|d|e]] [[slow 0.2]]\r")
        terminal.expect("thinking")
        terminal.expect("abc")
        terminal.expect("thought for")
        terminal.expect("\n\nd")
        terminal.expect("cut off after 3 tokens (--max-tokens")
        assert b"\x1b[38;5;242mthinking" in terminal.raw
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_control_codes_in_an_answer_do_not_reach_the_terminal(served: CommandLine) -> None:
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("/stats off\r")
        terminal.expect(PROMPT)
        served_text = "[[pieces a\x07|\x9b31m|b]]"
        terminal.paste(served_text.replace("\x07", "").replace("\x9b", "\u009b"))
        terminal.type("\r")
        terminal.expect("b")
        terminal.type("\x04")
        terminal.wait()
        assert "\u009b31m".encode() not in terminal.raw.split(b"tiny")[-1][-200:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("flags", "prompt"), [((), PROMPT), (("--plain",), "\n> ")])
def test_signal_ends_chat_and_engine(
    served: CommandLine, flags: tuple[str, ...], prompt: str, number: signal.Signals
) -> None:
    with chat(served, *flags) as terminal:
        terminal.expect(prompt)
        (engine,) = engines(terminal)
        terminal.process.send_signal(number)
        assert terminal.wait() == 143
        assert not Path(f"/proc/{engine}").exists()


def engines(terminal: Terminal) -> list[str]:
    """Return the processes that a chat has begun."""
    pid = terminal.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_no_color_writes_no_colour(served: CommandLine) -> None:
    served.variables["NO_COLOR"] = "1"
    with chat(served) as terminal:
        terminal.expect(PROMPT)
        terminal.type("[[reply x]]\r")
        terminal.expect("tok/s")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert not re.search(rb"\x1b\[[0-9;]*\b(?:3[0-7]|38|4[0-7]|48|9[0-7])[;m]", terminal.raw)


def test_a_warning_while_the_model_loads_has_a_line_of_its_own(served: CommandLine) -> None:
    warning = "coli-engine: WARNING: a disk was slow"
    served.variables["FAKE_ENGINE"] = json.dumps({"stderr": warning, "delay_s": 0.3})
    with chat(served) as terminal:
        shown = terminal.expect(PROMPT)
    lines = shown.replace("\r", "\n").split("\n")
    (said,) = [line for line in lines if "a disk was slow" in line]
    assert "loading" not in said
    assert any("loading" in line for line in lines)
