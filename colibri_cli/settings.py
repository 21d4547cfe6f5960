"""Effective settings of one command: flags, environment, configuration file, defaults, merged.

The only module of the command line that reads the environment. The configuration file is TOML:
`[default]` for every command, `[<command>]` over it. Looked for in this order: `--config FILE`,
`colibri.toml` in the current directory or a parent up to the repository's root or home,
`config.toml` in the user's configuration directory; the first one found counts.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.discovery import command_names
from colibri_cli.errors import UsageError
from colibri_cli.options import EngineOptions
from colibri_protocol.errors import SettingsError
from colibri_protocol.foreign_variables import foreign_variables
from colibri_protocol.settings import (
    SETTINGS,
    ResolvedSettings,
    nearest,
    resolve,
    unknown_variables,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.options import OutputOptions

PROJECT_FILE: Final = "colibri.toml"
_ALWAYS_READ: Final = frozenset({"debug", "color", "log", "theme"})
_THEMES: Final = frozenset({"dark", "light"})
_DEFAULT_TABLE: Final = "default"
_NO_COMMANDS: Final = frozenset({"models", "plugins"})  # tables of another kind
_OTHER_TABLES: Final = frozenset({_DEFAULT_TABLE, "serve", *_NO_COMMANDS})


def prepare(options: OutputOptions, command: str) -> ResolvedSettings:
    """Set up logging and colour, and return the effective settings of one command.

    Args:
        options: The options given on the command line.
        command: Name of the command, also of its table in the configuration file.

    Raises:
        SettingsError: a value or a key of the file cannot be used.
    """
    from colibri_cli.logs import configure_logs

    path = config_path(options.config)
    config = _command_config(path, command) if path is not None else {}
    flags = options.flags()
    environ = _variables_for(options)
    settings = resolve(flags, environ, config, config_name=str(path or PROJECT_FILE))
    debug = settings.integer("debug") or 0
    configure_logs(2 if debug > 1 else options.verbose, content=debug)
    if settings.is_given("theme"):
        os.environ["COLI_THEME"] = settings.text("theme") or ""
    choice = color_choice(settings, is_off=options.no_color)
    if choice is not None:  # Rich reads these variables itself
        os.environ["FORCE_COLOR" if choice else "NO_COLOR"] = "1"
    return settings


def effective_settings(given: str | None, command: str) -> ResolvedSettings:
    """Return all settings as a command would see them without flags.

    Args:
        given: The configuration file named with `--config`.
        command: Whose table of the file counts.

    Raises:
        SettingsError: a value or a key of the file cannot be used.
    """
    path = config_path(given)
    config = _command_config(path, command) if path is not None else {}
    return resolve({}, os.environ, config, config_name=str(path or PROJECT_FILE))


def tables_of(path: Path) -> list[str]:
    """Return the commands that have a table in a configuration file."""
    return [name for name in _read_toml(path) if name not in _NO_COMMANDS]


def editor() -> str:
    """Return the command of the user's editor."""
    usual = "notepad" if os.name == "nt" else "vi"
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual


def has_editor() -> bool:
    """Whether the user named an editor; without one it is that of every terminal."""
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


def api_key() -> str | None:
    """Return the key for servers we are a client of."""
    return os.environ.get("COLI_API_KEY") or None


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """Which plugins may be loaded, and their tables of the configuration file.

    Args:
        disabled: Names that may not.
        only: If given, only these may.
        is_strict: One that is broken ends the command.
        is_traced: Every call of a hook is told on standard error.
        tables: `[plugins.NAME]` by name.
    """

    disabled: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    is_strict: bool = False
    is_traced: bool = False
    tables: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def is_enabled(self, name: str) -> bool:
        """Whether a plugin may be loaded."""
        return name not in self.disabled and (self.only is None or name in self.only)


def plugin_choice() -> PluginChoice:
    """Return what configuration file and environment say about plugins.

    Raises:
        SettingsError: the file's table `[plugins]` cannot be used.
    """
    variable = os.environ.get("COLI_LOAD_PLUGINS")
    only = None if variable is None else frozenset(_words(variable))
    path = config_path()
    table = _read_toml(path).get("plugins", {}) if path is not None else {}
    if not isinstance(table, dict):
        raise _file_error(path or Path(), "plugins", "'plugins' must be a table")
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    disabled = table.get("disabled", [])
    for name in table.keys() - tables.keys() - {"disabled"}:
        near = nearest(name, {"disabled"})
        hint = f"did you mean {near!r}?" if near else "it knows 'disabled' and tables of plugins"
        raise _file_error(path or Path(), name, f"[plugins]: unknown setting {name!r}", hint)
    if not isinstance(disabled, list) or not all(isinstance(name, str) for name in disabled):
        raise _file_error(
            path or Path(), "disabled", f"[plugins]: disabled is {disabled!r}, not a list of names"
        )
    return PluginChoice(
        disabled=frozenset(disabled),
        only=only,
        is_strict=_is_on("COLI_STRICT_PLUGINS"),
        is_traced=_is_on("COLI_TRACE_PLUGINS"),
        tables=tables,
    )


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "") not in {"", "0"}


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def wants_traceback(arguments: Sequence[str]) -> bool:
    """Whether an error should be shown with where in the program it came from."""
    return "--debug" in arguments or os.environ.get("COLI_DEBUG", "") in {"1", "2"}


