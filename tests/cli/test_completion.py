"""Completing command lines: scripts that shells can read, and values of this user's own."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def completed(coli: CommandLine, line: str) -> list[str]:
    words = line.split(" ")
    coli.variables |= {
        "_COLI_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = coli.run()
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_has_a_script(coli: CommandLine, shell: str) -> None:
    done = coli.run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_COLI_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None and shell != "powershell":
        subprocess.run([program, "-n"], input=done.stdout.encode(), check=True)


def test_an_unknown_shell_is_refused(coli: CommandLine) -> None:
    done = coli.run("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bash, zsh, fish, powershell" in done.stderr


def test_commands_options_and_models_are_completed(coli: CommandLine) -> None:
    assert "--port" in completed(coli, "coli serve --po")
    assert completed(coli, "coli bui") == ["build"]
    assert {"diag", "doctor"} <= set(completed(coli, "coli d"))
    directory = coli.home / "data" / "colibri" / "models" / "mine"
    directory.mkdir(parents=True)
    (directory / "w.gguf").write_bytes(b"x")
    manifest = {"family": "f", "target": "w.gguf", "source": "t", "num_bytes": 1}
    (directory / "model.json").write_text(json.dumps({**manifest, "num_experts": None}))
    assert completed(coli, "coli run --model m") == ["mine"]


def test_names_of_the_user_are_completed(coli: CommandLine) -> None:
    coli.run("templates", "set", "short", "In one line: $input")
    with ChatLog(coli.home / "data" / "colibri" / "logs.db") as log:
        talk = LoggedConversation(id=new_id(), title="t", model="tiny")
        log.add_turn(talk, LoggedTurn(prompt="a", response="b"))
    assert completed(coli, "coli run -t s") == ["short"]
    assert completed(coli, "coli templates show s") == ["short"]
    assert completed(coli, f"coli logs show {talk.id[:4].lower()}") == [talk.short_id.lower()]
    assert completed(coli, f"coli chat --resume {talk.id[:4]}") == [talk.short_id]
    assert "kv_slots" in completed(coli, "coli config get kv")
    assert completed(coli, "coli config get serve.kv_sl") == ["serve.kv_slots"]
    assert completed(coli, "coli stop --port ") == []
    assert completed(coli, "coli client-config li") == ["litellm"]
    (coli.home / "colibri.toml").write_text("[profile.work]\nctx = 1\n")
    assert completed(coli, "coli list --profile w") == ["work"]
    (coli.home / "colibri.toml").write_text("[profile")
    assert completed(coli, "coli list --profile w") == []
    (coli.home / "data" / "colibri" / "logs.db").write_bytes(b"no database" * 99)
    assert completed(coli, "coli logs show 0") == []


def test_completing_loads_no_plugins(coli: CommandLine) -> None:
    folder = coli.home / "config" / "colibri" / "plugins"
    folder.mkdir(parents=True)
    (folder / "bad.py").write_text("raise RuntimeError('boom')")
    assert completed(coli, "coli nothing-like-this --x") == []
