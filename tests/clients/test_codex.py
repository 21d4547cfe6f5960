"""Codex edits a file through the Responses API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.clients.client_rig import (
    TASK,
    Client,
    Project,
    Served,
    Step,
    assert_edited,
    grammars_of,
    prompts_of,
    refusing,
    serving_agents,
)

CONFIG: Final = """
model = "{model}"
model_provider = "colibri"
check_for_update_on_startup = false

[model_providers.colibri]
name = "colibri"
base_url = "{api}"
wire_api = "responses"

[analytics]
enabled = false
"""


def codex(home: Path, served: Served, model: str) -> Client:
    """Return Codex with the provider that docs/clients.md gives."""
    (home / ".codex").mkdir(parents=True)
    config = CONFIG.format(model=model, api=served.api)
    (home / ".codex" / "config.toml").write_text(config)
    return Client("codex", home)


SCHEMA: Final = {
    "type": "object",
    "properties": {"is_done": {"type": "boolean"}},
    "required": ["is_done"],
    "additionalProperties": False,
}
ARGUMENTS: Final = ("exec", "--dangerously-bypass-approvals-and-sandbox", TASK)


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    steps: list[Step] = [
        {"tool": "exec_command", "arguments": {"cmd": "cat greet.py"}},
        {"tool": "exec_command", "arguments": {"cmd": "sed -i s/hello/goodbye/ greet.py"}},
        {"text": "greet() now returns goodbye."},
    ]
    with serving_agents(tmp_path, steps) as served:
        done = codex(tmp_path / "home", served, "scripted").run(
            "codex", *ARGUMENTS, cwd=project.folder
        )
        assert_edited(project, done, served)
        assert "greet() now returns goodbye." in done.stdout
        assert 'return "hello"' in prompts_of(served)[-1]  # what the first command gave back


def test_its_last_message_has_the_wanted_form_beside_its_tools(
    tmp_path: Path, project: Project
) -> None:
    steps: list[Step] = [
        {"tool": "exec_command", "arguments": {"cmd": "sed -i s/hello/goodbye/ greet.py"}},
        {"text": '{"is_done": true}'},
    ]
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    with serving_agents(tmp_path, steps) as served:
        done = codex(tmp_path / "home", served, "scripted").run(
            "codex", *ARGUMENTS, "--output-schema", str(schema), cwd=project.folder
        )
        assert_edited(project, done, served)
        assert '{"is_done": true}' in done.stdout
        grammar = grammars_of(served)[-1]
    assert '"is_done"' in grammar["text"]
    assert "exec_command" in grammar["text"]


def test_the_demo_is_too_small_and_it_says_so(
    tmp_path: Path, project: Project, demo: Served
) -> None:
    with refusing(demo, "/v1/responses"):
        done = codex(tmp_path / "home", demo, "demo").run("codex", *ARGUMENTS, cwd=project.folder)
    assert done.returncode != 0
    assert "ran out of room in the model's context window" in done.stderr  # its own words
