"""Files that hold API keys, and whether others than their owner can read them."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_protocol.settings import OriginKind

if TYPE_CHECKING:
    from colibri_protocol.settings import ResolvedSettings

_KEYS: Final = ("api_key", "upstream_api_key")
_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


def key_files(settings: ResolvedSettings) -> list[Path]:
    """Return the file of keys, and the configuration files that give one."""
    named = settings.text("api_key_file")
    found = [] if named is None else [Path(named).expanduser()]
    for name in _KEYS:
        origin = settings[name].origin
        if origin.kind is OriginKind.CONFIG:  # a profile's name may stand behind it
            found.append(Path(origin.name.partition(" [")[0]).expanduser())
    return list(dict.fromkeys(found))


def exposed_key_files(settings: ResolvedSettings) -> list[str]:
    """Return a warning for each file of keys that others can read, with what to do about it."""
    if os.name == "nt":  # permissions there are not told by these bits
        return []
    return [
        f"{path} holds a key that other users can read: chmod 600 {shlex.quote(str(path))}"
        for path in key_files(settings)
        if _is_exposed(path)
    ]


def _is_exposed(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:  # whoever reads it says what is wrong
        return False
