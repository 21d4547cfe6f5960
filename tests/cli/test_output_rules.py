"""What holds for the output of every command: plain where piped, one document, quiet pipes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

from colibri_cli.discovery import command_names
from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal
from tests.fakes.tiny_checkpoint import write_hf

pytestmark = pytest.mark.e2e

POOR_TERMINAL = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40", "LANG": "C", "LC_ALL": "C"}
# Command lines that need neither a server nor the network; {model} is a tiny one.
LINES = {
    "bench": ("bench", "--model", "{model}", "--no-load", "--prompt", "4", "--generate", "4",
              "--repeats", "1"),
    "bench quality": ("bench", "quality", "smoke", "--model", "{model}"),
    "build": ("build",),
    "config show": ("config", "show", "--all"),
    "diag": ("diag", "--model", "{model}", "--phases", "smoke"),
    "doctor": ("doctor", "--model", "{model}"),
    "info": ("info", "--model", "{model}"),
    "list": ("list",),
    "logs list": ("logs", "list"),
    "logs status": ("logs", "status"),
    "mirror plan": ("mirror", "plan", "--model", "{model}", "--mirror", "m"),
    "plan": ("plan", "{model}"),
    "plugins list": ("plugins", "list"),
    "ps": ("ps",),
    "report": ("report", "--dry-run", "--model", "{model}"),
    "run": ("run", "--model", "{model}", "--no-template", "--max-tokens", "2", "hello"),
    "show": ("show", "{model}"),
    "stop": ("stop", "--port", "4711"),
    "templates list": ("templates", "list"),
}  # fmt: skip
# Results that are texts, for programs and people alike.
WITHOUT_JSON = {"add", "chat", "completion", "convert", "pull", "rm", "serve", "web"}


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    variables = {"XDG_RUNTIME_DIR": str(run), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return CommandLine(tmp_path, variables)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_hf(tmp_path / "tiny", "glm4_moe").path)


def filled(name: str, model: str) -> list[str]:
    return [word.format(model=model) for word in LINES[name]]


@pytest.mark.parametrize("name", LINES)
def test_a_poor_terminal_gets_plain_text(coli: CommandLine, model: str, name: str) -> None:
    coli.variables |= POOR_TERMINAL
    done = coli.run(*filled(name, model), timeout_s=120)
    assert done.returncode in {0, 2}, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", LINES)
def test_no_line_is_wider_than_the_terminal(coli: CommandLine, model: str, name: str) -> None:
    for width, variables in ((40, {"NO_COLOR": "1"}), (80, {}), (120, {})):
        argv = [*coli.argv, *filled(name, model)]
        environment = coli.environment | variables
        with Terminal(argv, environment, coli.home, (40, width)) as terminal:
            assert terminal.wait(120) in {0, 2}
            rows = [row.rpartition("\r")[2] for row in terminal.text.split("\n")]
        # A word that does not fit, such as a path, is left whole for whoever copies it.
        wide = [row for row in rows if cell_len(row) > width]
        assert [row for row in wide if max(map(len, row.split())) <= width // 2] == []


@pytest.mark.parametrize("name", LINES)
def test_json_is_one_document_with_its_version(coli: CommandLine, model: str, name: str) -> None:
    done = coli.run(*filled(name, model), "--json", timeout_s=120)
    document = json.loads(done.stdout)
    assert document["schema_version"] >= 1
    assert done.stdout.count("\n") == 1


def test_every_command_is_here_or_gives_texts() -> None:
    covered = {name.split()[0] for name in LINES} | WITHOUT_JSON | {"client-config", "top", "tune"}
    assert set(command_names()) <= covered


@pytest.mark.parametrize("name", ["config show", "doctor", "plugins list", "info"])
def test_a_reader_that_leaves_early_is_no_error(coli: CommandLine, model: str, name: str) -> None:
    process = subprocess.Popen(
        [*coli.argv, *filled(name, model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=coli.environment,
        cwd=coli.home,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    process.wait(timeout=60)
    assert "Traceback" not in said
    assert "Broken" not in said


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), (), ("list", "--help"), ("config", "show", "--all")]
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_behind_standard_output_is_told(
    coli: CommandLine, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*coli.argv, *arguments], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            env=coli.environment, cwd=coli.home, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "coli: cannot write to standard output: No space left on device",
        "  make room there, or write to another place",
    ]


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("list",), ("ps",), ("bogus",)])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(
    coli: CommandLine, arguments: tuple[str, ...], closed: str
) -> None:
    usual = coli.run(*arguments)
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *coli.argv, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, env=coli.environment, cwd=coli.home,
        check=False,
    )  # fmt: skip
    assert done.returncode == usual.returncode
    assert done.stderr.decode() in {usual.stderr, ""}


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)])
def test_pages_nobody_reads_end_quietly(coli: CommandLine, arguments: tuple[str, ...]) -> None:
    process = coli.start(*arguments)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--stop", "a", "--stop", "b", "--stop", "c", "--stop", "d", "--stop", "e", "hi"),
        ("run", "--schema", "{", "hi"),
        ("run", "-f", "nofile", "hi"),
        ("pull", "hf:"),
        ("bench", "--prompt", "-1"),
        ("diag", "--phases", "nope"),
        ("top", "--url", "foo"),
        ("top", "--url", "http://[::1"),
        ("config", "get", "nope"),
        ("serve", "--port"),
    ],
)
def test_wrong_use_names_the_value_and_the_remedy(
    coli: CommandLine, arguments: tuple[str, ...]
) -> None:
    done = coli.run(*arguments)
    assert done.returncode in {2, 5}
    what, remedy = done.stderr.splitlines()
    assert what.startswith("coli: ")
    assert remedy.startswith("  ")
    assert "unexpected" not in what
    assert "`coli --help`" not in remedy


@pytest.mark.parametrize("name", ["diag", "doctor", "info", "plan", "tune", "bench"])
def test_errors_are_json_where_json_was_asked_for(coli: CommandLine, name: str) -> None:
    done = coli.run(name, "--json", "--ctx", "many")
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert "many" in error["message"]
    assert error["hint"]
