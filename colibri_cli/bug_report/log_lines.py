"""The end of a log file, without what people said and were answered."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from colibri_cli.logs import ANSWER_LOGGER, PROMPT_LOGGER

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINES: Final = 300
_MAX_BYTES: Final = 512 * 1024
_BEGIN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+ +([\w.]+): ")
_CONTENT: Final = frozenset({ANSWER_LOGGER, PROMPT_LOGGER})


def last_lines(path: Path, *, has_content: bool) -> list[str]:
    """Return the last lines of a log file.

    Args:
        path: The file.
        has_content: Prompts and answers, which `--debug` logs, stay in.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would keep whoever opens it waiting
        raise OSError(0, "it is no file")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MAX_BYTES))
        lines = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    if size > _MAX_BYTES:  # the first one has lost its beginning, and with it who said it
        lines = _from_a_beginning(lines[1:])
    kept = lines if has_content else _without_content(lines)
    return kept[-MAX_LINES:]


def _from_a_beginning(lines: list[str]) -> list[str]:
    for number, line in enumerate(lines):
        if _BEGIN.match(line):
            return lines[number:]
    return []


def _without_content(lines: list[str]) -> list[str]:
    """Leave out records of content, over all their lines."""
    kept, is_content = [], False
    for line in lines:
        if found := _BEGIN.match(line):
            is_content = found[1] in _CONTENT
        if not is_content:
            kept.append(line)
    return kept
