"""`coli config`: which source wins, what is shown of secrets, and what changing the file keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

FILES = ("seed", "ctx", "port")  # set by the user's file, the project's, and the named one


def user_file(coli: CommandLine, text: str) -> Path:
    path = coli.home / "config" / "colibri" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def shown(coli: CommandLine, *options: str) -> dict[str, dict[str, Any]]:
    done = coli.run("config", "show", "--json", *options)
    settings: dict[str, dict[str, Any]] = json.loads(done.stdout)["settings"]
    return settings


def test_variable_beats_project_file_beats_user_file_and_each_is_named(coli: CommandLine) -> None:
    user = user_file(coli, "[default]\nctx = 100\n")
    assert shown(coli)["ctx"] == {"value": 100, "origin": "config", "source": str(user)}
    project = coli.home / "colibri.toml"
    project.write_text("[default]\nctx = 200\n[serve]\nctx = 300\n")
    assert shown(coli)["ctx"] == {"value": 200, "origin": "config", "source": str(project)}
    assert shown(coli, "--for", "serve")["ctx"]["value"] == 300
    coli.variables["COLI_CTX"] = "400"
    assert shown(coli)["ctx"] == {"value": 400, "origin": "environment", "source": "COLI_CTX"}
    assert shown(coli)["seed"] == {"value": None, "origin": "default", "source": None}


def test_the_named_file_lies_over_both_others_key_by_key(coli: CommandLine) -> None:
    user = user_file(coli, "[default]\nctx = 100\nseed = 1\n[profile.work]\nseed = 5\n")
    project = coli.home / "colibri.toml"
    project.write_text("[default]\nctx = 200\nport = 9000\n")
    named = coli.home / "named.toml"
    named.write_text("[default]\nport = 9001\n[serve]\nport = 9002\n")
    sources = [(name, shown(coli, "--config", "named.toml")[name]["source"]) for name in FILES]
    assert sources == [("seed", str(user)), ("ctx", str(project)), ("port", "named.toml")]
    body = json.loads(coli.run("--config=named.toml", "config", "show", "--json").stdout)
    assert body["files"] == ["named.toml", str(project), str(user)]
    assert shown(coli, "--config", "named.toml", "--for", "serve")["port"]["value"] == 9002
    assert shown(coli, "--config", "named.toml", "--profile", "work")["seed"]["value"] == 5
    assert coli.run("config", "set", "ctx", "7", "--config", "named.toml").returncode == 0
    assert "ctx = 7" in named.read_text()
    assert "ctx = 200" in project.read_text()
    coli.variables["COLI_CONFIG"] = "named.toml"
    assert shown(coli)["ctx"]["value"] == 7
    # One that is a usual one anyway counts once, as the uppermost.
    files = json.loads(coli.run("config", "show", "--json", "--config", str(user)).stdout)["files"]
    assert files == [str(user), str(project)]


def test_a_named_file_that_is_not_there_is_an_error_by_flag_and_by_variable(
    coli: CommandLine,
) -> None:
    for arguments in (("--config", "gone.toml", "list"), ("list", "--config=gone.toml")):
        done = coli.run(*arguments)
        assert done.returncode == 2
        assert "there is no configuration file 'gone.toml'" in done.stderr
    coli.variables["COLI_CONFIG"] = "gone.toml"
    assert coli.run("list").returncode == 2
    assert coli.run("--help").returncode == 0


def test_plugins_of_the_named_file_count(coli: CommandLine) -> None:
    (coli.home / "named.toml").write_text("[plugins]\ndisabled = ['mirror']\n")

    def state(*flags: str) -> str:
        rows = json.loads(coli.run("plugins", "list", "--json", *flags).stdout)["plugins"]
        return str(next(row["state"] for row in rows if row["name"] == "mirror"))

    assert state() != "disabled"
    assert state("--config", "named.toml") == "disabled"


def test_the_table_names_what_is_set_and_where(coli: CommandLine) -> None:
    coli.variables["COLI_CTX"] = "400"
    done = coli.run("config", "show", "--origin")
    assert done.stdout.splitlines()[1].split() == ["ctx", "400", "environment", "COLI_CTX"]
    assert "seed" not in done.stdout
    assert "seed" in coli.run("config", "show", "--all").stdout


def test_the_profile_is_chosen_before_or_after_the_command_and_shown(coli: CommandLine) -> None:
    user = user_file(coli, "[default]\nctx = 100\nseed = 1\n[profile.work]\nctx = 200\n")
    source = f"{user} [profile.work]"
    assert shown(coli, "--profile", "work")["ctx"]["source"] == source
    body = json.loads(coli.run("--profile", "work", "config", "show", "--json").stdout)
    assert body["profile"] == "work"
    assert body["files"] == [str(user)]
    assert body["settings"]["ctx"] == {"value": 200, "origin": "config", "source": source}
    done = coli.run("config", "get", "ctx", "--show-origin", "--profile", "work")
    assert done.stdout == f"200  config {source}\n"
    assert coli.run("config", "get", "ctx").stdout == "100\n"
    done = coli.run("list", "--profile", "home")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'home'" in done.stderr
    assert "work" in done.stderr


def test_the_help_shows_the_table_of_a_profile(coli: CommandLine) -> None:
    assert "`[profile.NAME]`" in coli.run("config", "show", "--help").stdout


def test_set_and_unset_change_the_named_profile(coli: CommandLine) -> None:
    user = user_file(coli, "[default]\nctx = 100\n")
    assert coli.run("config", "set", "ctx", "200", "--profile", "work").returncode == 0
    assert coli.run("config", "set", "serve.port", "9000", "--profile", "work").returncode == 0
    assert user.read_text() == (
        "[default]\nctx = 100\n\n[profile.work]\nctx = 200\n\n[profile.work.serve]\nport = 9000\n"
    )
    assert shown(coli, "--profile", "work", "--for", "serve")["port"]["value"] == 9000
    assert coli.run("config", "unset", "ctx", "--profile", "work").returncode == 0
    assert coli.run("config", "get", "ctx", "--profile", "work").stdout == "100\n"


def test_check_looks_at_both_files_and_at_every_profile(coli: CommandLine) -> None:
    user = user_file(coli, "[profile.work]\nctx = 200\n[profile.work.serve]\nport = 1\n")
    project = coli.home / "colibri.toml"
    project.write_text("[default]\nprofile = 'work'\n")
    done = coli.run("config", "check")
    assert done.returncode == 0
    assert str(user) in done.stderr
    assert str(project) in done.stderr
    for wrong in ("ctxx = 1\n", "[profile.work.serve]\nportt = 1\n"):
        user.write_text(f"[profile.work]\n{wrong}")
        done = coli.run("config", "check", "--profile", "work")
        assert done.returncode == 2
        assert f"{user} [profile.work]" in done.stderr


def test_secrets_are_masked_and_never_written(coli: CommandLine) -> None:
    coli.variables["COLI_API_KEY"] = "k-UNIQUE-123"
    for arguments in (("show",), ("show", "--origin"), ("show", "--json"), ("get", "api_key")):
        done = coli.run("config", *arguments)
        assert "k-UNIQUE-123" not in done.stdout + done.stderr
        assert "***" in done.stdout
    done = coli.run("config", "set", "api_key", "k-UNIQUE-123")
    assert done.returncode == 2
    assert "api_key_file" in done.stderr


def test_the_key_of_a_server_behind_and_those_in_arguments_are_masked(coli: CommandLine) -> None:
    coli.variables["COLI_UPSTREAM_API_KEY"] = "k-UNIQUE-1"
    coli.variables["COLI_UPSTREAM"] = "http://user:k-UNIQUE-2@127.0.0.1:9/v1"
    coli.variables["COLI_ENGINE_ARGS"] = "--api-key k-UNIQUE-3 UNIQUE-4 --hf-token='k-UNIQUE 5' -q"
    for arguments in (("show",), ("show", "--json"), ("get", "upstream_api_key")):
        done = coli.run("config", *arguments)
        assert done.returncode == 0
        assert "UNIQUE" not in done.stdout + done.stderr
        assert "***" in done.stdout
    settings = shown(coli)
    assert settings["upstream"]["value"] == "http://********@127.0.0.1:9/v1"
    assert settings["engine_args"]["value"] == "--api-key ******** --hf-token=******** -q"
    done = coli.run("config", "set", "upstream_api_key", "k-UNIQUE-1")
    assert done.returncode == 2
    assert "COLI_UPSTREAM_API_KEY" in done.stderr
    done = coli.run("config", "set", "--", "engine_args", "--api-key=k-UNIQUE-3")
    assert (done.returncode, "UNIQUE" in done.stderr) == (0, False)


def test_values_that_would_steer_a_terminal_stay_on_their_line(coli: CommandLine) -> None:
    user_file(coli, '[default]\nmodel_id = "a\\u001b[31mb\\u009bc\\nd"\n')
    lines = coli.run("config", "show").stdout.splitlines()
    assert "a[31mbc d" in [line.partition("model_id")[2].strip() for line in lines]


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 100_000, f"[default]\nctx = {'9' * 5000}\n", "\udcff\0"]
)
def test_a_file_beyond_what_toml_readers_take_is_named(coli: CommandLine, text: str) -> None:
    path = user_file(coli, "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    for arguments in (("config", "show"), ("config", "set", "seed", "1"), ("list",)):
        done = coli.run(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(f"coli: {path}: is not valid TOML (")
        assert "`coli config edit`" in done.stderr
    assert path.read_bytes() == text.encode("utf-8", "surrogateescape")


def test_a_mark_of_the_byte_order_is_no_part_of_a_file(coli: CommandLine) -> None:
    path = user_file(coli, "\ufeff[default]\r\nctx = 123\r\n")
    assert shown(coli)["ctx"]["value"] == 123
    assert coli.run("config", "set", "seed", "7").returncode == 0
    assert shown(coli)["seed"]["value"] == 7
    assert "ctx = 123" in path.read_text()


def test_a_directory_named_as_configuration_is_told_from_nothing(coli: CommandLine) -> None:
    done = coli.run("config", "show", "--config", str(coli.home))
    assert done.returncode == 2
    assert "is not a file" in done.stderr


def test_set_and_unset_keep_comments_and_other_keys(coli: CommandLine) -> None:
    text = "# mine\n[default]\nctx = 100  # small\n\n[serve]\nport = 8001\n"
    path = user_file(coli, text)
    assert coli.run("config", "set", "ctx", "200").returncode == 0
    assert path.read_text() == text.replace("100", "200")
    assert coli.run("config", "set", "serve.max_queue", "3").returncode == 0
    assert coli.run("config", "get", "serve.max_queue").stdout == "3\n"
    assert coli.run("config", "unset", "serve.max_queue").returncode == 0
    assert path.read_text().rstrip() == text.replace("100", "200").rstrip()


def test_a_new_file_belongs_to_its_user_alone(coli: CommandLine) -> None:
    assert coli.run("config", "set", "think", "yes").returncode == 0
    path = Path(coli.run("config", "path").stdout.strip())
    assert path.read_text() == "[default]\nthink = true\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("set", "ctxx", "1"), "'ctx'"),
        (("set", "ctx", "many"), "'many'"),
        (("set", "ctx", "-1"), "'-1'"),
        (("set", "srve.port", "1"), "serve.port"),
        (("get", "nothing_like_it"), "nothing_like_it"),
        (("set", "numerics", "exact"), "default, fast, float"),
    ],
)
def test_wrong_names_and_values_are_refused_and_the_file_stays(
    coli: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    path = user_file(coli, "[default]\n")
    done = coli.run("config", *arguments[:1], "--", *arguments[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert path.read_text() == "[default]\n"


def test_check_finds_wrong_keys_in_every_table(coli: CommandLine) -> None:
    user_file(coli, "[default]\nctx = 100\n[serve]\nportt = 1\n")
    done = coli.run("config", "check")
    assert done.returncode == 2
    assert "'port'" in done.stderr
    user_file(coli, "[default]\nctx = 100\n")
    assert coli.run("config", "check").returncode == 0


def test_a_file_that_is_no_toml_is_not_overwritten(coli: CommandLine) -> None:
    path = user_file(coli, "not toml at all [")
    done = coli.run("config", "set", "ctx", "1")
    assert done.returncode == 2
    assert "TOML" in done.stderr
    assert path.read_text() == "not toml at all ["


@pytest.mark.parametrize("text", ["x = [1,\n", "\0", "[default]\nctxx = 1\n"])
def test_a_broken_file_keeps_nobody_from_help_and_from_mending_it(
    coli: CommandLine, text: str
) -> None:
    path = user_file(coli, text)
    assert coli.run("config", "path").stdout == f"{path}\n"
    coli.variables["EDITOR"] = "cat"
    assert coli.run("config", "edit").stdout == text
    done = coli.run("--help")
    assert (done.returncode, "doctor" in done.stdout) == (0, True)
    done = coli.run("list")
    assert done.returncode == 2
    what, remedy = done.stderr.splitlines()
    assert str(path) in what
    assert remedy.startswith("  ")


def test_edit_opens_the_editor_and_tells_when_it_cannot(coli: CommandLine) -> None:
    path = user_file(coli, "[default]\nctx = 7\n")
    coli.variables["EDITOR"] = "cat"
    assert coli.run("config", "edit").stdout == path.read_text()
    coli.variables["EDITOR"] = "no-such-editor"
    done = coli.run("config", "edit")
    assert done.returncode == 2
    assert "no-such-editor" in done.stderr
    del coli.variables["EDITOR"]
    done = coli.run("config", "edit")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"set EDITOR to another program, or edit {path}" in done.stderr
