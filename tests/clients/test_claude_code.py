"""Claude Code edits a file, told nothing but what `coli serve` prints."""

from __future__ import annotations

import json
import re
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
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "IS_SANDBOX": "1",  # or it refuses to skip its questions when run by root
}


def claude_code(home: Path, served: Served, model: str) -> Client:
    """Return Claude Code with the environment that `coli serve` prints."""
    home.mkdir()
    settings = {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": "any",
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
    }
    printed = served.log.read_text()
    for name, value in settings.items():
        assert f"export {name}={value}\n" in printed
    return Client("claude-code", home, {**settings, **QUIET})


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    path = str(project.file)
    edit = {"file_path": path, "old_string": "hello", "new_string": "goodbye"}
    steps: list[Step] = [
        {"tool": "Read", "arguments": {"file_path": path}},
        {"tool": "Edit", "arguments": edit},
        {"text": "greet() now returns goodbye."},
    ]
    with serving_agents(tmp_path, steps) as served:
        client = claude_code(tmp_path / "home", served, "scripted")
        done = client.run(
            "claude",
            "-p",
            TASK,
            "--permission-mode",
            "bypassPermissions",
            "--output-format",
            "json",
            cwd=project.folder,
        )
        assert_edited(project, done, served)
        answer = json.loads(done.stdout)
        assert answer["result"] == "greet() now returns goodbye."
        assert 'return "hello"' in prompts_of(served)[-1]  # what Read gave back


def test_the_demo_is_too_small_and_it_says_so(
    tmp_path: Path, project: Project, demo: Served
) -> None:
    client = claude_code(tmp_path / "home", demo, "demo")
    with refusing(demo, "/v1/messages"):
        done = client.run("claude", "-p", TASK, cwd=project.folder)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(r"~\d{4,5} tokens \(limit 409\d\)", said), said
