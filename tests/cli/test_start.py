"""What `coli` loads, how fast it answers, and what it says when asked wrongly."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from colibri_cli import __version__
from colibri_cli.discovery import command_names, module_of
from tests.fakes.tiny_checkpoint import write_hf

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

HEAVY = ("numpy", "rich", "colibri_engine", "prompt_toolkit", "asyncio", "jinja2", "httpx")


def loaded_by(coli: CommandLine, code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=coli.environment,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_main_loads_nothing_heavy(coli: CommandLine) -> None:
    assert loaded_by(coli, "import colibri_cli.main").isdisjoint({*HEAVY, "typer"})


def test_importing_the_application_loads_nothing_heavy(coli: CommandLine) -> None:
    assert loaded_by(coli, "import colibri_cli.app").isdisjoint(HEAVY)


def test_options_are_read_without_pydantic(coli: CommandLine) -> None:
    code = (
        "import io; from contextlib import redirect_stdout\nwith redirect_stdout(io.StringIO()):\n"
        " from colibri_cli.main import main\n"
        " assert main(['--no-color', 'run', '--dry-run', '--no-attach', '-v', '--stop', 'a',"
        " '--model', 'x', 'hi', 'there']) == 3"
    )
    assert "pydantic" not in loaded_by(coli, code)


def test_importing_every_command_loads_nothing_heavy(coli: CommandLine) -> None:
    code = "\n".join(f"import {module_of(name)}" for name in command_names())
    assert loaded_by(coli, code).isdisjoint(HEAVY)


def test_version_loads_neither_typer_nor_anything_heavy(coli: CommandLine) -> None:
    code = (
        "import io; from contextlib import redirect_stdout\nwith redirect_stdout(io.StringIO()):\n"
    )
    code += " from colibri_cli.main import main; assert main(['--version']) == 0"
    assert loaded_by(coli, code).isdisjoint({*HEAVY, "typer"})


def test_version_is_the_packages(coli: CommandLine) -> None:
    done = coli.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"coli {__version__}\n", "")
    assert coli.run("--no-color", "--version").stdout == f"coli {__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_lists_every_command(coli: CommandLine, arguments: tuple[str, ...]) -> None:
    done = coli.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for name in command_names():
        assert f" {name} " in done.stdout, name


@pytest.mark.parametrize("name", command_names())
def test_every_option_of_every_command_is_described(name: str) -> None:
    import typer

    from colibri_cli.app import app

    root = typer.main.get_command(app)
    command = root.get_command(None, name)  # type: ignore[attr-defined]
    assert command.help
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_an_unknown_command_names_the_nearest(coli: CommandLine) -> None:
    done = coli.run("chatt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "coli chat" in done.stderr
    assert coli.run("bogus").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "--nope", "hi"), "--nope"),
        (("run", "--temp", "hot", "hi"), "--temp"),
        (("run", "--temp", "3", "hi"), "0..2"),
        (("run", "--ctx", "-1", "hi"), "--ctx"),
        (("run", "--numerics", "exact", "hi"), "default, fast, float"),
        (("--temp", "0", "list"), "--temp"),
        (("--seed", "1", "list"), "--seed"),
        (("pull",), "MODEL"),
        (("pull", "nothing"), "demo, smollm2"),
        (("pull", "demo", "--name", "x"), "--name"),
        (("run", "--stop", "", "hi"), "--stop"),
        (("run", *("--stop", "a") * 5, "hi"), "--stop"),
        (("run", "--cap", "-4", "--model", ".", "hi"), "--cap"),
        (("run", "--ram", "much", "--model", ".", "hi"), "--ram"),
        (("run", "--no-template", "--system", "s", "hi"), "--system"),
        (("run", "--config", "missing.toml", "hi"), "missing.toml"),
        (("run",), "prompt"),
        (("stop", "--port", "x"), "--port: 'x' is not a whole number in 1..65535"),
        (("stop", "--timeout", "nan"), "'nan' is not a number in 0..86400"),
        (("serve", "--port", "99999"), "'99999' is not a whole number in 0..65535"),
        (("convert", ".", "--out", "o", "--group-size", "x"), "--group-size: 'x'"),
        (("convert", ".", "--out", "o", "--ebits", "x"), "x"),
        (("add",), "NAME"),
        (("atlas", "sweep", "--ngen", "0"), "'0' is not a whole number in 1..100000"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    coli: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    done = coli.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("coli: ")
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "what", "remedy"),
    [
        (("chat", "demo"), "`coli chat` does not take 'demo'", "`coli chat --model demo`"),
        (("bench", "demo"), "`coli bench` has no command 'demo'", "`coli bench --model demo`"),
        (("serve", "a", "b"), "`coli serve` does not take 'a b'", "`coli serve --help`"),
        (("ps", "demo"), "`coli ps` does not take 'demo'", "`coli ps --help`"),
        (("logs", "lst"), "`coli logs` has no command 'lst'", "`coli logs list`"),
        (("logs", "zzzz"), "`coli logs` has no command 'zzzz'", "it has backup, export, list,"),
        (("pull",), "'MODEL'", "MODEL: `demo`, `smollm2`, "),
        (("convert", "x"), "'--model'", "--model: "),
        (("telegram",), "there is no command 'telegram'", "`coli --help` lists all commands"),
    ],
)
def test_wrong_use_is_told_what_to_write_instead(
    coli: CommandLine, arguments: tuple[str, ...], what: str, remedy: str
) -> None:
    done = coli.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert what in first
    assert remedy in second


@pytest.mark.parametrize("name", ["logs", "config", "templates", "plugins", "atlas", "mirror"])
def test_a_command_that_is_not_finished_names_its_commands(coli: CommandLine, name: str) -> None:
    done = coli.run(name)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("coli:")]
    assert len(told) == 1
    assert f"`coli {name}` needs one of its commands: " in told[0]


def test_a_model_named_in_front_of_the_prompt_is_told_where_it_belongs(coli: CommandLine) -> None:
    model = write_hf(coli.home / "weights", "glm4_moe").path
    assert coli.run("add", "mine", str(model)).returncode == 0
    done = coli.run("run", "--no-attach", "mine", "hi")
    assert (done.returncode, done.stdout) == (3, "")
    assert "`coli run --model mine PROMPT`" in done.stderr
    assert "`coli chat --model mine`" in coli.run("run", "--no-attach", "mine").stderr
    assert "coli pull demo" in coli.run("run", "--no-attach", "hi").stderr


@pytest.mark.parametrize("name", command_names())
def test_a_wrong_number_is_refused_with_the_value_and_the_remedy(name: str) -> None:
    import typer

    from colibri_cli.app import app
    from colibri_protocol.errors import SettingsError

    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    for each in (command, *getattr(command, "commands", {}).values()):
        context = each.make_context(name, [], resilient_parsing=True)
        for parameter in each.get_params(context):
            if parameter.type_descriptor.annotation not in {int, float} or parameter.count:
                continue
            with pytest.raises(SettingsError, match=f"{parameter.opts[-1]}: 'x' is not a") as info:
                parameter.process_value(context, "x")
            assert "leave it out" in (info.value.hint or "")


@pytest.mark.parametrize("wrong", [("--port", "99999"), ("--kv-slots", "99"), ()])
def test_web_refuses_what_is_wrong_before_it_builds_a_dashboard(
    coli: CommandLine, wrong: tuple[str, ...]
) -> None:
    done = coli.run("web", "--no-browser", *wrong)
    assert (done.returncode, done.stdout) == (2 if wrong else 3, "")
    assert "dashboard" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_without_a_model_the_option_and_the_variable_are_named(coli: CommandLine) -> None:
    done = coli.run("run", "hi")
    assert (done.returncode, done.stdout) == (3, "")
    first = done.stderr.splitlines()[0]
    assert "--model" in first
    assert "COLI_MODEL" in first
    assert "no model" in first


@pytest.mark.parametrize(
    "command",
    ["serve --port 0", "web --port 0", "info", "show", "plan", "diag", "tune",
     "bench", "bench quality", "bench stream --budgets 1"],
)  # fmt: skip
def test_every_command_that_needs_a_model_says_so_first(coli: CommandLine, command: str) -> None:
    done = coli.run(*command.split())
    assert (done.returncode, done.stdout) == (3, "")
    first, remedy = done.stderr.splitlines()
    assert first.startswith("coli: no model was given")
    assert "--model" in first
    assert "COLI_MODEL" in first
    assert "coli pull demo" in remedy


def test_a_model_that_does_not_exist_is_named_with_both_ways_to_set_it(coli: CommandLine) -> None:
    done = coli.run("run", "--model", "missing", "hi")
    assert (done.returncode, done.stdout) == (3, "")
    assert all(word in done.stderr for word in ("'missing'", "--model", "COLI_MODEL"))


def test_errors_are_json_where_json_was_asked_for(coli: CommandLine) -> None:
    import json

    done = coli.run("run", "--json", "hi")
    assert done.returncode == 3
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "model_not_given"
    assert error["hint"]


def test_debug_adds_a_traceback_without_local_values(coli: CommandLine) -> None:
    done = coli.run("--debug", "run", "secret-prompt-text")
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert "secret-prompt-text" not in done.stderr


def test_the_help_says_of_every_command_what_it_says_itself() -> None:
    import typer

    from colibri_cli.app import app
    from colibri_cli.help_page import GROUPS

    rows = {name: text for group in GROUPS.values() for name, text in group.items()}
    assert sorted(rows) == command_names()
    root = typer.main.get_command(app)
    for name, text in rows.items():
        command = root.get_command(None, name)  # type: ignore[attr-defined]
        assert command.help.strip().partition("\n")[0] == text, name


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_help_fits_the_width_and_is_coloured_only_where_wanted(width: int) -> None:
    from colibri_cli.help_page import render

    plain = render({"hello": "Say hello."}, width=width, has_color=False)
    assert max(map(len, plain.splitlines())) <= width
    assert "\x1b" not in plain
    assert "  hello         Say hello." in plain.splitlines()
    colored = render({"hello": "Say hello."}, width=width, has_color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
    assert colored != plain


def test_the_help_at_80_columns_is_one_screen() -> None:
    from colibri_cli.help_page import render

    lines = render({}, width=80, has_color=False).splitlines()
    assert len(lines) <= 50
    assert lines.index("Options") > lines.index("Setup") > lines.index("Talk to a model")


def test_the_help_loads_no_command_and_no_plugin_once_it_knows_them(coli: CommandLine) -> None:
    coli.variables["XDG_CACHE_HOME"] = str(coli.home / "cache")
    code = (
        "import io; from contextlib import redirect_stdout\nwith redirect_stdout(io.StringIO()):\n"
        " from colibri_cli.main import main; assert main(['--help']) == 0"
    )
    assert "pluggy" in loaded_by(coli, code)  # the first time
    assert loaded_by(coli, code).isdisjoint({*HEAVY, "pluggy", "colibri_plugins"})


def test_options_before_help_give_the_same_page(coli: CommandLine) -> None:
    assert coli.run("--no-color", "--help").stdout == coli.run("--help").stdout


def test_what_a_chat_needs_before_its_prompt_loads_nothing_for_later(coli: CommandLine) -> None:
    code = "import colibri_cli.chat.starting, colibri_cli.chat.editor, colibri_cli.commands.chat\n"
    code += "from colibri_cli.chat.command import built_in_commands\nbuilt_in_commands()"
    code += "\nimport colibri_cli.backends.attaching, colibri_cli.terminal.chat_screen"
    later = {"numpy", "jinja2", "colibri_engine", "pluggy", "colibri_plugins", "tomlkit"}
    later |= {"httpx", "sqlite3", "pydantic", "markdown_it", "pygments"}
    assert loaded_by(coli, code).isdisjoint(later)
