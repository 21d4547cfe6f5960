"""The OpenAI SDK for Python against the demo."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.client_rig import Client, Served, run_checks

CHECKS: Final = (
    "chat",
    "stream",
    "stream_helper",
    "stop_and_n",
    "logprobs",
    "tools",
    "tools_streamed",
    "structured_output",
    "json_object",
    "completions",
    "models",
    "errors",
    "error_before_stream",
    "no_route",
    "responses",
    "responses_streamed",
    "responses_tools",
    "responses_structured",
    "retries",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, demo: Served) -> dict[str, str]:
    """What the program found, for each check."""
    return run_checks(
        Client("openai-python", tmp_path_factory.mktemp("home")), "openai_python.py", demo
    )


@pytest.mark.parametrize("check", CHECKS)
def test_check(check: str, results: dict[str, str]) -> None:
    assert results[check] == "ok", results[check]


def test_every_check_is_named(results: dict[str, str]) -> None:
    assert set(results) == set(CHECKS)
