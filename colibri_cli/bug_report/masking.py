"""Taking secrets out of what others will read: keys, tokens, passwords, the home directory.

Two ways together: values known to be secret here (of settings, variables, key files, configuration
files) are taken out wherever they stand, and whatever has the form of a secret is taken out too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

MASK: Final = "********"
_LEAST: Final = 4  # a shorter value is a word that stands in many places by chance
_MAX_KEY_FILE: Final = 1024 * 1024
_NAMED_SECRET: Final = (
    r"(?:[\w-]*(?:api[-_]?key|access[-_]?key|auth[-_]?key|private[-_]?key|secret|passw(?:or)?d|"
    r"passphrase|credentials?|cookie|authorization)|"
    r"(?:[\w-]*[-_])?(?:(?<!per[-_ ])token|key|auth|pat))"
)
_SECRET_NAME: Final = re.compile(_NAMED_SECRET, re.IGNORECASE)
_NO_VALUE: Final = re.compile(r"(?:none|null|true|false|\d+|\*+)?", re.IGNORECASE)
_SHAPES: Final = (
    # a private key, over its lines
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
    # the header, to the end of the line or of its quotes
    (re.compile(r"""(?i)((?:proxy-)?authorization["']?\s*[:=]\s*["']?)[^"'\r\n]+"""), r"\1" + MASK),
    (re.compile(r"""(?i)((?:set-)?cookie["']?\s*[:=]\s*["']?)[^"'\r\n]+"""), r"\1" + MASK),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{4,}"), r"\1\2" + MASK),
    # user and password of an address
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/\"'<>]+@"), r"\1" + MASK + "@"),
    # --api-key VALUE, api_key=VALUE, "token": "VALUE"
    (re.compile(rf"(?i)(--{_NAMED_SECRET}(?:\s+|=)[\"']?)[^\s\"',;&]+"), r"\1" + MASK),
    (
        re.compile(rf"(?i)(?<![\w-])({_NAMED_SECRET}[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}}\]]+"),
        r"\1" + MASK,
    ),
    # tokens that are known by their beginning
    (
        re.compile(
            r"\b(?:sk|pk|rk)-[\w-]{8,}|\bhf_\w{8,}|\bgh[opsur]_\w{16,}|\bgithub_pat_\w{16,}"
            r"|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}"
            r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
        ),
        MASK,
    ),
)


class Masker:
    """Takes secrets out of texts and documents.

    Args:
        secrets: Values that are secret here.
        home: Directory that is written as `~`; None changes no paths.
    """

    def __init__(self, secrets: Iterable[str], home: Path | None = None) -> None:
        forms = {form for secret in secrets if len(secret) >= _LEAST for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        homes = {str(home), str(home.resolve())} if home is not None else set()
        named = [re.escape(name) for name in sorted(homes, key=len, reverse=True) if len(name) > 1]
        self._home = re.compile(f"(?:{'|'.join(named)})(?![\\w.-])") if named else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for shape, instead in _SHAPES:
            text = shape.sub(instead, text)
        return self._home.sub("~", text) if self._home is not None else text

    def document(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return plain data without secrets: texts and names in it, and values of such names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self._entry(str(name), value[name]) for name in value}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value

    def _entry(self, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        is_secret = isinstance(value, str) and is_secret_name(name)
        return MASK if is_secret else self.document(value)


def is_secret_name(name: str) -> bool:
    """Whether a setting, variable or header of this name holds a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def secrets_of_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names say that they are secret."""
    for name, value in environ.items():
        if is_secret_name(name) and not _NO_VALUE.fullmatch(value):
            yield from _parts(value)
        yield from _of_address(value)


def secrets_of_tables(tables: object) -> Iterator[str]:
    """Yield the values of secret names in a configuration, however deep."""
    if isinstance(tables, dict):
        for name, value in tables.items():
            if isinstance(value, str) and is_secret_name(name):
                yield from _parts(value)
            elif isinstance(value, str):
                yield from _of_address(value)
            elif is_secret_name(name) and isinstance(value, list):
                yield from (part for one in value if isinstance(one, str) for part in _parts(one))
            else:
                yield from secrets_of_tables(value)
    elif isinstance(tables, list):
        for value in tables:
            yield from secrets_of_tables(value)


def secrets_of_file(path: Path) -> Iterator[str]:
    """Yield the keys of a key file; one that cannot be read has none that could come out."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_KEY_FILE).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        yield from _parts(line.lstrip("#").strip())  # a key that was put out of use is one still


def _parts(value: str) -> Iterator[str]:
    """Yield a value, and the keys in it where it is `NAME:KEY,NAME:KEY`."""
    yield value.strip()
    for entry in value.split(","):
        yield entry.strip()
        name, colon, key = entry.partition(":")
        if colon and name.strip():
            yield key.strip()


def _of_address(value: str) -> Iterator[str]:
    """Yield the password of a URL."""
    found = re.search(r"://([^\s/]+)@", value)
    if found is not None:
        yield found[1]
        yield found[1].partition(":")[2]


def _forms(secret: str) -> set[str]:
    """Return how a value may stand in a text: as it is, in JSON, in a URL."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="surrogateescape"),
        quote_plus(secret, errors="surrogateescape"),
    }
