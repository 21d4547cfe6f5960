"""Why an engine process ended, in words a user can act on.

Knows exit codes, signals and the last lines the process wrote; knows no asyncio and no terminal.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass
from typing import Final

from colibri_cli.errors import EngineCrashed

MAX_STDERR_LINES: Final = 50
SHOWN_STDERR_LINES: Final = 6
_MAX_LINE: Final = 2000

_ADVICE: Final = {
    "SIGKILL": "the system may have run out of memory: check the memory budget"
    " (a smaller model, --ctx or fewer slots need less)",
    "SIGSEGV": "this is a bug in native code: please report it with the lines above",
    "SIGABRT": "this is a bug in native code: please report it with the lines above",
    "SIGBUS": "a model file may have been truncated or its disk failed while it was mapped",
    "SIGILL": "the CPU lacks an instruction: try COLI_ISA=scalar",
}


class StderrTail:
    """The last lines of standard error, bounded in number and length."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_STDERR_LINES)

    def add(self, line: bytes) -> str:
        """Keep one line; returns it as text without control characters."""
        decoded = line[:_MAX_LINE].decode("utf-8", "replace").rstrip()
        text = "".join(
            c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in decoded
        )
        if text:
            self._lines.append(text)
        return text

    @property
    def lines(self) -> tuple[str, ...]:
        """All kept lines, oldest first."""
        return tuple(self._lines)


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How the process ended. `return_code` is negative when a signal ended it (POSIX)."""

    return_code: int | None
    stderr_lines: tuple[str, ...]
    problem: str | None = None  # what we noticed first, if it was not the end of the process

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that ended it, or None."""
        if self.return_code is None or self.return_code >= 0:
            return None
        try:
            return signal.Signals(-self.return_code).name
        except ValueError:
            return f"signal {-self.return_code}"

    def describe(self) -> str:
        """Return one line: what ended and how."""
        if self.problem is not None:
            return f"the engine process was ended: {self.problem}"
        if self.signal_name is not None:
            return f"the engine process was ended by {self.signal_name}"
        if self.return_code is None:
            return "the engine process closed its output"
        return f"the engine process ended with exit code {self.return_code}"

    def advice(self) -> str | None:
        """Return what to do, if we know."""
        return _ADVICE.get(self.signal_name or "") if self.problem is None else None

    def explain(self) -> str:
        """Return how it ended, what to do, and its last lines."""
        parts = [self.describe()]
        if advice := self.advice():
            parts.append(f" ({advice})")
        if lines := self.stderr_lines[-SHOWN_STDERR_LINES:]:
            parts.append("; its last lines:\n  " + "\n  ".join(lines) + "\n")
        return "".join(parts)

    def to_error(self) -> EngineCrashed:
        """Return the error that requests in flight get."""
        return EngineCrashed(
            self.describe(),
            exit_code=None if self.signal_name else self.return_code,
            signal=self.signal_name,
            stderr_tail=self.stderr_lines[-SHOWN_STDERR_LINES:],
            hint=self.advice(),
        )
