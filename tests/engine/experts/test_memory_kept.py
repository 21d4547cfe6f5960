"""A process whose model is larger than its memory stays within it, and gives the same tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colibri_engine.fixtures.geometry import build_config
from colibri_engine.fixtures.writing import write_fixture

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[3]
MB = 1_000_000
MARGIN = 1.03

# Answers two prompts at once and tells the ids and the largest memory it ever had.
PROGRAM = """
import json, re, sys
from pathlib import Path
import numpy as np
from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_protocol.messages import Finished, RequestOptions, SubmitExtended, TokenLogprobs

engine = startup.load(read_config(())).engine
tokens = int(sys.argv[1])
for number in (1, 2):
    options = RequestOptions(max_tokens=tokens, ignore_eos=True, temperature=0.0, logprobs=0)
    prompt = np.arange(300 * number, 300 * number + 90, dtype=np.int32)
    engine.submit(SubmitExtended(number, -1, options, ()), prompt)
ids, done = {1: [], 2: []}, []
while not engine.is_idle:
    for message in engine.step():
        if isinstance(message, TokenLogprobs):
            ids[message.id].append(message.token_id)
        elif isinstance(message, Finished):
            done.append(message.completion_tokens)
# Not ru_maxrss: that begins with the size of the process this one was started by.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
report = engine.report()["experts"]
engine.close()
print(json.dumps({"ids": ids, "done": done, "peak": peak, "experts": report}))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "bench"
    write_fixture(directory, build_config("bench", 5, 128), "int4-g128", lambda *_: None)
    return directory


def run(model: Path, tokens: int, **settings: str) -> Any:  # noqa: ANN401 - what the program prints
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT / 'engine'}:{':'.join(sys.path)}",
        "SNAP": str(model),
        "COLI_CTX": "1024",
        "COLI_KV_SLOTS": "2",
        "COLI_KV_SAVE": "0",
        "COLI_USAGE_SAVE": "0",
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tokens)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_memory_is_never_above_the_budget_by_more_than_the_margin(model: Path) -> None:
    experts = 4 * 128 * 847_872
    budget = 480 * MB
    assert experts + 256 * MB > 1.4 * budget
    limited = run(model, 250, COLI_RAM_GB=str(budget / 1e9))
    assert limited["done"] == [250, 250]
    assert limited["experts"]["misses"] > 100
    assert limited["peak"] <= budget * MARGIN
    free = run(model, 250)
    assert free["experts"] is None  # everything was in memory
    assert limited["ids"] == free["ids"]
