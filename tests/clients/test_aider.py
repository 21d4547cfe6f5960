"""aider edits a file: it asks for blocks to search and replace, without tools."""

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
    assert_edited,
    prompts_of,
    refusing,
    serving_agents,
)

QUIET: Final = {
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
EDIT: Final = """greet.py
```python
<<<<<<< SEARCH
    return "hello"
=======
    return "goodbye"
>>>>>>> REPLACE
```
"""


def aider(home: Path, served: Served, model: str, context: int) -> Client:
    """Return aider with the settings that docs/clients.md gives."""
    home.mkdir()
    metadata = {
        "max_input_tokens": context,
        "max_output_tokens": 1024,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    (home / ".aider.model.metadata.json").write_text(json.dumps({f"openai/{model}": metadata}))
    settings = f"- name: openai/{model}\n  edit_format: diff\n  weak_model_name: openai/{model}\n"
    (home / ".aider.model.settings.yml").write_text(settings)
    variables = {
        "OPENAI_API_BASE": served.api,
        "OPENAI_API_KEY": "any",
        "AIDER_MODEL": f"openai/{model}",
    }
    return Client("aider", home, {**variables, **QUIET})


ARGUMENTS: Final = ("--yes-always", "--no-auto-commits", "--no-gitignore", "--message", TASK)


def test_it_edits_a_file(tmp_path: Path, project: Project) -> None:
    with serving_agents(tmp_path, [], EDIT) as served:
        client = aider(tmp_path / "home", served, "scripted", 65_536)
        done = client.run("aider", *ARGUMENTS, "greet.py", cwd=project.folder)
        assert_edited(project, done, served)
        assert "Applied edit to greet.py" in done.stdout
        assert 'return "hello"' in prompts_of(served)[-1]


def test_a_prompt_too_long_for_the_demo_is_told_with_both_numbers(
    tmp_path: Path, project: Project, demo: Served
) -> None:
    client = aider(tmp_path / "home", demo, "demo", 4096)
    project.file.write_text("x = 1\n" * 3000)
    with refusing(demo, "/v1/chat/completions"):
        done = client.run("aider", *ARGUMENTS, "greet.py", cwd=project.folder)
    said = done.stdout + done.stderr
    assert "hit a token limit" in said, said  # it knows the refusal, and names both itself
    assert re.search(r"Input tokens: ~1\d,\d{3} of 4,096", said), said
