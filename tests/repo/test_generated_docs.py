"""Pages that are generated say what the code says, and the code does what they say."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from colibri_protocol.settings import SETTINGS, Scope, Setting
from tests.repo.tree import ROOT

READERS = {
    Scope.CLI: (ROOT / "colibri_cli",),
    Scope.ENGINE: (ROOT / "engine" / "colibri_engine",),
    Scope.BOTH: (ROOT / "engine" / "colibri_engine",),
}


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "docs"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@functools.cache
def names_in(folder: Path) -> set[str]:
    """Return every word that stands in quotes in the sources of a package."""
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return {word for text in texts for word in re.findall(r"[\"']([a-z_]+)[\"']", text)}


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_a_setting_is_read_by_the_side_it_is_for(row: Setting) -> None:
    folders = [*READERS[row.scope]]
    if row.flags:
        folders.append(ROOT / "colibri_cli")
    for folder in folders:
        assert row.name in names_in(folder), f"{folder.name} does not read {row.name}"
