"""Logging of the command line: human lines on standard error, levels by `-v`.

The engine's own lines come through the logger `colibri_cli.engine`; its errors, warnings and
notices are shown at any verbosity. Prompts and answers have loggers of their own, which no
verbosity turns on: they hold what people said.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINE_LOGGER: Final = "colibri_cli.engine"
ANSWER_LOGGER: Final = "colibri_cli.content.answers"
PROMPT_LOGGER: Final = "colibri_cli.content.prompts"
NOTICE: Final = 25  # what the engine wants seen, and that is no warning
_MAX_WAITING: Final = 1000  # lines; whatever says more is heard at once
_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class _ScreenLines(logging.StreamHandler[TextIO]):
    """Writes to standard error; while an answer is being shown there, lines wait for its end."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[logging.LogRecord] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, now or later."""
        if self._waiting is None or len(self._waiting) >= _MAX_WAITING:
            super().emit(record)
        else:
            self._waiting.append(record)

    def hold(self) -> None:
        """Let lines wait, if there is a terminal that they would be seen on."""
        if self.stream.isatty():
            self._waiting = []

    def let_go(self) -> None:
        """Write the lines that wait."""
        waiting, self._waiting = self._waiting, None
        for record in waiting or ():
            super().emit(record)


@contextmanager
def lines_wait() -> Iterator[None]:
    """Keep log lines out of what is shown on the terminal meanwhile; they come behind it."""
    handlers = logging.getLogger("colibri_cli").handlers
    screens = [handler for handler in handlers if isinstance(handler, _ScreenLines)]
    for screen in screens:
        screen.hold()
    try:
        yield
    finally:
        for screen in screens:
            screen.let_go()


def configure_logs(verbosity: int, content: int = 0) -> None:
    """Set up logging.

    Args:
        verbosity: 0 warnings, 1 information and all engine lines, 2 everything but content. The
            engine's lines are kept for crash reports in any case.
        content: 1 answers, 2 prompts too.
    """
    for needed, name in enumerate((ANSWER_LOGGER, PROMPT_LOGGER), 1):
        level = logging.DEBUG if content >= needed else logging.WARNING
        logging.getLogger(name).setLevel(level)
    root = logging.getLogger("colibri_cli")
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    root.setLevel(level)
    root.propagate = False
    logging.addLevelName(NOTICE, "NOTICE")
    logging.getLogger(ENGINE_LOGGER).setLevel(min(level, NOTICE))
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = _ScreenLines()
    handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
    root.addHandler(handler)


def add_log_file(path: Path) -> None:
    """Write everything that is logged into a file too; it is appended to.

    Raises:
        OSError: the file cannot be written.
    """
    # With `--debug` it holds what users wrote and were answered.
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    logging.getLogger("colibri_cli").addHandler(handler)
