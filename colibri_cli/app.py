"""The root Typer application: finds commands by name, hands global options on to them.

A command's module is imported only when it is run. Options given before the command are moved
behind it, so that there is one place where each is read and the later one wins; a command that does
not know one refuses it.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from colibri_cli import __version__
from colibri_cli.discovery import SHORT_NAMES, command_names, module_of
from colibri_cli.errors import UsageError
from colibri_cli.options import GlobalOptions, takes
from colibri_cli.plain_options import take_plainly
from colibri_cli.termination import ClosedPipe
from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def invoke(arguments: Sequence[str], program: str) -> int:
    """Run one command line and return its exit code; errors are raised."""
    root = typer.main.get_command(app)
    take_plainly(root)
    result = root.main(list(arguments), prog_name=program, standalone_mode=False)
    return result if isinstance(result, int) else 0


class LazyGroup(TyperGroup):
    """A group whose commands are modules of `colibri_cli.commands`, and those of plugins."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's private Context
        """Return the names of our own commands without importing anything."""
        return command_names()

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the page with all commands, those of plugins too."""
        from colibri_cli.help_page import page

        formatter.write(page())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Import and build one command; None for a name nobody has.

        Plugins are loaded only for a name that is none of ours, and never to complete a line.
        """
        if cmd_name not in command_names():
            found = None if ctx and ctx.resilient_parsing else _plugin_commands().get(cmd_name)
            if found is not None:
                take_plainly(found)
            return found
        module = importlib.import_module(module_of(cmd_name))
        group = getattr(module, "app", None)
        if not isinstance(group, typer.Typer):
            group = typer.Typer(add_completion=False, context_settings=_HELP_NAMES)
            group.command(cmd_name)(module.command)
        command = typer.main.get_command(group)
        command.name = cmd_name  # the help lists it by this
        take_plainly(command)
        return command

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run the command; a reader that went away ends it quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ClosedPipe from error

    def resolve_command(
        self,
        ctx: Any,  # noqa: ANN401
        args: list[str],
    ) -> tuple[str | None, Any, list[str]]:
        """Find the command and put the options that stood before it in front of its own."""
        name = SHORT_NAMES.get(args[0], args[0])
        command = self.get_command(ctx, name)
        if command is None:
            if ctx.resilient_parsing:
                return None, None, args[1:]
            raise _unknown_command(name)
        inner = getattr(command, "commands", {}).get(args[1] if len(args) > 1 else "")
        if inner is not None:  # `coli --profile work config show`: they are those of `show`
            moved = _leading_options(ctx, f"{name} {args[1]}", inner)
            return name, command, [args[1], *moved, *args[2:]]
        return name, command, [*_leading_options(ctx, name, command), *args[1:]]


app = typer.Typer(
    cls=LazyGroup,
    name="coli",
    help="Run mixture-of-experts language models larger than memory.",
    context_settings=_HELP_NAMES,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@app.callback()
@takes(GlobalOptions)
def _root(options: GlobalOptions, context: typer.Context) -> None:
    """Run mixture-of-experts language models larger than memory."""
    if options.version:
        typer.echo(f"coli {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from colibri_cli.greeting import greet
        from colibri_cli.settings import prepare

        with suppress(SettingsError):  # help is wanted most when something is broken
            greet(options, prepare(options, ""))
        typer.echo(context.get_help())


def _plugin_commands() -> dict[str, Any]:
    from colibri_cli.plugin_loader import plugin_commands

    return plugin_commands()


def _unknown_command(name: str) -> UsageError:
    known = [*command_names(), *_plugin_commands()]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean `coli {close[0]}`?" if close else "`coli --help` lists all commands"
    return UsageError(f"there is no command {name!r}", hint=hint)


def _leading_options(ctx: typer.Context, name: str, command: Any) -> list[str]:  # noqa: ANN401
    """Return the options given before the command, as arguments for it."""
    known = {option for parameter in command.params for option in parameter.opts}
    moved: list[str] = []
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE" or parameter.name == "version":
            continue
        flag = max(parameter.opts, key=len)
        if flag not in known:
            raise UsageError(
                f"`coli {name}` does not take {flag}", hint=f"see `coli {name} --help`"
            )
        value = ctx.params[parameter.name or ""]
        if isinstance(value, bool):
            moved.append(flag)
        elif isinstance(value, int):  # counted: -v -v
            moved += [flag] * value
        else:
            moved += [flag, str(value)]
    return moved
