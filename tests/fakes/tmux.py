"""A real terminal program, tmux: what it shows, what scrolled away, and its size changed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self


class Tmux:
    """One program in one window of a tmux server of its own."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        size: tuple[int, int] = (80, 24),
    ) -> None:
        self._socket = str(directory / "tmux.socket")
        exports = [f"{name}={value}" for name, value in environment.items() if name != "TERM"]
        columns, rows = (str(number) for number in size)
        command = shlex.join(["env", "-i", "TERM=screen-256color", *exports, *argv])
        self._run(
            "-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "-c", str(directory),
            f"{command}; echo exit $?; sleep 60",
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run("kill-server", check=False)

    @staticmethod
    def is_here() -> bool:
        """Whether there is a tmux."""
        return shutil.which("tmux") is not None

    @property
    def text(self) -> str:
        """All lines, those that scrolled away first, wrapped ones joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    def type(self, *keys: str) -> None:
        """Press keys, named as tmux names them."""
        self._run("send-keys", *keys)

    def paste(self, text: str, directory: Path) -> None:
        """Paste as a terminal does that brackets what is pasted."""
        path = directory / "pasted"
        path.write_text(text)
        self._run("load-buffer", str(path))
        self._run("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def wait_for(self, wanted: str, timeout_s: float = 30) -> str:
        """Wait until a text stands somewhere; return all."""
        end = time.monotonic() + timeout_s
        while wanted not in (text := self.text):
            assert time.monotonic() < end, f"{wanted!r} did not appear in\n{text}"
            time.sleep(0.1)
        return text

    def _run(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, check=check, timeout=20
        )
        return done.stdout.decode("utf-8", "replace")
