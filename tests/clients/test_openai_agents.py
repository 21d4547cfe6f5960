"""OpenAI's Agents SDK: a tool is called, and the result has the form of a type."""

from __future__ import annotations

from pathlib import Path

from tests.clients.client_rig import (
    Client,
    Step,
    grammars_of,
    prompts_of,
    run_checks,
    serving_agents,
)


def test_a_tool_and_a_typed_result(tmp_path: Path) -> None:
    steps: list[Step] = [
        {"tool": "add", "arguments": {"first": 1, "second": 2}},
        {"text": '{"total": 3}'},
    ]
    (tmp_path / "home").mkdir()
    with serving_agents(tmp_path, steps) as served:
        results = run_checks(Client("openai-agents", tmp_path / "home"), "agents_python.py", served)
        assert results == {"chat_completions": "ok", "responses": "ok"}
        assert "<tool_response>\n3\n" in prompts_of(served)[-1]
        for grammar in grammars_of(served):
            assert grammar["kind"] == "lark"
            assert '"total"' in grammar["text"]
            assert '"second"' in grammar["text"]
