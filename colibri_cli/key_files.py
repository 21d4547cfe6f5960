"""What is secret: settings that hold keys, and whether others can read the files of keys."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_protocol.settings import OriginKind

if TYPE_CHECKING:
    from colibri_protocol.settings import ResolvedSettings, SettingValue

KEYS: Final = ("api_key", "upstream_api_key")
MASK: Final = "********"
_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH
# Secrets in texts that are none as a whole: of a URL what stands before the host, and of a line
# of arguments what follows an option named for a key, a token or a password.
_IN_TEXTS: Final = {
    "upstream": re.compile(r"(?P<kept>//)[^/@]*(?=@)"),
    "engine_args": re.compile(
        r"(?P<kept>--[\w.-]*(?:key|token|password|secret)(?:=|\s+))"
        r"(?:\"[^\"]*\"?|'[^']*'?|\S+)(?:\s+(?!-)\S+)*",
        re.IGNORECASE,
    ),
}


def shown_value(name: str, value: SettingValue) -> SettingValue:
    """Return a setting's value as others may see it."""
    if name in KEYS and value is not None:
        return MASK
    if name in _IN_TEXTS and isinstance(value, str):
        return _IN_TEXTS[name].sub(rf"\g<kept>{MASK}", value)
    return value


def key_files(settings: ResolvedSettings) -> list[Path]:
    """Return the file of keys, and the configuration files that give one."""
    named = settings.text("api_key_file")
    found = [] if named is None else [Path(named).expanduser()]
    for name in KEYS:
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
