"""`coli chat` without a named server: the one at the usual address is used, or it says why not."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from colibri_cli.backends.attaching import USUAL_URL
from colibri_cli.gateway.listeners import DEFAULT_PORT
from tests.e2e.test_serve import serving
from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal
from tests.fakes.tiny_checkpoint import write_hf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.test_serve import RunningServer

pytestmark = pytest.mark.e2e

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


@dataclass
class Elsewhere(CommandLine):
    """`coli` for which another address is the usual one: that port may be in use here."""

    url: str = ""

    @property
    def argv(self) -> list[str]:
        start = (
            "import sys; from colibri_cli.backends import attaching;"
            f" attaching.USUAL_URL = {self.url!r};"
            " from colibri_cli.main import main; sys.exit(main())"
        )
        return [sys.executable, "-c", start]


def looking_at(served: CommandLine, url: str, **variables: str) -> Elsewhere:
    return Elsewhere(served.home, {**served.variables, **variables}, url)


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    """A command that knows no model and no engine but its own."""
    home = tmp_path / "home"
    home.mkdir()
    return CommandLine(home)


@pytest.fixture
def watched() -> Iterator[socket.socket]:
    """A port on which whoever connects is noticed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_the_usual_address_is_that_of_the_server() -> None:
    assert f"http://127.0.0.1:{DEFAULT_PORT}" == USUAL_URL


def test_a_server_at_the_usual_address_is_talked_to(served: CommandLine) -> None:
    with serving(served, "--model-id", "known") as server:
        server.wait_for("ready")
        talk = replace(looking_at(served, server.url), variables={})  # no model, no engine
        with Terminal([*talk.argv, "chat", "--raw"], talk.environment, talk.home) as terminal:
            banner = terminal.expect(PROMPT)
            assert f"known on the server at {server.url}" in banner
            terminal.type("[[reply from there]]\r")
            assert "from there" in terminal.expect("tok/s")
            terminal.type("/exit\r")
            assert terminal.wait() == 0
        assert answers_of(server) == 1


def answers_of(server: RunningServer) -> int:
    """How many answers the server has given."""
    with server.client() as client:
        return int(client.get("/health").json()["scheduler"]["completed"])


def small_model(command: CommandLine, name: str) -> str:
    """Write a model that our own engine loads, since another engine keeps from looking around."""
    written = write_hf(command.home / name, "glm4_moe")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (written.path / "chat_template.jinja").write_text(template)
    return str(written.path)


def test_without_attaching_nobody_is_asked(coli: CommandLine, watched: socket.socket) -> None:
    watched.settimeout(0)
    talk = looking_at(coli, f"http://127.0.0.1:{watched.getsockname()[1]}")
    words = ("chat", "-q", "--model", small_model(coli, "own"), "--max-tokens", "2")
    done = talk.run(*words, "--no-attach", stdin="hello\n")
    assert done.returncode == 0, done.stderr
    with pytest.raises(BlockingIOError):
        watched.accept()
    done = talk.run(*words, stdin="hello\n")  # it is this port that is looked at
    assert done.returncode == 0, done.stderr
    watched.accept()[0].close()


def test_a_server_with_another_model_is_left_alone_and_that_is_said(
    coli: CommandLine, served: CommandLine
) -> None:
    with serving(served, "--model-id", "known") as server:
        server.wait_for("ready")
        talk = looking_at(coli, server.url)
        words = ("--model", small_model(coli, "own"), "--max-tokens", "2")
        done = talk.run("chat", *words, stdin="hello\n")
        assert done.returncode == 0, done.stderr
        said = f"the server at {server.url} serves known, not own: starting an engine"
        assert said in " ".join(done.stderr.split())
        assert f"`--attach {server.url}`" in done.stderr
        assert answers_of(server) == 0
