"""`coli pull` that is ended while pip is at work leaves neither processes nor files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def descendants(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ended_pull_cleans_up(coli: CommandLine, how: signal.Signals, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        coli.variables |= {
            "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
            "PIP_CONFIG_FILE": os.devnull,
        }
        process = coli.start("pull", "smollm2")
        silent.settimeout(30)
        connection, _ = silent.accept()  # pip asks, and gets no answer
        children = descendants(process.pid)
        assert children
        process.send_signal(how)
        _, stderr = process.communicate(timeout=20)
        connection.close()
    assert process.returncode == code
    assert b"Traceback" not in stderr
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{child}") for child in children):  # noqa: PTH110
        assert time.monotonic() < deadline
        time.sleep(0.05)
    store = coli.home / "data" / "colibri"
    assert list((store / "wheels").iterdir()) == []
    assert [path.name for path in (store / "models").iterdir()] == [".smollm2.lock"]
    assert coli.run("list").returncode == 0
