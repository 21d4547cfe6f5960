"""The demo behind the server says the same with no drafts, with 1 and 3 tokens, and as usual.

Also where a stop text or the limit falls inside a draft, with several conversations at once and
where log-probabilities are told.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_serve import serving
from tests.fakes.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

LINE = "def add_{0}(x):\n    return x + {1}\n\n"
TEXT = LINE.format("one", 1) + LINE.format("two", 2) + "def add_"
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "seed": 11, "frequency_penalty": 0.3},
    "stopped": {"temperature": 0, "stop": ["(x):\n    ret"]},
    "limited": {"temperature": 0, "max_tokens": 7},
    "told": {"temperature": 0, "logprobs": 2, "max_tokens": 24},
}
ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {"COLI_DRAFT": "off"},
    {"COLI_DRAFT": "ngram", "COLI_DRAFT_TOKENS": "1"},
    {"COLI_DRAFT": "ngram", "COLI_DRAFT_TOKENS": "3"},
    {},
)


def answer(client: httpx.Client, options: dict[str, Any]) -> dict[str, Any]:
    body = {"model": "demo", "prompt": TEXT, "max_tokens": 32, **options}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return {name: choice[name] for name in ("text", "finish_reason", "logprobs")}


def answers(demo: Path, directory: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return what the server says to every case: one after the other, then all at once."""
    command = CommandLine(directory, {"COLI_MODEL": str(demo), "COLI_KV_SLOTS": "3", **environment})
    with serving(command, "--model-id", "demo") as server, server.client() as client:
        server.wait_for("ready")
        found = [answer(client, options) for options in CASES.values()]
        with ThreadPoolExecutor(len(CASES)) as pool:
            together = list(pool.map(lambda options: answer(client, options), CASES.values()))
    assert together == found
    return found


def test_drafts_are_not_seen_from_outside(
    demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    said = [
        answers(demo_gguf, tmp_path_factory.mktemp("serve"), environment)
        for environment in ENVIRONMENTS
    ]
    plain = dict(zip(CASES, said[0], strict=True))
    assert plain["stopped"]["finish_reason"] == "stop"
    assert plain["limited"]["finish_reason"] == "length"
    assert len(plain["told"]["logprobs"]["tokens"]) == 24
    assert said[1:] == [said[0]] * 3
