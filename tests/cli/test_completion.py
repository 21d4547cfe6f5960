"""Completing command lines: scripts that shells can read, and values of this user's own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess

import pytest

from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal

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


def test_names_of_tasks_phases_plugins_and_shells_are_completed(coli: CommandLine) -> None:
    coli.variables["XDG_CACHE_HOME"] = str(coli.home / "cache")
    tasks = coli.home / "cache" / "colibri" / "bench"
    tasks.mkdir(parents=True)
    (tasks / "mine.jsonl").touch()
    assert completed(coli, "coli bench quality ") == [
        "arc_challenge", "arc_easy", "hellaswag", "mine", "mmlu", "openbookqa", "piqa", "smoke",
        "winogrande",
    ]  # fmt: skip
    assert completed(coli, "coli bench quality smoke m") == ["mine", "mmlu"]
    assert completed(coli, "coli diag --phases s") == ["system", "smoke"]
    assert completed(coli, "coli diag --phases system,s") == ["system,smoke"]
    assert completed(coli, "coli plugins disable mir") == ["mirror"]
    assert completed(coli, "coli completion f") == ["fish"]


IN_FPATH = (
    "mkdir f; cp coli.zsh f/_coli; fpath=($PWD/f $fpath); autoload -Uz compinit; compinit -u -D"
)


def on_path(coli: CommandLine) -> dict[str, str]:
    """Return an environment in which `coli` is a program that shells find."""
    folder = coli.home / "bin"
    folder.mkdir()
    program = folder / "coli"
    program.write_text("#!/bin/sh\nexec " + shlex.join(coli.argv) + ' "$@"\n')
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        script = coli.run("completion", shell).stdout
        (coli.home / f"coli.{shell}").write_text(script)
    return {**coli.environment, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_with_its_script(coli: CommandLine) -> None:
    environment = on_path(coli)
    for line, wanted in (("coli serve --po", "--port"), ("coli completion z", "zsh")):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source coli.fish; complete -C '{line}'"],
            env=environment, cwd=coli.home, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert [row.partition("\t")[0] for row in done.stdout.splitlines()] == [wanted]
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "flags", "setup"),
    [
        ("bash", ("--norc", "--noprofile"), "source ./coli.bash"),
        ("zsh", ("-f",), "autoload -Uz compinit; compinit -u -D; source ./coli.zsh"),
        ("zsh", ("-f",), IN_FPATH),
    ],
    ids=["bash", "zsh", "zsh, a file in fpath"],
)
def test_a_shell_completes_what_is_typed(
    coli: CommandLine, shell: str, flags: tuple[str, ...], setup: str
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"needs {shell}")
    environment = on_path(coli) | {"PS1": "$ ", "TERM": "dumb"}
    with Terminal([program, *flags, "-i"], environment, coli.home) as terminal:
        terminal.type(f"{setup}; echo is re''ady\n")
        terminal.expect("is ready")
        for typed, wanted in (("coli serve --por\t", "--port"), ("coli completion fi\t", "fish")):
            terminal.type(typed)
            terminal.expect(wanted)
            terminal.type("\x15")  # empties the line
        terminal.type("exit\n")
        terminal.wait()
    assert "rror" not in terminal.text


def test_completing_loads_no_plugins(coli: CommandLine) -> None:
    folder = coli.home / "config" / "colibri" / "plugins"
    folder.mkdir(parents=True)
    (folder / "bad.py").write_text("raise RuntimeError('boom')")
    assert completed(coli, "coli nothing-like-this --x") == []
