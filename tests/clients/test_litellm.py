"""LiteLLM against the demo, through the OpenAI API and through the Messages API."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.client_rig import Client, Served, run_checks

CHECKS: Final = (
    "openai_chat",
    "openai_stream",
    "openai_tools",
    "openai_errors",
    "anthropic_chat",
    "anthropic_stream",
    "anthropic_tools",
    "anthropic_errors",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, demo: Served) -> dict[str, str]:
    """What the program found, for each check."""
    # Its table of prices would be fetched on import, with waits between the attempts.
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    client = Client("litellm", tmp_path_factory.mktemp("home"), local)
    return run_checks(client, "litellm_python.py", demo)


@pytest.mark.parametrize("check", CHECKS)
def test_check(check: str, results: dict[str, str]) -> None:
    assert results[check] == "ok", results[check]


def test_every_check_is_named(results: dict[str, str]) -> None:
    assert set(results) == set(CHECKS)
