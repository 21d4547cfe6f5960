"""What is published: built offline from the archive, the same in any folder, whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, relative, tracked_files

pytestmark = pytest.mark.slow

EPOCH = "1796000000"


def copy_tree(to: Path) -> Path:
    """Put the committed and changed files of this tree, and the built page, into a folder."""
    for file in tracked_files():
        target = to / relative(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    if (ROOT / "web" / "dist").is_dir():
        shutil.copytree(ROOT / "web" / "dist", to / "web" / "dist")
    return to


def build(tree: Path, out: Path) -> tuple[Path, Path]:
    """Return the archive and the wheel that `scripts/dist` makes without any index."""
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "OUT": str(out),
        "OFFLINE": "1",
        "PIP_NO_INDEX": "1",
        "SOURCE_DATE_EPOCH": EPOCH,
    }
    subprocess.run([str(tree / "scripts" / "dist")], check=True, env=environment, cwd=tree)
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("one")
    return build(copy_tree(folder / "tree"), folder / "dist")


def test_two_builds_in_different_folders_are_the_same_bytes(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    again = build(copy_tree(tmp_path / "another" / "longer" / "place"), tmp_path / "dist")
    for first, second in zip(published, again, strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_archive_has_what_a_build_needs_and_nothing_of_this_machine(
    published: tuple[Path, Path],
) -> None:
    with tarfile.open(published[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CMakeLists.txt", "engine/csrc/dispatch.cpp"} <= names
    assert not [name for name in names if name.split("/")[0] in {".venv", "build", "dist", ".git"}]
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]


def test_one_wheel_has_every_instruction_set_and_the_pages_licences(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    from colibri_engine import kernels

    with zipfile.ZipFile(published[1]) as wheel:
        names = wheel.namelist()
        (native,) = [name for name in names if "_kernels" in name and name.endswith(".so")]
        code = wheel.read(native)
        wheel.extractall(tmp_path)
    assert names == sorted(names, key=names.index)
    # Names stand in the dispatch table, whatever this machine has.
    compiled = {"scalar", *kernels.available_isas()}
    for isa in compiled | (
        {"avx2", "avx512", "amx"} if os.uname().machine == "x86_64" else {"neon"}
    ):
        assert isa.encode() + b"\0" in code, isa
    assert str(ROOT).encode() not in code
    assert b"/tmp/" not in code
    if (ROOT / "web" / "dist" / "index.html").is_file():
        page = tmp_path / "colibri_cli" / "web" / "dist" / "THIRD-PARTY-LICENSES.txt"
        assert "react-dom" in page.read_text(encoding="utf-8")


def test_the_wheel_chats_in_a_bare_environment(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    """Needs an index for what the wheel requires, and the demo model's wheel."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-qq", str(published[1])], check=True)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [str(python.with_name("coli")), "chat"],
        input="What is the capital of France?\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
