"""The demo behind `coli serve`, once for all clients that need no long context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.client_rig import Project, Served, serving
from tests.fakes.command_line import CommandLine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a program which is no part of the development environment."""
    for item in items:
        path = Path(item.path)
        if "clients" in path.parts and path.name != "test_recipes.py":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, demo_gguf: Path) -> Iterator[Served]:
    """The demo with one slot and a queue of one, so that a third request is refused."""
    home = tmp_path_factory.mktemp("serve")
    command = CommandLine(home, {"COLI_MODEL": str(demo_gguf)})
    options = ("--model-id", "demo", "--max-queue", "1", "--temp", "0")
    with serving(command, *options) as served:
        yield served


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project to work on."""
    return Project(tmp_path / "project")
