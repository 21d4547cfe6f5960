"""Options of commands: declared once as dataclass fields, grouped, taken as one object.

An option that is a setting gets its flags and help from the settings table and arrives as text (or
None); `settings` turns it into a value together with environment and configuration file.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from colibri_cli import completing
from colibri_cli.errors import UsageError
from colibri_protocol.settings import SETTINGS, Kind, Setting

_METAVARS = {
    Kind.TEXT: "TEXT",
    Kind.PATH: "PATH",
    Kind.INTEGER: "N",
    Kind.NUMBER: "X",
}

_METAVAR_OF = {"profile": "NAME"}
_COMPLETED = {"model": completing.model_names, "profile": completing.profile_names}


def setting(name: str, panel: str) -> Any:  # noqa: ANN401 - Typer's own option object
    """Return the Typer option of a row of the settings table."""
    row = SETTINGS[name]
    if row.kind is Kind.SWITCH:
        flag = row.flags[0]
        return typer.Option(
            f"{flag}/--no-{flag.removeprefix('--')}",
            help=help_of(row),
            metavar="",
            show_default=False,
            rich_help_panel=panel,
        )
    return typer.Option(
        *row.flags,
        autocompletion=_COMPLETED.get(name),
        help=help_of(row),
        metavar="|".join(row.choices) or _METAVAR_OF.get(name, _METAVARS.get(row.kind, "TEXT")),
        show_default=False,
        rich_help_panel=panel,
    )


def filled(flag: str, given: str, *, what: str = "a file or directory") -> str:
    """Return what a user gave with a flag.

    Args:
        flag: Its name.
        given: What was given.
        what: What it names.

    Raises:
        UsageError: It is empty.
    """
    if not given.strip():
        raise UsageError(f"{flag} is empty", hint=f"name {what}; is a variable unset?")
    return given


def path_of(flag: str, given: str) -> Path:
    """Return the path that a user named with a flag.

    Raises:
        UsageError: It is empty, or in the home directory of nobody.
    """
    try:
        return Path(filled(flag, given)).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"{flag} {given} is in the home directory of nobody",
            hint="write the path out, from / on",
        ) from error


def takes(options_class: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function of one options object into one that Typer can read the options from.

    A second parameter of the function, if it has one, gets Typer's context.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(options_class, include_extras=True)
        parameters = [
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if entry.default is MISSING else entry.default,
                annotation=hints[entry.name],
            )
            for entry in fields(options_class)
        ]
        wants_context = len(inspect.signature(body).parameters) > 1
        if wants_context:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("typer_context", keyword, annotation=typer.Context))

        @wraps(body)
        def command(**values: Any) -> None:  # noqa: ANN401 - whatever the options are
            context = (values.pop("typer_context"),) if wants_context else ()
            body(options_class(**values), *context)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def help_of(row: Setting) -> str:
    """Return the help text with variables and default."""
    notes = []
    if row.env:
        notes.append(f"Variable: {', '.join(row.env)}.")
    default = row.default_text or (
        "" if row.default is None or row.kind is Kind.SWITCH else str(row.default)
    )
    if default:
        notes.append(f"Default: {default}.")
    # A bracket would be taken for mark-up, and `[profile.NAME]` would not be on the page.
    return " ".join([row.help, *notes]).replace("[", "\\[")


_OUTPUT = "Output"
_MODEL = "Model and engine"
_SAMPLING = "Sampling"


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options every command has."""

    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Only results and errors.", metavar="", rich_help_panel=_OUTPUT
        ),
    ] = False
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            metavar="",
            help="Say more on standard error; twice for everything.",
            rich_help_panel=_OUTPUT,
            show_default=False,
        ),
    ] = 0
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Use no colour.", metavar="", rich_help_panel=_OUTPUT)
    ] = False
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help=help_of(SETTINGS["debug"]), metavar="", rich_help_panel=_OUTPUT
        ),
    ] = False
    strict_plugins: Annotated[
        bool,
        typer.Option(
            "--strict-plugins",
            help="End with an error where a plugin is broken, instead of leaving it out."
            " Variable: COLI_STRICT_PLUGINS.",
            metavar="",
            rich_help_panel=_OUTPUT,
        ),
    ] = False
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration file that counts more than the usual ones; also COLI_CONFIG.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None
    profile: Annotated[str | None, setting("profile", _OUTPUT)] = None

    def flags(self) -> dict[str, object]:
        """Return the values given for settings, by setting name."""
        given = {e.name: getattr(self, e.name) for e in fields(self) if e.name in SETTINGS}
        return {**given, "debug": 1 if self.debug else None}


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """For commands whose result can be one JSON document."""

    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON document on standard output.",
            metavar="",
            rich_help_panel=_OUTPUT,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Which model runs, and how its engine is started."""

    model: Annotated[str | None, setting("model", _MODEL)] = None
    ctx: Annotated[str | None, setting("ctx", _MODEL)] = None
    numerics: Annotated[str | None, setting("numerics", _MODEL)] = None
    kv_dtype: Annotated[str | None, setting("kv_dtype", _MODEL)] = None
    num_threads: Annotated[str | None, setting("num_threads", _MODEL)] = None
    experts_per_token: Annotated[str | None, setting("experts_per_token", _MODEL)] = None
    engine_bin: Annotated[str | None, setting("engine_bin", _MODEL)] = None
    ram_gb: Annotated[str | None, setting("ram_gb", _MODEL)] = None
    cap: Annotated[str | None, setting("cap", _MODEL)] = None
    repin: Annotated[str | None, setting("repin", _MODEL)] = None
    auto_tier: Annotated[bool | None, setting("auto_tier", _MODEL)] = None


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are chosen."""

    max_tokens: Annotated[str | None, setting("max_tokens", _SAMPLING)] = None
    temperature: Annotated[str | None, setting("temperature", _SAMPLING)] = None
    top_p: Annotated[str | None, setting("top_p", _SAMPLING)] = None
    top_k: Annotated[str | None, setting("top_k", _SAMPLING)] = None
    min_p: Annotated[str | None, setting("min_p", _SAMPLING)] = None
    repetition_penalty: Annotated[str | None, setting("repetition_penalty", _SAMPLING)] = None
    frequency_penalty: Annotated[str | None, setting("frequency_penalty", _SAMPLING)] = None
    presence_penalty: Annotated[str | None, setting("presence_penalty", _SAMPLING)] = None
    seed: Annotated[str | None, setting("seed", _SAMPLING)] = None
    think: Annotated[bool | None, setting("think", _SAMPLING)] = None


@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """What is asked with, whom, and after what."""

    system: Annotated[
        str | None,
        typer.Option("--system", "-s", metavar="TEXT", help="System text.", show_default=False),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End answers before this text; up to 4."),
    ] = None
    continue_last: Annotated[
        bool,
        typer.Option("--continue", "-c", help="Go on with the last conversation.", metavar=""),
    ] = False
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach",
            metavar="URL",
            help="Ask this server instead of starting an engine."
            " Default: one at http://127.0.0.1:8000, if it serves the wanted model.",
            show_default=False,
        ),
    ] = None
    no_attach: Annotated[
        bool, typer.Option("--no-attach", help="Start an engine in any case.", metavar="")
    ] = False


@dataclass(frozen=True, kw_only=True)
class GlobalOptions(SamplingOptions, EngineOptions, JsonOptions, OutputOptions):
    """What may also stand before the command."""

    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print name and version.", metavar="", rich_help_panel=_OUTPUT
        ),
    ] = False
