"""The Anthropic SDK for JavaScript against the demo."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.client_rig import Client, Served, run_checks

CHECKS: Final = (
    "message",
    "stream",
    "tools",
    "structured_output",
    "count_tokens",
    "models",
    "errors",
    "retries",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, demo: Served) -> dict[str, str]:
    """What the program found, for each check."""
    return run_checks(
        Client("anthropic-js", tmp_path_factory.mktemp("home")), "anthropic_js.cjs", demo
    )


@pytest.mark.parametrize("check", CHECKS)
def test_check(check: str, results: dict[str, str]) -> None:
    assert results[check] == "ok", results[check]


def test_every_check_is_named(results: dict[str, str]) -> None:
    assert set(results) == set(CHECKS)
