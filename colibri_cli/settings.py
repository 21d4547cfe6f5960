"""Effective settings of one command: flags, environment, files, defaults, merged.

The only module of the command line that reads the environment; `config_layers` reads the files.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, fields
from typing import IO, TYPE_CHECKING, Final

from colibri_cli.config_layers import (
    check_profile,
    checked_layers,
    file_error,
    layers_of,
    plugin_table,
    read_files,
)
from colibri_cli.options import EngineOptions
from colibri_protocol.foreign_variables import foreign_variables
from colibri_protocol.settings import (
    SETTINGS,
    ResolvedSettings,
    nearest,
    resolve,
    resolve_setting,
    unknown_variables,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from colibri_cli.options import OutputOptions

_CONFIG_VARIABLE: Final = "COLI_CONFIG"
_ALWAYS_READ: Final = frozenset({"debug", "color", "log", "theme"})
_THEMES: Final = frozenset({"dark", "light"})


def prepare(options: OutputOptions, command: str) -> ResolvedSettings:
    """Set up logging and colour, and return the effective settings of one command.

    Args:
        options: The options given on the command line.
        command: Name of the command, also of its table in the configuration file.

    Raises:
        SettingsError: a value or a key of the file cannot be used.
    """
    from colibri_cli.logs import configure_logs

    settings = _resolved(options.config, command, options.flags(), _variables_for(options))
    debug = settings.integer("debug") or 0
    configure_logs(2 if debug > 1 else options.verbose, content=debug)
    if settings.is_given("theme"):
        os.environ["COLI_THEME"] = settings.text("theme") or ""
    choice = color_choice(settings, is_off=options.no_color)
    if choice is not None:  # Rich reads these variables itself
        os.environ["FORCE_COLOR" if choice else "NO_COLOR"] = "1"
    return settings


def effective_settings(
    given: str | None, command: str, profile: str | None = None
) -> ResolvedSettings:
    """Return all settings as a command would see them without flags.

    Args:
        given: The configuration file named with `--config`.
        command: Whose tables of the files count.
        profile: The profile named with `--profile`.

    Raises:
        SettingsError: a value or a key of a file cannot be used, or there is no such profile.
    """
    return _resolved(given, command, {"profile": profile}, os.environ)


def check_file(path: Path) -> None:
    """Check all tables of one configuration file, chosen or not.

    Raises:
        SettingsError: a value or a key cannot be used.
    """
    for layers in checked_layers(path):
        resolve({}, {}, layers.values, config_sources=layers.sources)


def _resolved(
    given: str | None, command: str, flags: Mapping[str, object], environ: Mapping[str, str]
) -> ResolvedSettings:
    files = read_files(config_file_given(given))
    layers = layers_of(files, command)
    profile = resolve_setting("profile", flags, environ, layers.values, layers.sources)
    if isinstance(profile.value, str):
        check_profile(files, profile.value, profile.origin.name)
        layers = layers_of(files, command, profile.value)
    return resolve(flags, environ, layers.values, config_sources=layers.sources)


def config_file_given(flag: str | None = None) -> str | None:
    """Return the configuration file that `--config` or COLI_CONFIG names; None: neither does."""
    return flag if flag is not None else os.environ.get(_CONFIG_VARIABLE) or None


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
    path, table = plugin_table(config_file_given())
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    disabled = table.get("disabled", [])
    for name in table.keys() - tables.keys() - {"disabled"}:
        near = nearest(name, {"disabled"})
        hint = f"did you mean {near!r}?" if near else "it knows 'disabled' and tables of plugins"
        raise file_error(path, name, f"[plugins]: unknown setting {name!r}", hint)
    if not isinstance(disabled, list) or not all(isinstance(name, str) for name in disabled):
        raise file_error(
            path, "disabled", f"[plugins]: disabled is {disabled!r}, not a list of names"
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


def use_early_options(arguments: Sequence[str]) -> None:
    """Hand on what decides about plugins, which are loaded before options are read."""
    words = list(arguments[: arguments.index("--") if "--" in arguments else None])
    if "--strict-plugins" in words:
        os.environ["COLI_STRICT_PLUGINS"] = "1"
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, is_joined, value = word.partition("=")
        if name == "--config" and (file := value if is_joined else following):
            os.environ[_CONFIG_VARIABLE] = file


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


def shows_color(stream: IO[str] | None = None) -> bool:
    """Whether a stream, standard output unless given, gets colour where Rich does not decide."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("COLI_COLOR") == "1":
        return True
    return (stream or sys.stdout).isatty() and not is_dumb_terminal()


def given_columns() -> int | None:
    """Return the width that COLUMNS asks for where no terminal has one; None: it asks for none."""
    text = os.environ.get("COLUMNS", "")
    return int(text[:9]) if text.isascii() and text.isdigit() and int(text[:9]) > 0 else None


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
