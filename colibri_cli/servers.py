"""Running servers of this user: found by their status files, asked over HTTP, ended by signals.

A status file names a process by id and start time, so a later process of the same id is never taken
for it. Files of servers that are gone are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from colibri_cli import paths
from colibri_cli.errors import ServerRefused, ServerUnreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_BYTES: Final = 64 * 1024
_MAX_ANSWER: Final = 64 * 1024 * 1024
_ASK_S: Final = 2.0
_POLL_S: Final = 0.05
_PORT_MARK: Final = b"COLI_SERVE_PORT="


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server whose process is alive.

    Args:
        pid: Its process id.
        url: Where it listens.
        model: Served name.
        started: Unix seconds of its start.
        file: Its status file.
    """

    pid: int
    url: str
    model: str
    started: float
    file: Path

    @property
    def port(self) -> int | None:
        """Its TCP port; None if it listens on a socket file only."""
        return urlsplit(self.url).port if self.url.startswith("http") else None


def running_servers() -> list[RunningServer]:
    """Return this user's servers by port; what dead ones left is removed."""
    try:
        files = sorted(paths.run_dir().glob("serve-*.json"))
    except OSError:
        return []
    found = [server for file in files if (server := _read(file)) is not None]
    return sorted(found, key=lambda server: (server.port or 0, server.pid))


def only_server() -> str:
    """Return the address of the one server that runs here.

    Raises:
        ServerUnreachable: there is none.
        UsageError: there are several.
    """
    found = [server for server in running_servers() if server.port is not None]
    if not found:
        raise ServerUnreachable(
            "no server runs here", hint="`coli serve` starts one, or name --url"
        )
    if len(found) > 1:
        urls = ", ".join(server.url for server in found)
        raise UsageError(f"several servers run here: {urls}", hint="name one with --url")
    return found[0].url


def ask(url: str, path: str, key: str | None = None) -> dict[str, Any]:
    """Return the JSON object a server answers.

    Raises:
        ServerUnreachable: nobody answers there, or not as a server of ours.
        ServerRefused: it wants another key.
    """
    if not _is_address(url):
        raise ServerUnreachable(f"{url!r} is no address of a server", hint="name http://HOST:PORT")
    request = urllib.request.Request(f"{url.rstrip('/')}{path}")  # noqa: S310 - http only
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_S) as answer:
            body = json.loads(answer.read(_MAX_ANSWER))
    except urllib.error.HTTPError as error:
        if error.code in {401, 403}:
            raise ServerRefused(
                f"the server at {url} wants an API key", status=error.code,
                hint="set COLI_API_KEY",
            ) from error  # fmt: skip
        with contextlib.suppress(OSError, ValueError):  # a state that is no success, as /health
            body = json.loads(error.read(_MAX_ANSWER))
            if isinstance(body, dict):
                return body
        raise ServerUnreachable(f"the server at {url} answers {error.code} to {path}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ServerUnreachable(
            f"no server answers at {url} ({reason})", hint="`coli ps` lists running servers"
        ) from error
    if not isinstance(body, dict):
        raise ServerUnreachable(f"the server at {url} is none of ours")
    return body


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def end(server: RunningServer, timeout_s: float) -> str:
    """End a server and its engine; return "ended", or "killed" if it had to be forced.

    Raises:
        PermissionError: it belongs to somebody else.
    """
    engines = list(engine_pids(server.port)) if server.port is not None else []
    how = "ended"
    if not _end_process(server.pid, signal.SIGTERM, timeout_s):
        how = "killed"
        _end_process(server.pid, _kill_signal(), timeout_s)
    for pid in engines:
        if not _wait_for_end(pid, timeout_s):
            _end_process(pid, _kill_signal(), timeout_s)
    server.file.unlink(missing_ok=True)
    return how


def engine_pids(port: int | None) -> Iterator[int]:
    """Yield the engine processes of the server on a port, where the system tells."""
    mark = _PORT_MARK + str(port).encode()
    return _engines(lambda variables: mark in variables)


def engines_of(model: Path) -> Iterator[int]:
    """Yield the engine processes that run a model, whoever started them, where the system tells."""
    places = {b"SNAP=" + os.fsencode(path) for path in (model, model.resolve())}
    return _engines(lambda variables: not places.isdisjoint(variables))


def _engines(is_meant: Callable[[list[bytes]], bool]) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if b"SERVE=1" in variables and is_meant(variables):
                yield int(entry.name)


def _read(file: Path) -> RunningServer | None:
    try:
        with file.open("rb") as opened:
            body = json.loads(opened.read(_MAX_BYTES))
        server = RunningServer(
            int(body["pid"]), str(body["url"]), str(body["model"]), float(body["started"]), file
        )
        ticks = body.get("process_started")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if _is_alive(server.pid) and (ticks is None or start_ticks(server.pid) in {None, ticks}):
        return server
    with contextlib.suppress(OSError):
        file.unlink()
    return None


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in the system's own counting; None where it does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError, IndexError):  # ended, and its parent has not looked yet
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return True


def _end_process(pid: int, number: int, timeout_s: float) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    return _wait_for_end(pid, timeout_s)


def _wait_for_end(pid: int, timeout_s: float) -> bool:
    limit = time.monotonic() + timeout_s
    while _is_alive(pid):
        if time.monotonic() >= limit:
            return False
        time.sleep(_POLL_S)
    return True


def _kill_signal() -> int:
    return getattr(signal, "SIGKILL", signal.SIGTERM)
