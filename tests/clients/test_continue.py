"""Continue's command line edits a file through chat completions."""

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
    serving_agents,
)

CONFIG: Final = """
name: colibri
version: 0.0.1
schema: v1
models:
  - name: {model}
    provider: openai
    model: {model}
    apiBase: {api}
    apiKey: any
    capabilities: [tool_use]
"""
QUIET: Final = {"CONTINUE_CLI_ENABLE_TELEMETRY": "0", "CONTINUE_TELEMETRY_ENABLED": "0"}


def continue_dev(home: Path, served: Served, model: str) -> Client:
    """Return Continue with the configuration that docs/clients.md gives."""
    folder = home / ".continue"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG.format(model=model, api=served.api))
    return Client("continue", home, QUIET)


def arguments(client: Client) -> tuple[str, ...]:
    """Return the command line of a run without questions."""
    return ("cn", "--config", str(client.home / ".continue" / "config.yaml"), "--auto", "-p", TASK)


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    path = str(project.file)
    steps: list[Step] = [
        {"tool": "Read", "arguments": {"filepath": path}},
        {
            "tool": "Edit",
            "arguments": {"file_path": path, "old_string": "hello", "new_string": "goodbye"},
        },
        {"text": "greet() now returns goodbye."},
    ]
    with serving_agents(tmp_path, steps) as served:
        client = continue_dev(tmp_path / "home", served, "scripted")
        done = client.run(*arguments(client), cwd=project.folder)
        assert_edited(project, done, served)
        assert "greet() now returns goodbye." in done.stdout
        assert 'return "hello"' in prompts_of(served)[-1]  # what Read gave back
