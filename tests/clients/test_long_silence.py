"""A prompt that is read for 40 seconds: no SDK gives up, asks again or shows the signs of life.

Settings are each client's own. The engine says nothing between accepting a request and the answer,
not even how far it is.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from colibri_protocol.messages import Word
from tests.clients.client_rig import Client, Served, run_checks, serving
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_engine import WORDS, write_executable

SILENCE_S: Final = 40
PROMPT: Final = f"[[silent {SILENCE_S}]] [[reply ok]]"
# program, where it runs, streams and whole answers it asks for
PROGRAMS: Final = (
    ("silence_openai.py", "openai-python", 5),
    ("silence_anthropic.py", "anthropic-python", 3),
    ("silence_openai.cjs", "openai-js", 3),
    ("silence_anthropic.cjs", "anthropic-js", 2),
)
BODIES: Final[dict[str, dict[str, object]]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/completions": {"prompt": PROMPT},
    "/v1/messages": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 9},
    "/v1/responses": {"input": PROMPT},
}
MAX_GAP_S: Final = 15.0


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Served]:
    """The scripted engine, without reports of progress, with a slot for each request at once."""
    directory = tmp_path / "silent"
    directory.mkdir()
    words = [word for word in WORDS if word is not Word.PROGRESS]
    config = {"num_slots": 16, "words": words}
    (directory / "fake_engine.json").write_text(json.dumps(config))
    engine = write_executable(tmp_path)
    command = CommandLine(tmp_path, {"COLI_MODEL": str(directory), "COLI_ENGINE": str(engine)})
    with serving(command, "--kv-slots", "16", model_directory=directory) as served:
        yield served


def test_sdks_wait_through_it(tmp_path: Path, silent: Served) -> None:
    def run(program: str, name: str) -> dict[str, str]:
        home = tmp_path / program
        home.mkdir()
        client = Client(name, home, {"PROMPT": PROMPT})
        return run_checks(client, program, silent)

    for _, name, _ in PROGRAMS:
        _ = Client(name, tmp_path).root  # skips if it is not there
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(run, program, name) for program, name, _ in PROGRAMS]
        assert [done.result() for done in running] == [{"every_stream": "ok"}] * len(PROGRAMS)
    with urllib.request.urlopen(f"{silent.url}/health") as answer:
        admitted = json.load(answer)["scheduler"]["admitted"]
    assert admitted == sum(count for _, _, count in PROGRAMS)  # nobody asked twice


@pytest.mark.timed
def test_something_comes_every_few_seconds(silent: Served) -> None:
    def longest_gap(path: str) -> float:
        body = json.dumps({**BODIES[path], "stream": True}).encode()
        latest, longest = time.monotonic(), 0.0
        with urllib.request.urlopen(urllib.request.Request(silent.url + path, body)) as answer:
            while answer.readline():
                now = time.monotonic()
                latest, longest = now, max(longest, now - latest)
        return longest

    with ThreadPoolExecutor() as pool:
        gaps = dict(zip(BODIES, pool.map(longest_gap, BODIES), strict=True))
    print(gaps)
    assert max(gaps.values()) <= MAX_GAP_S, gaps
