"""What holds words, settings or ways in is its user's alone, whatever the umask allows."""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fakes.command_line import CommandLine


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Return the files and sockets below a folder that others may read or write."""
    return [
        f"{path.relative_to(folder)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in folder.rglob("*")
        if not path.is_dir() and path.stat().st_mode & 0o077
    ]


def changed_by_others(folder: Path) -> list[str]:
    """Return the directories below a folder where others may put files in the place of ours."""
    return [
        f"{path.relative_to(folder)} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in folder.rglob("*")
        if path.is_dir() and path.stat().st_mode & 0o022
    ]


@pytest.mark.usefixtures("_no_umask")
def test_settings_conversations_and_history(served: CommandLine) -> None:
    assert served.run("config", "set", "think", "yes").returncode == 0
    served.run("chat", stdin="[[reply yes]] is this private?\n")
    assert (served.home / "data" / "colibri" / "logs.db").is_file()
    for name in ("config", "data", "state"):
        if (served.home / name).exists():
            assert open_to_others(served.home / name) == []
            assert changed_by_others(served.home / name) == []
            assert not (served.home / name).stat().st_mode & 0o022


@pytest.mark.usefixtures("_no_umask")
def test_the_socket_the_log_and_the_status_of_a_server(served: CommandLine) -> None:
    run = served.home / "run"
    run.mkdir(mode=0o700)
    served.variables["XDG_RUNTIME_DIR"] = str(run)
    place = served.home / "server"
    place.mkdir()
    arguments = ("--uds", str(place / "coli.sock"), "--log-file", str(place / "coli.log"))
    server = served.start("serve", "--plain", "--port", "0", *arguments)
    assert server.stderr is not None
    try:
        while b"ready:" not in (line := server.stderr.readline()):
            assert line, "the server ended"
        names = {path.name for path in place.iterdir()}
        assert names == {"coli.sock", "coli.log"}
        assert open_to_others(place) == []
        assert [path for path in run.rglob("*") if path.is_file()]
        assert open_to_others(run) == []
        assert changed_by_others(run) == []
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
