"""Plugins as a user meets them: found, listed, switched, broken, and gone without a trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import ROOT, CommandLine

pytestmark = pytest.mark.e2e

HELLO = """
import typer
from colibri_cli.plugin_api import hookimpl

@hookimpl
def register_commands(app):
    @app.command("hello")
    def hello(who: str = typer.Argument("you", help="Whom.")) -> None:
        "Greet somebody."
        print(f"hello {who}")

@hookimpl
def register_settings(register):
    register("tone", "kind", "How.")
    register("times", 1, "How often.")
"""


def add_plugin(coli: CommandLine, name: str, text: str) -> Path:
    folder = coli.home / "config" / "colibri" / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return folder / f"{name}.py"


def configure(coli: CommandLine, text: str) -> Path:
    path = coli.home / "config" / "colibri" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def listed(coli: CommandLine) -> dict[str, dict[str, Any]]:
    rows = json.loads(coli.run("plugins", "list", "--json").stdout)["plugins"]
    return {row["name"]: row for row in rows}


def test_a_file_adds_a_command_that_the_help_lists(coli: CommandLine) -> None:
    file = add_plugin(coli, "hello", HELLO)
    assert coli.run("hello", "world").stdout == "hello world\n"
    assert " hello " in coli.run("--help").stdout
    assert listed(coli)["hello"]["hooks"] == ["register_commands", "register_settings"]
    file.unlink()
    assert coli.run("hello").returncode == 2
    assert " hello " not in coli.run("--help").stdout


def test_wrong_use_of_a_plugins_command_is_refused_as_everywhere(coli: CommandLine) -> None:
    add_plugin(coli, "hello", HELLO)
    done = coli.run("hello", "--nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("coli: ")
    assert "coli hello" in coli.run("helo").stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import nothing_like_this", "nothing_like_this"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("x = 1", "none of the hooks"),
        ("API_VERSION = 99\n" + HELLO, "plugin API 99"),
        (HELLO.replace('"hello"', '"run"'), "command 'run' already"),
        (HELLO.replace("register_commands", "register_comands"), "register_comands"),
        (HELLO.replace('    @app.command("hello")', "    1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_broken_plugin_is_one_line_and_the_rest_works(
    coli: CommandLine, text: str, named: str
) -> None:
    add_plugin(coli, "bad", text)
    add_plugin(coli, "other", HELLO.replace('"hello"', '"hey"'))
    done = coli.run("hey")
    assert (done.returncode, done.stdout) == (0, "hello you\n")
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "the plugin bad is broken" in done.stderr


def test_plugins_are_not_even_read_where_they_cannot_matter(coli: CommandLine) -> None:
    add_plugin(coli, "bad", "raise RuntimeError('boom')")
    for arguments in (("--version",), ("list",), ("run", "--help")):
        assert "boom" not in coli.run(*arguments).stderr


def test_disabling_and_enabling_keeps_the_rest_of_the_file(coli: CommandLine) -> None:
    add_plugin(coli, "hello", HELLO)
    path = configure(coli, "# mine\n[default]\nctx = 512 # small\n")
    assert coli.run("plugins", "disable", "hello").returncode == 0
    assert listed(coli)["hello"]["state"] == "disabled"
    assert coli.run("hello").returncode == 2
    assert path.read_text().startswith("# mine\n[default]\nctx = 512 # small\n")
    assert coli.run("plugins", "enable", "hello").returncode == 0
    assert coli.run("hello").returncode == 0
    done = coli.run("plugins", "disable", "helo")
    assert done.returncode == 2
    assert "'hello'" in done.stderr


def test_a_variable_says_which_are_loaded(coli: CommandLine) -> None:
    add_plugin(coli, "hello", HELLO)
    add_plugin(coli, "other", HELLO.replace('"hello"', '"hey"'))
    coli.variables["COLI_LOAD_PLUGINS"] = "other"
    assert {n: r["state"] for n, r in listed(coli).items() if r["origin"] == "file"} == {
        "hello": "disabled",
        "other": "loaded",
    }
    coli.variables["COLI_LOAD_PLUGINS"] = ""
    assert {row["state"] for row in listed(coli).values()} == {"disabled"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[plugins.hello]\ntune = 'x'\n", "'tone'"),
        ("[plugins.hello]\ntimes = 'x'\n", "times is 'x'"),
        ("[plugins.hello]\ntimes = true\n", "times is True"),
        ("[plugins.helo]\ntone = 'x'\n", "[plugins.hello]"),
        ("[plugins]\ndisable = ['x']\n", "'disabled'"),
        ("[plugins]\ndisabled = 'x'\n", "not a list of names"),
    ],
)
def test_a_wrong_key_is_an_error_with_the_nearest_name(
    coli: CommandLine, text: str, named: str
) -> None:
    add_plugin(coli, "hello", HELLO)
    configure(coli, text)
    done = coli.run("hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr


def test_the_example_of_the_docs_works(coli: CommandLine) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    flags = re.DOTALL | re.MULTILINE
    example = re.search(r"<!-- example: (\w+)\.py -->\n```python\n(.*?)^```", text, flags)
    assert example is not None
    add_plugin(coli, example[1], example[2])
    (coli.home / "text.txt").write_text("three small words")
    assert coli.run("word-count", "text.txt").stdout == "3\n"
    done = coli.run("word-count", "missing.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'missing.txt'" in done.stderr


def test_every_hook_is_documented_with_its_arguments() -> None:
    import inspect

    from colibri_cli import hookspecs

    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    for name, hook in inspect.getmembers(hookspecs, inspect.isfunction):
        if not hasattr(hook, "colibri_spec"):
            continue
        row = re.search(rf"^\| `{name}` \| (.*?) \|", text, re.MULTILINE)
        assert row is not None, name
        for argument in inspect.signature(hook).parameters:
            assert argument in row[1], f"{name}: {argument}"


def asked(coli: CommandLine, path: str) -> str:
    """Return what a server of our own answers."""
    process = coli.start("serve", "--port", "0")
    try:
        assert process.stderr is not None
        line = ""
        while "listening on" not in line:
            line = process.stderr.readline().decode()
            assert line, "the server ended"
        url = line.partition("listening on ")[2].partition(";")[0].strip()
        try:
            with urllib.request.urlopen(f"{url}{path}") as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_a_new_plugin_installs_works_everywhere_and_leaves_no_trace(served: CommandLine) -> None:
    coli = served
    made = coli.run("plugins", "new", "my-tool")
    assert (made.returncode, made.stdout) == (0, "coli-my-tool\n")
    folder, site = coli.home / "coli-my-tool", coli.home / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*install, "--target", str(site), str(folder)], check=True)
    paths = [str(site), str(ROOT), str(ROOT / "engine"), str(ROOT / "plugins")]
    coli.variables["PYTHONPATH"] = os.pathsep.join(paths)
    assert coli.run("my-tool", "world").stdout == "hello world\n"
    row = listed(coli)["my-tool"]
    assert (row["version"], row["origin"], row["state"]) == ("0.1.0", "installed", "loaded")
    assert "hello loud" in coli.run("chat", stdin="/my-tool loud\n").stderr
    doctor = coli.run("doctor", "--json", timeout_s=120).stdout
    assert '"id": "my-tool.present", "status": "pass"' in doctor
    assert asked(coli, "/plugins/my-tool?who=me") == '{"hello":"me"}'
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    subprocess.run(test, check=True, cwd=folder, env=coli.environment, capture_output=True)
    coli.variables["PYTHONPATH"] = os.pathsep.join(paths[1:])
    assert "no command /my-tool" in coli.run("chat", stdin="/my-tool loud\n").stderr
    assert "my-tool" not in coli.run("doctor", "--json", timeout_s=120).stdout
    assert "my-tool" not in asked(coli, "/plugins/my-tool").replace("/plugins/my-tool", "")
    assert coli.run("my-tool").returncode == 2
    assert "my-tool" not in listed(coli)


@pytest.mark.parametrize("name", ["My", "a b", "-x", "../x", ""])
def test_a_name_that_does_not_do_is_refused(coli: CommandLine, name: str) -> None:
    done = coli.run("plugins", "new", "--", name)
    assert (done.returncode, done.stdout) == (2, "")


def test_an_existing_folder_is_not_touched(coli: CommandLine) -> None:
    (coli.home / "coli-x").mkdir()
    done = coli.run("plugins", "new", "x")
    assert done.returncode == 2
    assert list((coli.home / "coli-x").iterdir()) == []
