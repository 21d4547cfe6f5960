"""`coli plugins`: what extends coli, which of it is switched on, and a skeleton for more."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from colibri_cli import completing
from colibri_cli.config_layers import config_path
from colibri_cli.errors import UsageError
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import config_file_given, plugin_choice, prepare
from colibri_cli.wrapping import say
from colibri_protocol.settings import nearest

_SCHEMA_VERSION = 1

app = typer.Typer(
    name="plugins",
    help="List, enable and disable plugins, or begin a new one.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, kw_only=True)
class ListOptions(JsonOptions, OutputOptions):
    """Options of `coli plugins list`."""

    hook: Annotated[
        str | None,
        typer.Option(
            "--hook", metavar="HOOK", help="Only those with this hook.", show_default=False
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NameOptions(OutputOptions):
    """Options of `coli plugins enable` and `disable`."""

    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The plugin.", autocompletion=completing.plugin_names),
    ]


@dataclass(frozen=True, kw_only=True)
class NewOptions(OutputOptions):
    """Options of `coli plugins new`."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the plugin.")]
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="Folder to make it in.")
    ] = "."


@app.command("list")
@takes(ListOptions)
def list_command(options: ListOptions) -> None:
    """List all plugins: version, origin, state, hooks."""
    prepare(options, "plugins")
    from colibri_cli.plugin_loader import load_plugins

    states = [
        state
        for state in load_plugins().states
        if options.hook is None or options.hook in state.hooks
    ]
    if options.json:
        rows = [
            {
                "name": state.source.name,
                "version": state.source.version or None,
                "origin": state.source.origin,
                "state": state.state,
                "problem": state.problem,
                "hooks": list(state.hooks),
            }
            for state in states
        ]
        body = {"schema_version": _SCHEMA_VERSION, "plugins": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not states:
        say("no plugins")
        return
    from colibri_cli.console import print_table

    columns = [(title, False) for title in ("name", "version", "origin", "state", "hooks")]
    print_table(
        columns,
        [
            (
                state.source.name,
                state.source.version or "-",
                state.source.origin,
                state.state,
                state.problem or ", ".join(h.removeprefix("register_") for h in state.hooks) or "-",
            )
            for state in states
        ],
    )


@app.command("enable")
@takes(NameOptions)
def enable_command(options: NameOptions) -> None:
    """Let a plugin be loaded again."""
    _switch(options, is_on=True)


@app.command("disable")
@takes(NameOptions)
def disable_command(options: NameOptions) -> None:
    """Keep a plugin from being loaded."""
    _switch(options, is_on=False)


def _switch(options: NameOptions, *, is_on: bool) -> None:
    prepare(options, "plugins")
    from colibri_cli.config_file import set_key, user_config_file
    from colibri_cli.plugin_sources import plugin_sources

    disabled = set(plugin_choice().disabled)
    known = {source.name for source in plugin_sources()}
    if options.name not in known | disabled:
        near = nearest(options.name, known)
        raise UsageError(
            f"there is no plugin {options.name!r}",
            hint=f"did you mean {near!r}?" if near else "`coli plugins list` names them",
        )
    changed = disabled - {options.name} if is_on else disabled | {options.name}
    path = config_path(config_file_given(options.config)) or user_config_file()
    if changed != disabled:
        set_key(path, "plugins", "disabled", sorted(changed))
    if not options.quiet:
        word = "enabled" if is_on else "disabled"
        say(f"{options.name} is {word} ({path})")


@app.command("new")
@takes(NewOptions)
def new_command(options: NewOptions) -> None:
    """Write the skeleton of a plugin that can be installed at once."""
    prepare(options, "plugins")
    from colibri_cli.plugin_skeleton import write_skeleton

    folder = write_skeleton(Path(options.directory), options.name)
    sys.stdout.write(f"{folder}\n")
    if not options.quiet:
        say(f"install it with: pip install -e {folder}")
