"""`coli ps` and `coli stop`: which servers run, and ending exactly the one that is meant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.scripted_upstream import ScriptedUpstream
from tests.fakes.scripted_upstream import running as upstream_running
from tests.fakes.terminal import Terminal

pytestmark = pytest.mark.e2e


def started(coli: CommandLine, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    process = coli.start("serve", "--port", "0", *options)
    assert process.stderr is not None
    line = ""
    while "listening on" not in line:
        line = process.stderr.readline().decode()
        assert line, "the server ended"
    port = int(line.partition("listening on http://127.0.0.1:")[2].partition(";")[0])
    while "ready:" not in line:
        line = process.stderr.readline().decode()
        assert line, "the server ended"
    return process, port


@pytest.fixture
def running(served: CommandLine) -> Iterator[list[subprocess.Popen[bytes]]]:
    served.variables["XDG_RUNTIME_DIR"] = str(served.home / "run")
    (served.home / "run").mkdir(mode=0o700)
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def servers(coli: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(coli.run("ps", "--json").stdout)["servers"]
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_nothing_runs(served: CommandLine) -> None:
    served.variables["XDG_RUNTIME_DIR"] = str(served.home / "run")
    done = served.run("ps")
    assert (done.returncode, done.stdout) == (0, "")
    assert "coli serve" in done.stderr
    done = served.run("stop", "--port", "4711")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing runs on port 4711" in done.stderr


def test_the_named_server_and_its_engine_are_ended_and_no_other(
    served: CommandLine, running: list[subprocess.Popen[bytes]]
) -> None:
    (first, port), (second, other) = started(served), started(served)
    running += [first, second]
    assert [row["port"] for row in servers(served)] == sorted([port, other])
    row = next(row for row in servers(served) if row["port"] == port)
    assert (row["pid"], row["state"], row["slots_active"]) == (first.pid, "ok", 0)

    would = json.loads(served.run("stop", "--port", str(port), "--dry-run", "--json").stdout)
    (engine,) = would["servers"][0]["engines"]
    assert would["servers"][0]["outcome"] == "would end"
    assert is_alive(first.pid)
    assert is_alive(engine)

    done = served.run("stop", "--port", "1")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"`coli stop --port {port}`" in done.stderr
    assert f"`coli stop --port {other}`" in done.stderr
    done = served.run("stop", "--port", str(port))
    assert done.returncode == 0
    assert f"ended: server {first.pid}" in done.stdout
    assert f"ended: engine {engine}" in done.stdout
    first.wait(timeout=5)
    assert not is_alive(engine)
    assert second.poll() is None
    assert [row["port"] for row in servers(served)] == [other]
    assert "nothing runs" in served.run("stop", "--port", str(port)).stderr


def test_in_front_of_another_server_the_model_is_named_and_no_memory(
    served: CommandLine, running: list[subprocess.Popen[bytes]]
) -> None:
    with upstream_running(ScriptedUpstream()) as upstream:
        front = replace(served, variables={"XDG_RUNTIME_DIR": served.variables["XDG_RUNTIME_DIR"]})
        running.append(started(front, "--upstream", upstream.url)[0])
        (row,) = servers(front)
        assert (row["model"], row["rss_gb"]) == ("scripted", None)
        assert " - " in front.run("ps").stdout


def test_one_that_does_not_listen_to_reason_is_killed_with_its_engine(
    served: CommandLine, running: list[subprocess.Popen[bytes]]
) -> None:
    process, port = started(served)
    running.append(process)
    (engine,) = json.loads(served.run("stop", "--all", "--dry-run", "--json").stdout)["servers"][0][
        "engines"
    ]
    process.send_signal(signal.SIGSTOP)
    done = served.run("stop", "--port", str(port), "--timeout", "0.3")
    assert f"killed: server {process.pid}" in done.stdout
    assert process.wait(timeout=5) == -signal.SIGKILL
    for _ in range(100):
        if not is_alive(engine):
            return
        time.sleep(0.05)
    pytest.fail("the engine lives on")


def test_a_file_of_a_dead_server_or_of_another_process_is_cleaned_away(
    served: CommandLine,
) -> None:
    folder = served.home / "run" / "colibri"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)  # else it is not trusted
    served.variables["XDG_RUNTIME_DIR"] = str(folder.parent)
    body = {"pid": os.getpid(), "url": "http://127.0.0.1:1", "model": "m", "started": 1.0}
    (folder / "serve-1.json").write_text(json.dumps({**body, "process_started": 1}))
    (folder / "serve-2.json").write_text(json.dumps({**body, "pid": 2**22 + 1}))
    (folder / "serve-3.json").write_text("{")
    assert servers(served) == []
    assert [file.name for file in folder.iterdir()] == ["serve-3.json"]


def test_top_shows_what_the_server_says(
    served: CommandLine, running: list[subprocess.Popen[bytes]]
) -> None:
    process, port = started(served)
    running.append(process)
    body = json.loads(served.run("top", "--json").stdout)
    assert body["url"] == f"http://127.0.0.1:{port}"
    assert body["health"]["scheduler"]["completed"] == 0
    for width in (80, 40):
        plain = {"NO_COLOR": "1", "TERM": "dumb", "LANG": "C"} if width == 40 else {}
        served.variables |= {**plain, "COLUMNS": str(width)}
        done = served.run("top", "--once")
        assert done.returncode == 0
        assert "queued 0/8" in done.stdout
        assert "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= width


def test_top_in_a_terminal_ends_with_q_and_restores_the_screen(
    served: CommandLine, running: list[subprocess.Popen[bytes]]
) -> None:
    process, port = started(served)
    running.append(process)
    argv = [*served.argv, "top", "--url", f"http://127.0.0.1:{port}", "--interval", "0.3"]
    with Terminal(argv, served.environment, served.home) as terminal:
        terminal.expect("q quit")
        terminal.type("p")
        terminal.expect("paused")
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.raw.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


def test_top_without_a_server_says_so(served: CommandLine) -> None:
    served.variables["XDG_RUNTIME_DIR"] = str(served.home / "run")
    done = served.run("top", "--once")
    assert (done.returncode, done.stdout) == (5, "")
    assert "coli serve" in done.stderr
    done = served.run("top", "--url", "http://127.0.0.1:1", "--once")
    assert (done.returncode, done.stdout) == (5, "")
    assert "http://127.0.0.1:1" in done.stderr
    assert served.run("top", "--url", "file:///etc/passwd").returncode == 5


@pytest.mark.parametrize("arguments", [("--port", "0"), ("--port", "x"), ("--timeout", "-1")])
def test_wrong_numbers_are_refused(coli: CommandLine, arguments: tuple[str, str]) -> None:
    done = coli.run("stop", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert arguments[0] in done.stderr