def use_strict_plugins(arguments: Sequence[str]) -> None:
    """Let a broken plugin end the command where it was asked for, before any is loaded."""
    if "--strict-plugins" in arguments[: arguments.index("--") if "--" in arguments else None]:
        os.environ["COLI_STRICT_PLUGINS"] = "1"


def misspelt_variables() -> dict[str, str | None]:
    """Return variables with our prefix that nobody reads, with the nearest known name."""
    return unknown_variables(os.environ)


def unread_variables() -> dict[str, str]:
    """Return variables of other engines that nobody reads here, with what there is instead."""
    return foreign_variables(os.environ)


def child_environment(**extra: str) -> dict[str, str]:
    """Return our environment for a helper process, with additions."""
    return {**os.environ, **extra}


def is_dumb_terminal() -> bool:
    """Whether the terminal can do nothing but print lines."""
    return os.environ.get("TERM", "") == "dumb"


def is_light_terminal() -> bool:
    """Whether the terminal has a light background, as far as it was said.

    `COLI_THEME` says so, or the file (`prepare` hands it on); else COLORFGBG, which some terminals
    set: its last number is the background's.
    """
    theme = os.environ.get("COLI_THEME", "")
    if theme in _THEMES:
        return theme == "light"
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return background in {"7", "15"}


def shows_color() -> bool:
    """Whether standard output gets colour, for what is printed before settings are known."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("COLI_COLOR") == "1":
        return True
    return sys.stdout.isatty() and not is_dumb_terminal()


def has_display() -> bool:
    """Whether a browser opened here would be seen by whoever started the command."""
    if os.environ.get("BROWSER"):
        return True
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def color_choice(settings: ResolvedSettings, *, is_off: bool) -> bool | None:
    """Return whether colour is forced (True), off (False) or automatic (None)."""
    if is_off or os.environ.get("NO_COLOR"):
        return False
    return settings.switch("color")


def _variables_for(options: OutputOptions) -> Mapping[str, str]:
    """Return the environment without variables of settings the command has no use for.

    Names such as CTX and SEED may be somebody else's: they must not keep `coli list` from running.
    """
    if isinstance(options, EngineOptions):
        return os.environ
    used = {*_ALWAYS_READ, *(entry.name for entry in fields(options))}
    read = {name for key, row in SETTINGS.items() if key in used for name in row.env}
    unread = {name for row in SETTINGS.values() for name in row.env} - read
    return {name: value for name, value in os.environ.items() if name not in unread}


def config_path(given: str | None = None) -> Path | None:
    """Return the configuration file that counts; None if there is none.

    Raises:
        UsageError: the named one does not exist.
    """
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UsageError(f"there is no configuration file {given!r}", hint="check --config")
        return path
    project = _project_file()
    if project is not None:
        return project
    user = paths.config_dir() / "config.toml"
    return user if user.is_file() else None


def _project_file() -> Path | None:
    try:
        here = Path.cwd()
        home = Path.home()
    except (OSError, RuntimeError):
        return None
    for directory in (here, *here.parents):
        if (directory / PROJECT_FILE).is_file():
            return directory / PROJECT_FILE
        if directory == home or (directory / ".git").exists():
            return None
    return None


def _command_config(path: Path, command: str) -> dict[str, object]:
    tables = _read_toml(path)
    known = _OTHER_TABLES.union(command_names())
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _file_error(path, name, f"{name!r} must stand in a table such as [default]")
        if name not in known:
            near = nearest(name, set(known))
            raise _file_error(
                path, name, f"unknown table [{name}]", f"did you mean [{near}]?" if near else None
            )
    own = {} if command in _NO_COMMANDS else tables.get(command, {})
    return {**tables.get(_DEFAULT_TABLE, {}), **own}


def _read_toml(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise _file_error(
            path, "config", f"cannot be read ({error.strerror})", "check its permissions"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _file_error(
            path, "config", f"is not valid TOML ({error})", "`coli config edit` opens it"
        ) from error


def _file_error(path: Path, name: str, problem: str, hint: str | None = None) -> SettingsError:
    return SettingsError(f"{path}: {problem}", setting=name, source=str(path), hint=hint)
