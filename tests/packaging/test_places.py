"""Where coli is installed: a bare Debian, a service, and machines that lack what a build needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo.tree import ROOT


def setup_with(tmp_path: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/setup in a copy where only these programs are found."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts" / "setup")
    found = tmp_path / "bin"
    found.mkdir()
    for name in ("bash", "env", "dirname", "cat", *programs):
        target = shutil.which(name)
        assert target is not None, name
        (found / name).symlink_to(target)
    return subprocess.run(
        [str(found / "bash"), str(tmp_path / "scripts" / "setup"), "run"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(found), "HOME": str(tmp_path)},
    )


def test_a_machine_without_python_is_told_in_one_line(tmp_path: Path) -> None:
    done = setup_with(tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"coli: Python 3\.11 or newer not found; .+\n", done.stderr)


def python_without(tmp_path: Path, module: str) -> str:
    """Return a Python that has no such module, or no headers."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/bash\nif [[ "$*" == *{module}* ]]; then exit 1; fi\nexec python3 "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("ensurepip", "has no venv module"), ("Python.h", r"the headers of \S+ are missing")],
)
def test_a_python_without_venv_or_headers_is_told_in_one_line(
    tmp_path: Path, lacks: str, said: str
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts" / "setup")
    done = subprocess.run(
        ["bash", str(tmp_path / "scripts" / "setup"), "run"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": python_without(tmp_path, lacks)},
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"coli: python3\.\d+ {said}; .+\n|coli: {said}; .+\n", done.stderr)
    assert not (tmp_path / ".venv").exists()


def test_a_machine_without_a_working_compiler_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts" / "setup")
    for compiler, said in (
        ("false", "cannot build a C++17 program"),
        ("no-such", "no C++ compiler"),
    ):
        done = subprocess.run(
            ["bash", str(tmp_path / "scripts" / "setup"), "run"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "CXX": compiler},
        )
        assert done.returncode == 1
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
def test_the_service_is_one_that_systemd_takes_and_finds_shut(tmp_path: Path) -> None:
    unit = tmp_path / "coli.service"
    text = (ROOT / "packaging" / "coli.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/coli/bin/coli", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    shut = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    subprocess.run(shut, check=True, capture_output=True)


@pytest.mark.slow
def test_a_bare_debian_with_the_readmes_packages_chats(tmp_path: Path) -> None:
    """As root, with debootstrap and a network; tens of minutes on a busy machine."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    wanted = re.search(r"`apt-get install ([^`]+)`", readme)
    assert wanted is not None
    steps = (
        f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {wanted[1]} >&2"
        " && cd /src && echo 'What is the capital of France?' | make chat"
    )
    done = subprocess.run(
        [str(ROOT / "packaging" / "in-bare-debian"), str(tmp_path), "bash", "-c", steps],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert "Paris" in done.stdout
