"""`coli chat` on a running server: options arrive, answers stop and go on, views tell the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_serve import serving
from tests.fakes.terminal import Terminal

if TYPE_CHECKING:
    from tests.e2e.test_serve import RunningServer
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


def elsewhere(served: CommandLine) -> CommandLine:
    """The command without a model or engine of its own."""
    return replace(served, variables={})


def attached(served: CommandLine, server: RunningServer, *arguments: str) -> Terminal:
    talk = elsewhere(served)
    argv = [*talk.argv, "chat", "--raw", "--attach", server.url, *arguments]
    return Terminal(argv, talk.environment, talk.home)


def test_the_options_of_generation_reach_the_engine(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        done = elsewhere(served).run(
            "chat", "-q", "--attach", server.url, "--temp", "0", "--ngen", "7",
            stdin="[[options]]\n/set seed 5\n/set top-p 0.5\n[[options]]\n",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["temperature"], first["max_tokens"]) == (0.0, 7)
    assert (second["seed"], second["top_p"], second["max_tokens"]) == (5, 0.5, 7)


def test_an_answer_is_stopped_and_goes_on_and_the_server_lives(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        with attached(served, server) as terminal:
            assert "the server keeps running" in terminal.expect(PROMPT)
            terminal.type("[[endless]] [[slow 0.02]]\r")
            terminal.expect("word3")
            terminal.type("\x03")
            terminal.expect("stopped; /more continues")
            terminal.expect(PROMPT)
            terminal.type("[[prompt]]\r")
            assert "assistant\nword0 word1" in terminal.expect("tok/s")
            terminal.type("/exit\r")
            assert terminal.wait() == 0
        assert server.process.poll() is None


def test_views_show_what_the_server_tells(served: CommandLine) -> None:
    with serving(served, "--kv-slots", "2") as server:
        server.wait_for("ready")
        done = elsewhere(served).run(
            "chat", "--attach", server.url,
            stdin="[[reply one]]\n/tiers\n/experts\n/phases\n/queue\n/model\n/model nope\n",
        )  # fmt: skip
        with server.client() as client:
            health, profile = client.get("/health").json(), client.get("/profile").json()
    tiers, turn = health["tiers"], profile["turns"][-1]
    assert f"= RAM {tiers['ram']} experts {tiers['ram_gb']:.1f} GB" in done.stderr
    assert f"disk {tiers['disk']} experts" in done.stderr
    assert "0 ░▒▒░\n1 ▒▒░▒" in done.stderr
    assert f"{turn['prompt_tokens']} → {turn['completion_tokens']} tokens" in done.stderr
    assert f"queued 0/{health['scheduler']['max_queue']} · completed 1" in done.stderr
    assert sum(line.endswith("free") for line in done.stderr.splitlines()) == 2
    assert "does not serve 'nope'" in done.stderr


def test_a_chat_moves_to_a_server_and_survives_its_end(served: CommandLine) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        argv = [*served.argv, "chat", "--raw", "--no-attach"]
        with Terminal(argv, served.environment, served.home) as terminal:
            terminal.expect(PROMPT)
            terminal.type("[[reply at home]]\r")
            terminal.expect("tok/s")
            terminal.type(f"/attach {server.url}\r")
            terminal.expect("the conversation stays")
            terminal.type("[[prompt]]\r")
            assert "assistant\nat home<|im_end|>" in terminal.expect("tok/s")
            server.end()
            terminal.expect(PROMPT)
            terminal.type("lost\r")
            terminal.expect("/retry sends it once more")
            terminal.expect(PROMPT)
            terminal.type("/show\r")
            terminal.expect("messages            2")
            terminal.type("/exit\r")
            assert terminal.wait() == 0
