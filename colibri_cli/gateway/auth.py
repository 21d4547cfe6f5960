"""API keys: named, several, compared in constant time. Knows no HTTP but two header names.

Keys come as text from the environment or from a file, never from the command line, and appear in
no message, log or `repr`.
"""

from __future__ import annotations

import hmac
import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from colibri_protocol.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEY: Final = re.compile(r"[\x21-\x7e]+")  # what fits into a header and into one word of a file
_MAX_FILE_BYTES: Final = 64 * 1024


class ApiKeys:
    """The keys of a server; without any, everybody is let in.

    Args:
        keys: Name → key.
    """

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        # Digests have one length, so that the comparison tells nothing about a key's.
        self._digests = {name: _digest(key.encode()) for name, key in (keys or {}).items()}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(self._digests)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the keys."""
        return tuple(self._digests)

    def identify(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the key that a request shows, or None for no or a wrong one.

        Args:
            headers: Names in lower case; values as latin-1, so that any byte has a character.
        """
        found = None
        for shown in _shown_keys(headers):
            digest = _digest(shown)
            for name, right in self._digests.items():  # all of them: the time tells nothing
                if hmac.compare_digest(digest, right):
                    found = found or name
        return found


def load_keys(text: str | None, file: Path | None = None) -> ApiKeys:
    """Return the keys of an environment variable and of a file.

    Each entry is `KEY` or `NAME:KEY`; entries are separated by commas or line ends, and in a file
    a line that begins with `#` is a comment.

    Raises:
        SettingsError: an entry cannot be a key, or the file cannot be read or holds none.
    """
    keys = _parse(text or "", "COLI_API_KEY")
    if file is not None:
        from_file = _parse(_read(file), str(file))
        if not from_file:
            raise _error("holds no key", str(file))
        for name, key in from_file.items():
            if keys.setdefault(name, key) != key:
                raise _error(f"a second key has the name {name!r}", str(file))
            if list(keys.values()).count(key) > 1:
                raise _error(f"the key of the name {name!r} has another name too", str(file))
    return ApiKeys(keys)


def _parse(text: str, source: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [entry.strip() for line in lines for entry in line.split(",")]
    keys: dict[str, str] = {}
    for entry in filter(None, entries):
        name, colon, key = entry.partition(":")
        if colon and not key.strip() and _NAME.fullmatch(name.strip()):
            # a variable that was not set must not leave a key that everybody can guess
            raise _error(f"the key of the name {name.strip()!r} is empty", source)
        if not (colon and key.strip() and _NAME.fullmatch(name.strip())):
            name, key = f"key{len(keys) + 1}" if keys else "default", entry
        name, key = name.strip(), key.strip()
        if not _KEY.fullmatch(key):
            raise _error("a key may hold visible ASCII characters only", source)
        if name in keys:
            raise _error(f"two keys have the name {name!r}", source)
        if key in keys.values():
            raise _error(f"the key of the name {name!r} has another name too", source)
        keys[name] = key
    return keys


def _read(file: Path) -> str:
    try:
        # A pipe nobody writes to is empty, instead of holding up the start without end.
        with open(file, "rb", opener=_open_at_once) as handle:
            data = handle.read(_MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise _error(f"cannot be read ({exc.strerror})", str(file)) from exc
    if len(data) > _MAX_FILE_BYTES:
        raise _error(f"is larger than {_MAX_FILE_BYTES} bytes", str(file))
    return data.decode("utf-8-sig", "replace")


def _open_at_once(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)  # who writes to a pipe may take a moment
    return descriptor


def _error(problem: str, source: str) -> SettingsError:
    return SettingsError(f"{source}: {problem}", setting="api_key", source=source)


def _shown_keys(headers: Mapping[str, str]) -> list[bytes]:
    shown = []
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        shown.append(credentials.strip())
    if own := headers.get("x-api-key", "").strip():
        shown.append(own)
    return [key.encode("latin-1", "replace") for key in shown]


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()
