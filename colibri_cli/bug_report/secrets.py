"""Which values are secret here: of settings, variables, key files and configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli.bug_report.masking import (
    secrets_of_file,
    secrets_of_tables,
    secrets_of_variables,
)
from colibri_cli.config_layers import config_paths, read_toml
from colibri_cli.settings import child_environment, config_file_given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colibri_protocol.settings import ResolvedSettings

_KEY_FILE: Final = "api_key_file"


def known_secrets(settings: ResolvedSettings, config: str | None) -> set[str]:
    """Return all secret values that can be known.

    Args:
        settings: Effective settings.
        config: The configuration file named with `--config`.

    Raises:
        SettingsError: a configuration file cannot be read.
    """
    environ = child_environment()
    found = set(secrets_of_variables(environ))
    texts = {name: row.value for name, row in settings.items() if isinstance(row.value, str)}
    found.update(secrets_of_variables(texts))
    files = {texts.get(_KEY_FILE), environ.get(_variable(_KEY_FILE))}
    for path in config_paths(config_file_given(config)):
        tables = read_toml(path)
        found.update(secrets_of_tables(tables))
        files.update(_named(tables, _KEY_FILE))
    for name in filter(None, files):
        found.update(secrets_of_file(Path(name).expanduser()))
    return found


def _variable(name: str) -> str:
    from colibri_protocol.settings import SETTINGS

    return SETTINGS[name].env[0]


def _named(tables: object, name: str) -> Iterator[str]:
    """Yield every text of a name in a configuration, of profiles that were not chosen too."""
    if isinstance(tables, dict):
        for key, value in tables.items():
            if key == name and isinstance(value, str):
                yield value
            else:
                yield from _named(value, name)
