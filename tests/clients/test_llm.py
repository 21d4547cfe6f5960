"""`llm` against the demo, with a file of further models."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.client_rig import Client, Served

MODELS: Final = """
- model_id: colibri
  model_name: demo
  api_base: {api}
  api_key_name: colibri
  supports_schema: true
  supports_tools: true
"""
QUESTION: Final = "What is the capital of France?"
TOOL: Final = 'def city(name: str) -> str:\n    "Tells of a city."\n    return "nice"\n'


@pytest.fixture
def llm(tmp_path: Path, demo: Served) -> Client:
    """`llm` with the settings that docs/clients.md gives."""
    home = tmp_path / "home"
    folder = home / "llm"
    folder.mkdir(parents=True)
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(api=demo.api))
    client = Client("llm", home, {"LLM_USER_PATH": str(folder)})
    assert client.run("llm", "keys", "set", "colibri", "--value", "any").returncode == 0
    return client


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_answers_streamed_and_whole(llm: Client) -> None:
    assert "Paris" in said(llm.run("llm", "-m", "colibri", QUESTION))
    assert "Paris" in said(llm.run("llm", "-m", "colibri", "--no-stream", QUESTION))


def test_a_conversation_goes_on(llm: Client) -> None:
    said(llm.run("llm", "-m", "colibri", QUESTION))
    assert said(llm.run("llm", "-c", "And of Italy?", "-o", "max_tokens", "10"))


def test_a_schema_binds_the_answer(llm: Client) -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        }
    )
    answer = said(llm.run("llm", "-m", "colibri", "--schema", schema, QUESTION))
    assert set(json.loads(answer)) == {"city"}


def test_tools_may_be_offered(llm: Client) -> None:
    options = ("-o", "max_tokens", "20", "--functions", TOOL)
    assert said(llm.run("llm", "-m", "colibri", *options, "Tell of Rome."))


def test_a_prompt_too_long_is_told_with_both_numbers(llm: Client) -> None:
    done = llm.run("llm", "-m", "colibri", "word " * 9000)
    assert done.returncode != 0
    assert "maximum context length is 409" in done.stderr
