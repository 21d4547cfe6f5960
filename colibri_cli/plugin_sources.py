"""Which plugins there are: bundled modules, entry points of installed packages, files of the user.

Nothing is imported to find out; a source knows how to load its plugin.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENTRY_POINTS: Final = "colibri.plugins"
_BUNDLED: Final = "colibri_plugins"
_FILE_NAME: Final = re.compile(r"[A-Za-z]\w*")


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A plugin that can be loaded.

    Args:
        name: What it is enabled and disabled by.
        version: Of the distribution it comes from; "" for a file.
        origin: "bundled", "installed" or "file".
        load: Returns the object with the hooks.
    """

    name: str
    version: str
    origin: str
    load: Callable[[], Any]


def plugin_sources() -> list[PluginSource]:
    """Return all sources by name; of two with one name the first counts, bundled ones first."""
    found: dict[str, PluginSource] = {}
    for source in (*_bundled(), *_installed(), *_files(paths.plugins_dir())):
        found.setdefault(source.name, source)
    return [found[name] for name in sorted(found)]


def has_plugins_of_others() -> bool:
    """Whether there are any plugins but the bundled ones; nothing is loaded to find out."""
    others = (*_installed(), *_files(paths.plugins_dir()))
    return bool(others)


def _bundled() -> Iterator[PluginSource]:
    package = importlib.util.find_spec(_BUNDLED)
    for module in pkgutil.iter_modules(package.submodule_search_locations if package else ()):
        if not module.name.startswith("_"):
            name = f"{_BUNDLED}.{module.name}"
            yield PluginSource(
                module.name.replace("_", "-"), __version__, "bundled", _importer(name)
            )


def _installed() -> Iterator[PluginSource]:
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        version = entry.dist.version if entry.dist is not None else ""
        yield PluginSource(entry.name, version, "installed", entry.load)


def _files(directory: Path) -> Iterator[PluginSource]:
    try:
        files = sorted(directory.glob("*.py"))
    except OSError:
        return
    for file in files:
        if _FILE_NAME.fullmatch(file.stem):
            yield PluginSource(file.stem.replace("_", "-"), "", "file", _file_loader(file))


def _importer(module: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(module)


def _file_loader(file: Path) -> Callable[[], Any]:
    def load() -> Any:  # noqa: ANN401 - a module
        name = f"colibri_user_plugins_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    return load
