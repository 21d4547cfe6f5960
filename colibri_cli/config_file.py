"""Changing the user's configuration file: one key at a time, comments kept.

The file holds `[default]`, a table per command over it, `[profile.NAME]`, `[plugins]` and
`[plugins.NAME]`. What is written is checked first, so a file we changed can always be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.config_layers import PROFILES
from colibri_cli.errors import StoreError
from colibri_cli.whole_files import write_whole
from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tomlkit import TOMLDocument

_OWNER_ONLY: Final = 0o600


def user_config_file() -> Path:
    """Return where the user's configuration file is, or would be."""
    return paths.config_dir() / "config.toml"


def set_key(path: Path, table: str | tuple[str, ...], key: str, value: object) -> None:
    """Set one key of a table, which is made if absent; of a table in tables, if several are named.

    Raises:
        SettingsError: the file is no TOML, or has something else where the table should be.
        StoreError: it cannot be written.
    """

    def change(document: TOMLDocument) -> None:
        owner: Any = document
        for name in (table,) if isinstance(table, str) else table:
            owner = _table(owner, path, name)
        owner[key] = value

    _edit(path, change)


def unset_key(path: Path, table: str | tuple[str, ...], key: str) -> bool:
    """Remove one key of a table, as `set_key` names it; False if it was not there.

    Raises:
        SettingsError: the file is no TOML.
        StoreError: it cannot be written.
    """
    found = False

    def change(document: TOMLDocument) -> None:
        nonlocal found
        owner: Any = document
        for name in (table,) if isinstance(table, str) else table:
            owner = owner.get(name) if hasattr(owner, "keys") else None
        if hasattr(owner, "keys") and key in owner:
            found = True
            del owner[key]

    if path.is_file():
        _edit(path, change)
    return found


def _table(owner: Any, path: Path, name: str) -> Any:  # noqa: ANN401 - tomlkit's
    import tomlkit

    if name not in owner:
        text = owner.as_string()
        if isinstance(owner, tomlkit.TOMLDocument) and text and not text.endswith("\n\n"):
            owner.add(tomlkit.nl())
        owner.add(name, tomlkit.table(is_super_table=name == PROFILES))
    table = owner[name]
    if not hasattr(table, "keys"):
        raise SettingsError(
            f"{path}: {name!r} is not a table", setting=name, source=str(path), hint="edit the file"
        )
    return table


def _edit(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        document = tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"{path}: is not valid TOML ({error})",
            setting="config",
            source=str(path),
            hint="correct it with `coli config edit`",
        ) from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    change(document)
    _write(path, tomlkit.dumps(document))


def _write(path: Path, text: str) -> None:
    """Replace the file at once; a new one is readable by its owner only, as it may hold keys."""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else _OWNER_ONLY
        write_whole(path, text, mode=mode)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
