"""Commands of plugins and what they do, remembered until something about the plugins changes."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli import __version__, paths
from colibri_cli.config_layers import config_paths
from colibri_cli.settings import config_file_given, plugin_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES: Final = 1 << 20


def plugin_summaries() -> dict[str, str]:
    """Return the commands of all plugins with their first line of help.

    Plugins are loaded when nothing is remembered for exactly those that are there now; nothing is
    remembered while one of them is broken, so that this is said each time.

    Raises:
        SettingsError: the configuration file's table `[plugins]` cannot be used.
    """
    file = paths.cache_dir() / "plugin-commands.json"
    key = _key()
    known = _read(file, key)
    if known is not None:
        return known
    from colibri_cli.plugin_loader import load_plugins, plugin_commands

    found = {name: _first_line(command.help) for name, command in plugin_commands().items()}
    if all(state.state != "broken" for state in load_plugins().states):
        _write(file, key, found)
    return found


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _key() -> str:
    """Return a digest of all that decides which plugins there are and what they add."""
    choice = plugin_choice()
    parts = [__version__, sys.version, repr(sorted(choice.disabled))]
    parts.append("all" if choice.only is None else repr(sorted(choice.only)))
    parts += _stamps(config_paths(config_file_given()))
    parts += _stamps(_plugin_files())
    for folder in sys.path:
        parts += _distributions(folder)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _plugin_files() -> Iterator[Path]:
    """Yield the files of bundled plugins and those of the user."""
    from importlib.util import find_spec

    bundled = find_spec("colibri_plugins")
    folders = [Path(name) for name in (bundled and bundled.submodule_search_locations) or ()]
    for folder in (*folders, paths.plugins_dir()):
        yield from sorted(folder.glob("*.py"))


def _stamps(files: Iterator[Path] | list[Path]) -> list[str]:
    found = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        found.append(f"{file} {status.st_mtime_ns} {status.st_size}")
    return found


def _distributions(folder: str) -> list[str]:
    """Return the installed distributions of one directory of modules, with when they came."""
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(
                f"{entry.name} {entry.stat().st_mtime_ns}"
                for entry in entries
                if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except OSError:
        return []


def _read(file: Path, key: str) -> dict[str, str] | None:
    try:
        with file.open("rb") as stream:
            body = json.loads(stream.read(_MAX_BYTES))
        if body["key"] != key:
            return None
        return {str(name): str(text) for name, text in body["commands"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(file: Path, key: str, commands: dict[str, str]) -> None:
    """Remember; where that cannot be written, the next page takes longer, no more."""
    import tempfile

    from colibri_cli.whole_files import make_own

    try:
        make_own(file.parent)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".plugin-commands.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"key": key, "commands": commands}, stream)
        Path(temporary).replace(file)
    except OSError:
        return
