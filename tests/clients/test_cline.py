"""Cline's command line edits a file through chat completions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.clients.client_rig import (
    TASK,
    Client,
    Project,
    Served,
    Step,
    assert_edited,
    prompts_of,
    refusing,
    serving_agents,
)

QUIET: Final = {
    "CLINE_TELEMETRY_DISABLED": "1",
    "CLINE_NO_AUTO_UPDATE": "1",
    "CLINE_SESSION_BACKEND_MODE": "local",
}


def cline(home: Path, served: Served, model: str) -> Client:
    """Return Cline, told what docs/clients.md says."""
    home.mkdir()
    client = Client("cline", home, QUIET)
    done = client.run(
        "cline", "auth", "openai",
        "--apikey", "any", "--modelid", model, "--baseurl", served.api,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return client


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    path = str(project.file)
    steps: list[Step] = [
        {"tool": "read_files", "arguments": {"files": [{"path": path}]}},
        {
            "tool": "editor",
            "arguments": {"path": path, "old_text": "hello", "new_text": "goodbye"},
        },
        {"text": "greet() now returns goodbye."},
    ]
    with serving_agents(tmp_path, steps) as served:
        done = cline(tmp_path / "home", served, "scripted").run("cline", TASK, cwd=project.folder)
        assert_edited(project, done, served)
        assert "greet() now returns goodbye." in done.stdout
        assert r"return \"hello\"" in prompts_of(served)[-1]  # what read_files gave back


def test_the_demo_is_too_small_and_it_says_so(
    tmp_path: Path, project: Project, demo: Served
) -> None:
    client = cline(tmp_path / "home", demo, "demo")
    with refusing(demo, "/v1/chat/completions"):
        done = client.run("cline", TASK, cwd=project.folder)
    said = done.stdout + done.stderr
    assert "maximum context length is 409" in said, said
