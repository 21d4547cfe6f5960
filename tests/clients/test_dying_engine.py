"""An engine that dies in the middle of an answer: the SDK raises, whole and streamed."""

from __future__ import annotations

from pathlib import Path

from tests.clients.client_rig import Client, run_checks, serving
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_engine import write_executable


def test_the_sdk_raises(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    engine = write_executable(tmp_path)
    command = CommandLine(tmp_path, {"COLI_MODEL": str(model), "COLI_ENGINE": str(engine)})
    client = Client("openai-python", tmp_path, {"PROMPT": "[[die 3]] [[tokens 9]]"})
    _ = client.root  # skips if it is not there
    with serving(command) as served:
        results = run_checks(client, "dying_openai.py", served)
    assert results == {"chat_stream": "ok", "chat_whole": "ok"}
