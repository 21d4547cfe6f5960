"""Prompt templates: kept under a name, filled for `coli run`, wrong ones refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def test_a_template_is_kept_listed_shown_filled_and_removed(served: CommandLine) -> None:
    text = "Translate into $language for $$5: $input [[prompt]]"
    options = ("--default", "language=German", "--system", "Be $tone.", "--default", "tone=kind")
    assert served.run("templates", "set", "tr", text, *options).returncode == 0
    rows = json.loads(served.run("templates", "list", "--json").stdout)["templates"]
    assert rows == [{"name": "tr", "places": ["input", "language", "tone"]}]
    shown = json.loads(served.run("templates", "show", "tr", "--json").stdout)
    assert shown["defaults"] == {"language": "German", "tone": "kind"}

    answer = served.run("run", "-t", "tr", "good morning").stdout
    assert "<|im_start|>system\nBe kind.<|im_end|>" in answer
    assert "Translate into German for $5: good morning" in answer
    answer = served.run("run", "-t", "tr", "-p", "language=French", "-p", "tone=x$y", "hi").stdout
    assert "Translate into French" in answer
    assert "Be x$y." in answer
    assert "into German for $5: piped" in served.run("run", "-t", "tr", stdin="piped").stdout

    assert served.run("templates", "rm", "tr").returncode == 0
    assert served.run("run", "-t", "tr", "hi").returncode == 2


def test_a_template_without_a_place_for_input_stands_before_it(served: CommandLine) -> None:
    served.run("templates", "set", "hello", "[[reply fixed]]")
    assert served.run("run", "-t", "hello").stdout == "fixed\n"
    served.run("templates", "set", "ask", "Explain. [[prompt]]")
    assert "Explain. [[prompt]]\n\nrain" in served.run("run", "-t", "ask", "rain").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "-t", "trr", "hi"), "'tr'"),
        (("run", "-t", "tr"), "prompt"),
        (("run", "-t", "tr", "hi"), "'language'"),
        (("run", "-t", "tr", "-p", "langage=x", "hi"), "'language'"),
        (("run", "-t", "tr", "-p", "language", "hi"), "NAME=TEXT"),
        (("run", "-p", "language=x", "hi"), "--template"),
        (("run", "-t", "../x", "hi"), "'../x'"),
        (("templates", "set", "Bad Name"), "'Bad Name'"),
        (("templates", "set", "x", "costs $ 5"), "$$"),
        (("templates", "set", "x", "y", "--default", "z"), "NAME=TEXT"),
        (("templates", "rm", "missing"), "'missing'"),
    ],
)
def test_wrong_use_is_refused_by_name(
    served: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    served.run("templates", "set", "tr", "Into $language: $input")
    done = served.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("promt = 'x'", "'prompt'"),
        ("prompt = 3", "must be texts"),
        ("defaults = 'x'", "table of texts"),
        ("x [", "TOML"),
    ],
)
def test_a_file_that_is_wrong_is_named(served: CommandLine, text: str, named: str) -> None:
    folder = served.home / "config" / "colibri" / "templates"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(text)
    done = served.run("run", "-t", "mine", "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
