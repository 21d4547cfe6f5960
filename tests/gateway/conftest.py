"""A scripted engine to launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from colibri_cli.supervisor.spawn import EngineLaunch
from tests.fakes.fake_engine import write_executable


@pytest.fixture(scope="session")
def fake_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_executable(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def launch(fake_engine: Path, tmp_path: Path) -> EngineLaunch:
    return EngineLaunch(model_path=tmp_path, engine_bin=fake_engine)
