"""A plugin's wheel in an environment of its own: it adds its parts, and leaves no trace."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.command_line import ROOT, CommandLine
from tests.fakes.fake_engine import write_executable

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_PIP = ("-m", "pip", "--disable-pip-version-check", "-q")


@dataclass
class Installed(CommandLine):
    """`coli` of another environment, which knows nothing of this checkout."""

    python: Path = Path()

    @property
    def argv(self) -> list[str]:
        return [str(self.python.with_name("coli"))]

    @property
    def environment(self) -> dict[str, str]:
        known = super().environment
        return {name: value for name, value in known.items() if name != "PYTHONPATH"}

    def pip(self, *arguments: str) -> str:
        command = [str(self.python), *_PIP, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.home)
        return done.stdout

    def files(self) -> set[str]:
        """Everything in the environment but what Python compiles as it goes."""
        root = self.python.parents[1]
        return {str(p.relative_to(root)) for p in root.rglob("*") if "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    engine = write_executable(tmp_path_factory.mktemp("engine"))
    model = home / "tiny"
    model.mkdir()
    variables = {"COLI_MODEL": str(model), "COLI_ENGINE": str(engine)}
    coli = Installed(home, variables, home / "venv" / "bin" / "python")
    coli.pip("install", str(ROOT))
    return coli


def serve_and_ask(coli: Installed, paths: Iterable[str]) -> list[str]:
    import urllib.error
    import urllib.request

    process = coli.start("serve", "--port", "0", "--plain")
    try:
        assert process.stderr is not None
        line = ""
        while "listening on" not in line:
            line = process.stderr.readline().decode()
            assert line, "the server ended"
        url = line.partition("listening on ")[2].partition(";")[0].strip()
        found = []
        for path in paths:
            try:
                with urllib.request.urlopen(f"{url}{path}") as answer:
                    found.append(answer.read().decode())
            except urllib.error.HTTPError as error:
                found.append(f"{error.code}")
        return found
    finally:
        process.terminate()
        process.communicate(timeout=30)


def picture(coli: Installed) -> tuple[object, ...]:
    """What a user sees of plugins: help, list, checks."""
    doctor = json.loads(coli.run("doctor", "--json", timeout_s=120).stdout)
    return (
        coli.run("--help").stdout,
        coli.run("plugins", "list", "--json").stdout,
        [check["id"] for check in doctor["checks"]],
    )


def test_a_wheel_adds_its_parts_and_removing_it_leaves_no_trace(
    clean: Installed, tmp_path: Path
) -> None:
    files, before = clean.files(), picture(clean)
    made = clean.run("plugins", "new", "my-tool", "--dir", str(tmp_path))
    assert made.returncode == 0, made.stderr
    clean.pip("wheel", "--no-deps", "-w", str(tmp_path), str(tmp_path / "coli-my-tool"))
    (wheel,) = tmp_path.glob("coli_my_tool-0.1.0-*.whl")
    clean.pip("install", str(wheel))
    assert clean.run("my-tool", "world").stdout == "hello world\n"
    assert "hello loud" in clean.run("chat", stdin="/my-tool loud\n").stderr
    help_text, listed, checks = picture(clean)
    assert " my-tool " in str(help_text)
    assert '"origin": "installed"' in str(listed)
    assert "my-tool.present" in str(checks)
    assert serve_and_ask(clean, ["/plugins/my-tool?who=me"]) == ['{"hello":"me"}']
    clean.pip("uninstall", "-y", "coli-my-tool")
    assert clean.files() == files
    assert picture(clean) == before
    assert clean.run("my-tool").returncode == 2
    assert "no command /my-tool" in clean.run("chat", stdin="/my-tool loud\n").stderr
    assert serve_and_ask(clean, ["/plugins/my-tool"]) == ["404"]
