"""Files that go along with a message, as text: read, checked, refused by name."""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path
from typing import Final

from colibri_cli.chat_log.records import Attachment
from colibri_cli.errors import UsageError
from colibri_protocol.errors import reason_of

MAX_BYTES: Final = 1 << 20  # about 300,000 tokens: more than most contexts hold
_REMEDY: Final = "name a text file that you may read"
_MENTION: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')


def read_file(name: str) -> Attachment:
    """Read a text file.

    Raises:
        UsageError: it is none, or it is too large.
    """
    given = name.strip().strip("\"'")
    if not given:
        raise UsageError("name the file: /file PATH")
    try:
        path = Path(given).expanduser()
        if not path.exists():
            raise UsageError(f"there is no file {given!r}", hint=_REMEDY)
        if not path.is_file():
            raise UsageError(f"{given!r} is not a file", hint=_REMEDY)
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(
                f"{given!r} has {size:,} bytes, more than the {MAX_BYTES:,} that can go along",
                hint="attach a part of it",
            )
        data = path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # the last: a home of nobody
        raise UsageError(f"{given!r} cannot be read ({reason_of(error)})", hint=_REMEDY) from error
    mime, _ = mimetypes.guess_type(path.name)
    return attachment_of(given, data, mime or "")


def attachment_of(name: str, data: bytes, mime: str) -> Attachment:
    """Return what goes along, under its name.

    Raises:
        UsageError: it is no text.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name!r} is not text in UTF-8 (byte {error.start})", hint="only text can go along"
        ) from error
    if "\0" in text:
        raise UsageError(f"{name!r} is not text", hint="only text can go along")
    return Attachment(name, text, mime.partition(";")[0].strip() or "text/plain")


def mentioned_files(text: str) -> list[Attachment]:
    """Return the files a message names as `@path`, each once.

    A word that names no file is just a word: an address, a name.

    Raises:
        UsageError: a file that is named cannot go along.
    """
    found: dict[str, Attachment] = {}
    for mention in _MENTION.finditer(text):
        name = mention[1] or mention[2].rstrip(".,;:!?)")
        try:
            is_file = Path(name).expanduser().is_file()
        except (OSError, ValueError, RuntimeError):
            continue
        if is_file and name not in found:
            found[name] = read_file(name)
    return list(found.values())
