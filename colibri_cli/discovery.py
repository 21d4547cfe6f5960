"""Which commands there are, from file names alone: nothing is imported to find out."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Final

# What fingers know from other programs; neither listed nor completed.
SHORT_NAMES: Final = {"ls": "list"}


def command_names() -> list[str]:
    """Return the names of all commands."""
    folder = Path(__file__).with_name("commands")
    found = pkgutil.iter_modules([str(folder)])
    names = (module.name for module in found if not module.name.startswith("_"))
    return sorted(name.replace("_", "-") for name in names)


def module_of(command: str) -> str:
    """Return the module of a command."""
    return f"colibri_cli.commands.{command.replace('-', '_')}"
