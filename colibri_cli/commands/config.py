"""`coli config`: every setting, where its value comes from, and changing the file."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from colibri_cli import completing
from colibri_cli.config_layers import PROFILES, config_path, config_paths
from colibri_cli.errors import EXIT_FAILED, UsageError
from colibri_cli.key_files import KEYS, shown_value
from colibri_cli.options import JsonOptions, OutputOptions, filled, takes
from colibri_cli.settings import (
    check_file,
    config_file_given,
    editor,
    effective_settings,
    has_editor,
    prepare,
)
from colibri_cli.wrapping import say
from colibri_protocol.settings import SETTINGS, Origin, Scope, Setting, SettingValue, nearest

_SCHEMA_VERSION = 1
_DEFAULT = "default"

app = typer.Typer(
    name="config",
    help="Show settings with their origin, and change the file.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_For = Annotated[
    str, typer.Option("--for", metavar="COMMAND", help="As this command would see them.")
]
_Origin = Annotated[
    bool,
    typer.Option(
        "--origin", "--show-origin", help="Also tell where a value comes from.", metavar=""
    ),
]
_Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="A setting, or COMMAND.SETTING for one command.",
        autocompletion=completing.setting_names,
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ShowOptions(JsonOptions, OutputOptions):
    """Options of `coli config show`."""

    origin: _Origin = False
    all: Annotated[bool, typer.Option("--all", help="Also those nobody set.", metavar="")] = False
    command: _For = "run"


@dataclass(frozen=True, kw_only=True)
class PathOptions(OutputOptions):
    """Options of `coli config path`."""


@dataclass(frozen=True, kw_only=True)
class GetOptions(OutputOptions):
    """Options of `coli config get`."""

    key: _Key
    origin: _Origin = False
    command: _For = "run"


@dataclass(frozen=True, kw_only=True)
class SetOptions(OutputOptions):
    """Options of `coli config set`."""

    key: _Key
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value.")]


@dataclass(frozen=True, kw_only=True)
class UnsetOptions(OutputOptions):
    """Options of `coli config unset`."""

    key: _Key


@app.command("show")
@takes(ShowOptions)
def show_command(options: ShowOptions) -> None:
    """Show effective settings; secrets are masked."""
    prepare(options, "config")
    found = effective_settings(options.config, options.command, options.profile)
    rows = [
        (name, shown_value(name, resolved.value), resolved.origin)
        for name, resolved in found.items()
        if options.all or options.json or found.is_given(name)
    ]
    if options.json:
        body = {
            "schema_version": _SCHEMA_VERSION,
            "file": _text(config_path(config_file_given(options.config))),
            "files": [
                str(path) for path in reversed(config_paths(config_file_given(options.config)))
            ],
            "profile": found.text("profile"),
            "settings": {
                name: {"value": value, "origin": origin.kind.value, "source": origin.name or None}
                for name, value, origin in rows
            },
        }
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not rows:
        say("nothing is set; `--all` shows what everything is by default")
        return
    from colibri_cli.console import print_table

    columns = [("setting", False), ("value", False)]
    if options.origin:
        columns.append(("origin", False))
    cells = [
        (
            name,
            _cell(_written(value if found.is_given(name) else None, SETTINGS[name])),
            *([_cell(_origin(origin))] if options.origin else []),
        )
        for name, value, origin in rows
    ]
    print_table(columns, cells)


@app.command("path")
@takes(PathOptions)
def path_command(options: PathOptions) -> None:
    """Print the configuration file that counts most, whether it exists or not, or can be read."""
    sys.stdout.write(f"{_file(options)}\n")


@app.command("get")
@takes(GetOptions)
def get_command(options: GetOptions) -> None:
    """Print the effective value of one setting."""
    prepare(options, "config")
    table, row = _setting(options.key)
    command = options.command if table == _DEFAULT else table
    found = effective_settings(options.config, command, options.profile)[row.name]
    line = _written(shown_value(row.name, found.value), row)
    sys.stdout.write(f"{line}  {_origin(found.origin)}\n" if options.origin else f"{line}\n")


@app.command("set")
@takes(SetOptions)
def set_command(options: SetOptions) -> None:
    """Set one setting in the configuration file."""
    table, row = _setting(options.key)
    value = row.parse(options.value, row.name)
    if row.name in KEYS:
        by_file = f"{row.name}_file" in SETTINGS
        raise UsageError(
            f"{row.name} is a secret and is not written into the configuration",
            hint=f"put it into a file only you can read, and set {row.name}_file to its path"
            if by_file
            else f"set {row.env[0]}, or write it into the file with `coli config edit`",
        )
    from colibri_cli.config_file import set_key

    path = _file(options)
    tables = _tables(options, table)
    set_key(path, tables, row.name, value)
    if not options.quiet:
        written = _written(shown_value(row.name, value), row)
        say(f"[{'.'.join(tables)}] {row.name} = {written} ({path})")


@app.command("unset")
@takes(UnsetOptions)
def unset_command(options: UnsetOptions) -> None:
    """Remove one setting from the configuration file."""
    from colibri_cli.config_file import unset_key

    table, row = _setting(options.key)
    path = _file(options)
    tables = _tables(options, table)
    if not unset_key(path, tables, row.name) and not options.quiet:
        say(f"[{'.'.join(tables)}] has no {row.name} ({path})")


@app.command("check")
@takes(PathOptions)
def check_command(options: PathOptions) -> None:
    """Check the configuration files: keys, types, ranges, of every profile too."""
    paths = config_paths(config_file_given(options.config))
    if not paths:
        say("there is no configuration file")
        return
    for path in paths:
        check_file(path)
    effective_settings(options.config, "run", options.profile)
    from colibri_cli.plugin_loader import load_plugins

    load_plugins()
    if not options.quiet:
        for path in paths:
            say(f"{path} is in order")


@app.command("edit")
@takes(PathOptions)
def edit_command(options: PathOptions) -> None:
    """Open the configuration file in your editor."""
    from colibri_cli.errors import StoreError
    from colibri_cli.whole_files import make_own

    path = _file(options)
    if not sys.stdin.isatty() and not has_editor():
        raise UsageError(
            "an editor in the terminal needs one, and this is none",
            hint=f"set EDITOR to another program, or edit {path}",
        )
    try:
        make_own(path.parent)
        path.touch(mode=0o600)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    import shlex
    import subprocess

    words = shlex.split(editor())
    try:
        code = subprocess.run([*words, str(path)], check=False).returncode
    except OSError as error:
        raise UsageError(
            f"the editor {words[0]!r} cannot be run ({error.strerror})",
            hint="set EDITOR to a program",
        ) from error
    if code:
        raise typer.Exit(EXIT_FAILED)


def _file(options: OutputOptions) -> Path:
    from colibri_cli.config_file import user_config_file

    return config_path(config_file_given(options.config)) or user_config_file()


def _tables(options: OutputOptions, table: str) -> tuple[str, ...]:
    """Return the table to change, from the outside in: that of a profile where one was named.

    Raises:
        UsageError: a profile of the wrong form.
    """
    if options.profile is None:
        return (table,)
    name = filled("--profile", options.profile, what="a profile")
    return (PROFILES, name) if table == _DEFAULT else (PROFILES, name, table)


def _setting(key: str) -> tuple[str, Setting]:
    """Return the table and the row of `SETTING` or `COMMAND.SETTING`."""
    from colibri_cli.discovery import command_names

    table, _, name = key.rpartition(".")
    rows = {name: row for name, row in SETTINGS.items() if row.scope is not Scope.ENGINE}
    if table and table not in {*command_names(), _DEFAULT}:
        near = nearest(table, set(command_names()))
        hint = f"did you mean {near}.{name}?" if near else "write SETTING or COMMAND.SETTING"
        raise UsageError(f"there is no command {table!r} to have settings", hint=hint)
    name = name.replace("-", "_")
    if name not in rows:
        near = nearest(name, rows)
        hint = f"did you mean {near!r}?" if near else "`coli config show --all` lists them"
        raise UsageError(f"there is no setting {name!r}", hint=hint)
    return table or _DEFAULT, rows[name]


def _written(value: SettingValue, row: Setting) -> str:
    if value is None and row.default_text:
        return f"({row.default_text})"
    value = row.default if value is None else value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _cell(text: str) -> str:
    """Return a text that stays on its line and does not steer the terminal."""
    from colibri_cli.terminal.answer_text import visible

    return visible(text).replace("\n", " ")


def _origin(origin: Origin) -> str:
    return f"{origin.kind.value} {origin.name}".strip()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
