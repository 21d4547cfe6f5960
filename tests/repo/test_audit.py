"""`scripts/audit` with services that are scripted: what fails, and what the output says to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

FOUND = """Found 1 known vulnerability in 1 package
Name Version ID                  Fix Versions
---- ------- ------------------- ------------
h11  0.16.0  GHSA-aaaa-bbbb-cccc 0.17.0"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the script reads, beside a `pip-audit` and an `npm` that know of nothing."""
    for name in ("scripts/audit", "scripts/audit-accepted", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "web").mkdir()
    shutil.copy(ROOT / "web" / "package-lock.json", tmp_path / "web")
    scripted(tmp_path / "build" / "audit" / "bin" / "pip-audit", "No known vulnerabilities found")
    scripted(tmp_path / "bin" / "npm", "{}")
    return tmp_path


def scripted(program: Path, says: str, code: int = 0) -> None:
    """Write a program that leaves its arguments beside itself."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho \"$@\" >>$0.asked\ncat <<'E'\n{says}\nE\nexit {code}\n")
    program.chmod(0o755)


def audit(tree: Path) -> tuple[int, str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "AUDIT_SERVICES"},
        "PYTHON": sys.executable,
        "PATH": f"{tree / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [str(tree / "scripts" / "audit")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_nothing_known_is_no_failure(tree: Path) -> None:
    code, said = audit(tree)
    assert code == 0, said
    assert "No known vulnerabilities found" in said
    assert "npm: nothing known" in said


def test_a_weakness_of_a_python_package_is_told_with_what_to_do(tree: Path) -> None:
    program = tree / "build" / "audit" / "bin" / "pip-audit"
    scripted(program, FOUND, 1)
    code, said = audit(tree)
    assert code == 1
    for words in (
        "GHSA-aaaa-bbbb-cccc", "0.17.0", "known weaknesses in Python packages",
        "the change under test need not be their reason", "pip install -U", "CONTRIBUTING.md",
    ):  # fmt: skip
        assert words in said
    with (tree / "scripts" / "audit-accepted").open("a") as accepted:
        accepted.write("GHSA-aaaa-bbbb-cccc we never read heads with it\n")
    audit(tree)
    assert "--ignore-vuln GHSA-aaaa-bbbb-cccc" in program.with_name("pip-audit.asked").read_text()


def test_what_is_accepted_needs_a_reason(tree: Path) -> None:
    (tree / "scripts" / "audit-accepted").write_text("GHSA-aaaa-bbbb-cccc\n")
    code, said = audit(tree)
    assert code == 1
    assert "GHSA-aaaa-bbbb-cccc has no reason" in said


def test_a_weakness_of_the_dashboards_packages_is_told_with_what_to_do(tree: Path) -> None:
    scripted(tree / "bin" / "npm", '{"auditReportVersion": 2}', 1)
    code, said = audit(tree)
    assert code == 1
    assert "known weaknesses in the dashboard's packages" in said
    assert "npm audit fix --omit=dev" in said


def test_a_service_that_does_not_answer_is_named(tree: Path) -> None:
    scripted(tree / "bin" / "npm", "no such route", 1)
    code, said = audit(tree)
    assert code == 0
    assert "not audited: the dashboard: the registry has no audit service" in said
