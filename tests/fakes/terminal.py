"""A pseudo-terminal with a program in it: type, wait for what appears, resize."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")
_CURSOR_QUESTION = b"\x1b[6n"


class Terminal:
    """Runs a program on a terminal of its own; answers where the cursor is when asked."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads
        )
        os.close(slave)
        self.raw = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that appeared, without escape sequences."""
        return _ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def paste(self, text: str) -> None:
        """Paste as terminals do that bracket pasted text."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def expect(self, wanted: str, timeout_s: float = 20) -> str:
        """Wait until text appears that has not been waited for; returns all after the last wait."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.text.find(wanted, self._seen)
            if found >= 0:
                start, self._seen = self._seen, found + len(wanted)
                return self.text[start : self._seen]
            if not self._read(deadline):
                raise AssertionError(f"{wanted!r} did not appear in {self.text[self._seen :]!r}")

    def wait(self, timeout_s: float = 20) -> int:
        """Wait for the end of the program; returns its exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read(deadline):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    _seen = 0

    def _read(self, deadline: float) -> bool:
        """Take what there is; False at the end of the program or of the time."""
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not select.select([self._master], [], [], remaining)[0]:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # the other side was closed
            return False
        self.raw += chunk
        for _ in range(chunk.count(_CURSOR_QUESTION)):
            os.write(self._master, b"\x1b[1;1R")
        return bool(chunk)
