"""Servers for real clients, and real clients as processes that are told to reach nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.agent_engine import write_executable
from tests.fakes.command_line import ROOT, CommandLine

FOLDER: Final = Path(os.environ.get("COLI_CLIENTS") or ROOT / "build" / "clients")
PROGRAMS: Final = Path(__file__).parent / "programs"
# Clients that honour proxies meet a port where nobody listens when they try to leave the machine;
# the opt-outs of each are in its own test.
NOWHERE: Final = "http://127.0.0.1:9"
FENCE: Final = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "http_proxy": NOWHERE,
    "https_proxy": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "DO_NOT_TRACK": "1",
}


Step = dict[str, Any]


@dataclass
class Served:
    """A running `coli serve`.

    Args:
        url: Where it listens.
        log: Its standard error so far.
        model_directory: Of the scripted engine; its record of prompts lies there.
    """

    url: str
    log: Path
    model_directory: Path | None = None

    @property
    def api(self) -> str:
        """Base URL of the OpenAI API."""
        return f"{self.url}/v1"


@contextmanager
def serving(
    command: CommandLine, *arguments: str, model_directory: Path | None = None
) -> Iterator[Served]:
    """Run `coli serve` on a free port until the model answers; leaving ends it."""
    log = command.home / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command.argv, "serve", "--port", "0", "--plain", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=command.environment,
            cwd=command.home,
        )
        try:
            yield Served(_url_of(process, log), log, model_directory)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(1200):
        text = log.read_text()
        found = re.search(r"^  URL +(\S+)", text, re.MULTILINE)
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"coli serve did not get ready:\n{log.read_text()}")


@contextmanager
def serving_agents(home: Path, steps: list[Step], plain: str = "A small edit") -> Iterator[Served]:
    """Run `coli serve` with the scripted engine of agents; see `agent_engine` for `steps`."""
    directory = home / "scripted"
    directory.mkdir()
    script = {"steps": steps, "plain": plain}
    (directory / "agent_engine.json").write_text(json.dumps(script))
    engine = write_executable(home)
    command = CommandLine(home, {"COLI_MODEL": str(directory), "COLI_ENGINE": str(engine)})
    with serving(command, "--kv-slots", "4", model_directory=directory) as served:
        yield served


@dataclass
class Client:
    """A client in an environment of its own.

    Args:
        name: As `scripts/clients` knows it.
        home: Its home directory, otherwise empty.
        variables: Added to its environment.
    """

    name: str
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Where it is installed; skips the test if it is not."""
        root = FOLDER / self.name
        if not (root / ".packages").is_file():
            pytest.skip(f"{self.name} is not installed; run: scripts/clients {self.name}")
        return root

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of whoever runs the tests but the search path."""
        programs = [str(self.root / "bin"), str(self.root / "node_modules" / ".bin")]
        return {
            "PATH": os.pathsep.join([*programs, os.environ.get("PATH", "")]),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "CLIENT_ROOT": str(self.root),
            **FENCE,
            **self.variables,
        }

    def run(
        self, *argv: str, cwd: Path | None = None, timeout_s: float = 480
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to the end; importing alone takes a minute on a busy machine."""
        found = shutil.which(argv[0], path=self.environment["PATH"])
        assert found is not None, argv[0]
        process = subprocess.Popen(
            [found, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=cwd or self.home,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            raise AssertionError(f"{argv[0]} hangs:\n{stdout}\n{stderr}") from None
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def run_checks(client: Client, program: str, served: Served, *arguments: str) -> dict[str, str]:
    """Run a program of checks in a client's environment.

    Returns:
        For each check "ok" or what went wrong.
    """
    runner = "node" if program.endswith(".cjs") else "python"
    done = client.run(runner, str(PROGRAMS / program), served.url, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return results


@dataclass
class Project:
    """A small project that an agent is to change: greet.py says hello, and shall say goodbye."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.file.write_text('def greet():\n    return "hello"\n')
        run = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
            subprocess.run(
                [*run, *words], cwd=self.folder, check=True, env={"HOME": "/nonexistent"}
            )

    @property
    def file(self) -> Path:
        """The file to be changed."""
        return self.folder / "greet.py"

    @property
    def is_changed(self) -> bool:
        """Whether exactly the wanted edit was made."""
        return self.file.read_text() == 'def greet():\n    return "goodbye"\n'


TASK: Final = "Change greet.py so that greet() returns goodbye instead of hello."


def assert_edited(project: Project, done: subprocess.CompletedProcess[str], served: Served) -> None:
    """Check that the edit was made, and show what the agent said if it was not."""
    said = f"{done.stdout}\n{done.stderr}\n---- server ----\n{served.log.read_text()}"
    assert done.returncode == 0, said
    assert project.is_changed, project.file.read_text() + said


def prompts_of(served: Served) -> list[str]:
    """Return every prompt the scripted engine of agents got."""
    assert served.model_directory is not None
    text = (served.model_directory / "prompts.txt").read_text()
    return text.split("\n======== prompt ========\n")[1:]


def grammars_of(served: Served) -> list[dict[str, str]]:
    """Return kind and text of every grammar the scripted engine of agents got."""
    assert served.model_directory is not None
    lines = (served.model_directory / "grammars.txt").read_text().splitlines()
    return [json.loads(line) for line in lines]


@contextmanager
def refusing(served: Served, path: str) -> Iterator[None]:
    """Check that a request to a path within the block is refused with 400, and none ends worse."""
    begin = len(served.log.read_text())
    yield
    log = served.log.read_text()[begin:]
    statuses = re.findall(rf'"POST {path}(?:\?\S*)?" (\d+)', log)
    assert "400" in statuses, log
    assert set(statuses) <= {"200", "400"}, log  # 200: a small one, for a title
