"""The status file of a running server: who it is, for programs that look for it.

`serve-<port>.json` in the user's run directory, readable by its owner only. It holds no key.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli import paths
from colibri_cli.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

_OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What the file says.

    Args:
        pid: Process id of the server.
        started: Unix seconds of its start.
        url: Where it listens.
        model: Served name.
        socket: Socket file it listens on, or None.
        process_started: Start of the process in the system's own counting, which tells it from a
            later one of the same id; None where the system does not tell.
    """

    pid: int
    started: float
    url: str
    model: str
    socket: str | None = None
    process_started: int | None = None


def own_status(url: str, model: str, socket: str | None) -> ServerStatus:
    """Return the status of this process."""
    pid = os.getpid()
    return ServerStatus(pid, round(time.time(), 3), url, model, socket, _start_ticks(pid))


def write_status(status: ServerStatus, port: int | None) -> Path | None:
    """Write the file and return it; None if there is no place for it, which hurts nobody."""
    directory = paths.run_dir()
    name = f"serve-{port}.json" if port is not None else f"serve-{status.pid}.json"
    path = directory / name
    text = json.dumps(asdict(status)) + "\n"
    try:
        write_whole(path, text, mode=_OWNER_ONLY)
    except OSError:
        return None
    return path


def remove_status(path: Path | None) -> None:
    """Remove the file, unless a later server has written its own there."""
    if path is None:
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid():
            path.unlink(missing_ok=True)


def _start_ticks(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a kernel file
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
