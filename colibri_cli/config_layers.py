"""Configuration files: which count, and how their tables lie over each other.

TOML: `[default]` for every command, `[<command>]` over it, `[profile.NAME]` and
`[profile.NAME.<command>]` over both when that profile was chosen. Three files count, key by key:
`config.toml` in the user's configuration directory, over it `colibri.toml` in the current
directory or a parent up to the repository's root or home, and over both the file of `--config`.
Knows no flags and no variables: `settings` puts those on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.discovery import command_names
from colibri_cli.errors import UsageError
from colibri_protocol.errors import SettingsError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROJECT_FILE: Final = "colibri.toml"
PROFILES: Final = "profile"
_DEFAULT_TABLE: Final = "default"
_NO_COMMANDS: Final = frozenset({"models", "plugins", PROFILES})  # tables of another kind
_OTHER_TABLES: Final = frozenset({_DEFAULT_TABLE, "serve", *_NO_COMMANDS})


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file that counts.

    Args:
        path: Where it is.
        tables: What it says, by table.
    """

    path: Path
    tables: Mapping[str, Any]

    @property
    def profiles(self) -> Mapping[str, Mapping[str, Any]]:
        """Its profiles by name."""
        found: Mapping[str, Mapping[str, Any]] = self.tables.get(PROFILES, {})
        return found


@dataclass(frozen=True, slots=True)
class Layers:
    """What the files say to one command.

    Args:
        values: Setting name to value.
        sources: Setting name to the file, and the profile, that said so.
    """

    values: dict[str, object] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, table: Mapping[str, Any], source: str) -> None:
        """Lay a table over what is there."""
        self.values.update(table)
        self.sources.update(dict.fromkeys(table, source))


def config_paths(given: str | None = None) -> list[Path]:
    """Return the configuration files that count; a later one lies over those before it.

    Raises:
        UsageError: the named one does not exist.
    """
    user = paths.config_dir() / "config.toml"
    project = _project_file()
    found = [user] if user.is_file() else []
    found += [] if project is None else [project]
    if given is None:
        return found
    named = _named_file(given)
    return [*(path for path in found if not path.samefile(named)), named]


def _named_file(given: str) -> Path:
    try:
        path = Path(given).expanduser()
    except RuntimeError:  # in the home directory of nobody
        path = Path(given)
    if path.is_file():
        return path
    hint = "check --config, or COLI_CONFIG"
    if path.exists():  # a directory, most often
        raise UsageError(f"the configuration {given!r} is not a file", hint=hint)
    raise UsageError(f"there is no configuration file {given!r}", hint=hint)


def config_path(given: str | None = None) -> Path | None:
    """Return the configuration file that counts most; None if there is none.

    Raises:
        UsageError: the named one does not exist.
    """
    found = config_paths(given)
    return found[-1] if found else None


def read_files(given: str | None = None) -> list[ConfigFile]:
    """Read the files that count, their tables checked.

    Raises:
        UsageError: the named one does not exist.
        SettingsError: one cannot be used.
    """
    return [read_file(path) for path in config_paths(given)]


def read_file(path: Path) -> ConfigFile:
    """Read one file, its tables checked; the settings in them are not.

    Raises:
        SettingsError: it cannot be used.
    """
    tables = read_toml(path)
    known = _OTHER_TABLES.union(command_names())
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise file_error(path, name, f"{name!r} must stand in a table such as [default]")
        if name not in known:
            near = nearest(name, set(known))
            raise file_error(
                path, name, f"unknown table [{name}]", f"did you mean [{near}]?" if near else None
            )
    for name, profile in tables.get(PROFILES, {}).items():
        if not isinstance(profile, dict):
            raise file_error(path, name, f"{name!r} must stand in a table such as [profile.work]")
        if PROFILES in profile:
            raise file_error(
                path, PROFILES, f"[profile.{name}]: a profile names no other", "leave the key out"
            )
    return ConfigFile(path, tables)


def layers_of(files: Sequence[ConfigFile], command: str, profile: str | None = None) -> Layers:
    """Return what the files say to a command.

    Args:
        files: Those that count, the least first.
        command: Its name.
        profile: The chosen profile; each file's lies over the rest of that file.
    """
    layers = Layers()
    known = {"serve", *command_names()}
    for file in files:
        layers.put(file.tables.get(_DEFAULT_TABLE, {}), str(file.path))
        if command not in _NO_COMMANDS:
            layers.put(file.tables.get(command, {}), str(file.path))
        chosen = file.profiles.get(profile or "", {})
        source = f"{file.path} [{PROFILES}.{profile}]"
        inner = {key for key in chosen if isinstance(chosen[key], dict) and key in known}
        layers.put({key: value for key, value in chosen.items() if key not in inner}, source)
        layers.put(chosen[command] if command in inner else {}, source)
    return layers


def check_profile(files: Sequence[ConfigFile], profile: str, source: str) -> None:
    """Refuse a profile that no file has.

    Raises:
        SettingsError: naming those there are.
    """
    known = sorted({name for file in files for name in file.profiles})
    if profile in known:
        return
    hint = f"there are {', '.join(known)}" if known else "`coli config set --profile` makes one"
    raise SettingsError(
        f"{source}: there is no profile {profile!r}",
        setting=PROFILES,
        source=source,
        hint=hint,
    )


def checked_layers(path: Path) -> list[Layers]:
    """Return everything a file could say, one entry for each command and profile with a table.

    Raises:
        SettingsError: it cannot be used.
    """
    file = read_file(path)
    commands = [name for name in file.tables if name not in _NO_COMMANDS]
    pairs: list[tuple[str, str | None]] = [(command, None) for command in commands]
    for name, profile in file.profiles.items():
        inner = [key for key in profile if key in command_names()]
        pairs += [(command, name) for command in [_DEFAULT_TABLE, *inner]]
    return [layers_of([file], command, profile) for command, profile in pairs]


def plugin_table(given: str | None = None) -> tuple[Path, dict[str, Any]]:
    """Return the table `[plugins]` of all files, and which file to name when it is wrong.

    Raises:
        SettingsError: a file is no TOML, or has something else where the table should be.
    """
    merged: dict[str, Any] = {}
    last = Path()
    for path in config_paths(given):
        table = read_toml(path).get("plugins", {})
        if not isinstance(table, dict):
            raise file_error(path, "plugins", "'plugins' must be a table")
        last = path if table else last
        for key, value in table.items():
            below = merged.get(key)
            if isinstance(value, dict) and isinstance(below, dict):
                merged[key] = {**below, **value}
            else:
                merged[key] = value
    return last, merged


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


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a file as it is; one that did not change since is not read again.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    try:
        status = path.stat()
        return _parsed(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise file_error(
            path, "config", f"cannot be read ({error.strerror})", "check its permissions"
        ) from error
    # Beside text that is no TOML or not UTF-8: a number of thousands of digits, and brackets in
    # brackets beyond the stack.
    except (ValueError, RecursionError) as error:
        raise file_error(
            path, "config", f"is not valid TOML ({error})", "`coli config edit` opens it"
        ) from error


@lru_cache(maxsize=8)
def _parsed(path: Path, _changed_ns: int, _num_bytes: int) -> Mapping[str, Any]:
    import tomllib

    # Some editors on Windows put a mark of the byte order before the text.
    return tomllib.loads(path.read_text(encoding="utf-8-sig"))


def file_error(path: Path, name: str, problem: str, hint: str | None = None) -> SettingsError:
    """Return the error of a file that cannot be used."""
    return SettingsError(f"{path}: {problem}", setting=name, source=str(path), hint=hint)
