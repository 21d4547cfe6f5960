"""`coli` as a process, with a scripted engine where it needs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.fake_engine import write_executable


@pytest.fixture(scope="session")
def fake_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_executable(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    """Without any model or engine set."""
    return CommandLine(tmp_path)


@pytest.fixture
def served(tmp_path: Path, fake_engine: Path) -> CommandLine:
    """With a model directory and the scripted engine."""
    model = tmp_path / "tiny"
    model.mkdir()
    return CommandLine(tmp_path, {"COLI_MODEL": str(model), "COLI_ENGINE": str(fake_engine)})
