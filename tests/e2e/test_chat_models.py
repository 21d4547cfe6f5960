"""`coli chat` and `coli run` with the real engine and real weights."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.terminal import Terminal

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
FRANCE = "What is the capital of France?"


@pytest.fixture
def demo(tmp_path: Path, demo_gguf: Path) -> CommandLine:
    return CommandLine(tmp_path, {"COLI_MODEL": str(demo_gguf), "COLI_TEMP": "0"})


@pytest.fixture
def smollm2(tmp_path: Path, smollm2_gguf: Path) -> CommandLine:
    return CommandLine(tmp_path, {"COLI_MODEL": str(smollm2_gguf), "COLI_TEMP": "0"})


def engine_pid(coli_pid: int) -> int:
    """Process id of the only child."""
    (child,) = Path(f"/proc/{coli_pid}/task/{coli_pid}/children").read_text().split()
    return int(child)


def test_the_demo_says_paris(demo: CommandLine) -> None:
    done = demo.run("run", FRANCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Paris" in done.stdout


def test_smollm2_says_paris(smollm2: CommandLine) -> None:
    assert "Paris" in smollm2.run("run", FRANCE).stdout


def test_the_demo_is_ready_soon(demo: CommandLine) -> None:
    done = demo.run("chat", stdin=f"{FRANCE}\n")
    assert "Paris" in done.stdout
    ready = re.search(r"ready in ([0-9.]+) s", done.stderr)
    assert ready is not None
    assert float(ready[1]) < 8  # 1 s on an idle machine; tests share theirs


def test_an_option_the_engine_refuses_is_named(demo: CommandLine) -> None:
    done = demo.run("run", "--expert-topk", "99", "hi")
    assert done.returncode in {2, 3}
    assert "99" in done.stderr


def test_the_context_given_is_kept(demo: CommandLine) -> None:
    done = demo.run("chat", "--ctx", "100", stdin=f"{'word ' * 110}\n{FRANCE}\n")
    assert "context 100" in done.stderr
    assert "limit of" in done.stderr
    assert "Paris" in done.stdout


def test_a_damaged_file_is_named_with_the_remedy(demo: CommandLine, demo_gguf: Path) -> None:
    cut = demo.home / "cut.gguf"
    with demo_gguf.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    done = demo.run("run", "--model", str(cut), "hi")
    assert done.returncode == 3
    assert "cut.gguf" in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_seeds_repeat_and_json_tells_the_counts(smollm2: CommandLine) -> None:
    arguments = ("run", "--json", "--temp", "1", "--seed", "7", "--max-tokens", "12", "A story:")
    one, two = (json.loads(smollm2.run(*arguments).stdout) for _ in range(2))
    assert one["text"] == two["text"]
    assert one["usage"]["completion_tokens"] <= 12


def test_an_engine_killed_in_mid_answer_is_explained_and_replaced(demo: CommandLine) -> None:
    with Terminal([*demo.argv, "chat"], demo.environment, demo.home) as terminal:
        terminal.expect(PROMPT, timeout_s=60)
        terminal.type("Tell me a long story about a lighthouse.\r")
        terminal.expect("\n", timeout_s=60)
        deadline = time.monotonic() + 60
        while len(terminal.text) < terminal.text.rfind("lighthouse") + 60:
            assert time.monotonic() < deadline
            terminal.expect(" ", timeout_s=60)
        os.kill(engine_pid(terminal.process.pid), signal.SIGKILL)
        shown = terminal.expect("ready again", timeout_s=60)
        assert "SIGKILL" in shown
        assert "memory" in shown
        terminal.type(f"{FRANCE}\r")
        terminal.expect("Paris", timeout_s=60)
        terminal.expect("tok/s", timeout_s=60)
        terminal.type("/exit\r")
        assert terminal.wait(60) == 6


def test_the_engine_ends_with_a_command_that_is_killed(demo: CommandLine) -> None:
    with Terminal([*demo.argv, "chat"], demo.environment, demo.home) as terminal:
        terminal.expect(PROMPT, timeout_s=60)
        engine = Path(f"/proc/{engine_pid(terminal.process.pid)}")
        terminal.process.kill()
        terminal.process.wait()
        deadline = time.monotonic() + 20
        while engine.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not engine.exists()
