"""A release gathers the fragments, names its version everywhere, and refuses half-made ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

FILES = ("CHANGELOG.md", "pyproject.toml", "colibri_cli/__init__.py", "web/package.json")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("# Fragments\n")
    return tmp_path


def release(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "release"), *arguments, "--root", str(tree)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fragments_become_a_dated_section_above_the_older_ones(tree: Path) -> None:
    fragments = tree / "changelog.d"
    (fragments / "a.added.md").write_text("`coli x` does\ny.\n")
    (fragments / "b.fixed.md").write_text("No more z.\n")
    (tree / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 9.0.0 — unreleased\n\n### Added\n\n- First,\n  in two lines.\n\n"
        "## 8.0.0 — 2026-01-01\n\n### Fixed\n\n- Old.\n"
    )
    assert release(tree, "9.9.1", "--date", "2026-12-01").returncode == 0
    assert (tree / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## 9.9.1 — 2026-12-01\n\n### Added\n\n- First,\n  in two lines.\n"
        "- `coli x` does y.\n\n### Fixed\n\n- No more z.\n\n"
        "## 8.0.0 — 2026-01-01\n\n### Fixed\n\n- Old.\n"
    )
    assert [path.name for path in fragments.iterdir()] == ["README.md"]
    for name in FILES:
        assert "9.9.1" in (tree / name).read_text(), name


@pytest.mark.parametrize(
    ("version", "fragment", "said"),
    [
        ("next", "a.added.md", "'next' is no version"),
        ("1.2.3", "a.improved.md", "a.improved.md has no kind"),
        ("1.2.3", None, "no fragments"),
    ],
)
def test_what_is_no_release_changes_nothing(
    tree: Path, version: str, fragment: str | None, said: str
) -> None:
    if fragment:
        (tree / "changelog.d" / fragment).write_text("Something.\n")
    before = {name: (tree / name).read_bytes() for name in FILES}
    done = release(tree, version)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert before == {name: (tree / name).read_bytes() for name in FILES}


def test_every_fragment_of_this_tree_has_a_kind() -> None:
    kinds = {"added", "changed", "fixed", "removed"}
    fragments = [path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [path.name for path in fragments if path.name.split(".")[-2] not in kinds] == []
