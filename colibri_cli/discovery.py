"""Which commands there are, from file names alone: nothing is imported to find out."""

from __future__ import annotations

import pkgutil
from pathlib import Path


def command_names() -> list[str]:
    """Return the names of all commands."""
    folder = Path(__file__).with_name("commands")
    found = pkgutil.iter_modules([str(folder)])
    return sorted(module.name for module in found if not module.name.startswith("_"))
