"""opencode edits a file through chat completions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

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
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}


def opencode(home: Path, served: Served, model: str, context: int) -> Client:
    """Return opencode with the provider that docs/clients.md gives."""
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    provider: dict[str, Any] = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "colibri",
        "options": {"baseURL": served.api, "apiKey": "any"},
        "models": {model: {"name": model, "limit": {"context": context, "output": 1024}}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"colibri/{model}",
        "small_model": f"colibri/{model}",
        "provider": {"colibri": provider},
        "permission": {"edit": "allow", "bash": "allow"},
        "share": "disabled",
        "autoupdate": False,
        "compaction": {"auto": False},  # on the demo it would summarise without end
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    return Client("opencode", home, QUIET)


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    path = str(project.file)
    edit = {"filePath": path, "oldString": "hello", "newString": "goodbye"}
    steps: list[Step] = [
        {"tool": "read", "arguments": {"filePath": path}},
        {"tool": "edit", "arguments": edit},
        {"text": "greet() now returns goodbye."},
    ]
    with serving_agents(tmp_path, steps) as served:
        client = opencode(tmp_path / "home", served, "scripted", 65_536)
        done = client.run("opencode", "run", TASK, cwd=project.folder)
        assert_edited(project, done, served)
        assert "greet() now returns goodbye." in done.stdout
        assert 'return "hello"' in prompts_of(served)[-1]  # what read gave back


def test_the_demo_is_too_small_and_it_says_so(
    tmp_path: Path, project: Project, demo: Served
) -> None:
    client = opencode(tmp_path / "home", demo, "demo", 4096)
    with refusing(demo, "/v1/chat/completions"):
        done = client.run("opencode", "run", TASK, cwd=project.folder)
    said = done.stdout + done.stderr
    assert "maximum context length is 409" in said, said
