"""`coli build`: variants told and tested, what a failed test means, and building anew."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from colibri_cli import native_build
from colibri_cli.commands import build
from colibri_cli.errors import JobFailed, UsageError
from colibri_cli.main import main
from colibri_engine import kernels
from tests.fakes.command_line import CommandLine

FOUND = {"cpu": "some", "built": ["b", "a"], "available": ["b", "a"], "active": "b"}


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine's job says of each variant; an exception is raised."""
    said: dict[str, Any] = {name: {"compared": 2, "differing": []} for name in FOUND["built"]}

    def answer(_word: str, name: str = "") -> dict[str, Any]:
        found = said[name] if name else FOUND
        if isinstance(found, Exception):
            raise found
        return dict(found)

    monkeypatch.setattr(native_build, "_answer", answer)
    return said


@pytest.mark.e2e
def test_every_variant_is_named_and_those_of_this_processor_are_tested(coli: CommandLine) -> None:
    done = coli.run("build", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    assert (body["schema_version"], body["ok"]) == (1, True)
    assert body["isa"] == kernels.available_isas()[0]
    assert [one["name"] for one in body["variants"]] == kernels.built_isas()
    for one in body["variants"]:
        runs = one["name"] in kernels.available_isas()
        assert (one["runs"], one["is_right"]) == (runs, True if runs else None)
        assert (one["compared"] > 50) is runs
    text = coli.run("build").stdout
    assert text.splitlines()[-1].startswith(f"result: right; {body['isa']} is used")


@pytest.mark.e2e
def test_the_variable_that_chooses_kernels_is_heeded(coli: CommandLine) -> None:
    coli.variables["COLI_ISA"] = "scalar"
    assert json.loads(coli.run("build", "--json").stdout)["isa"] == "scalar"
    coli.variables["COLI_ISA"] = "nothing"
    done = coli.run("build")
    assert (done.returncode, done.stdout) == (2, "")
    assert "COLI_ISA" in done.stderr


def test_other_bits_fail_the_command_and_are_named(
    answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answers["a"] = {"compared": 2, "differing": ["int4 fast, 9x224 by 80"]}
    assert main(["build"]) == 1
    out = capsys.readouterr().out
    assert "int4 fast, 9x224 by 80" in out
    assert "wrong: a" in out
    assert main(["build", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_variant_that_ends_its_process_is_wrong_and_the_others_are_tested(
    answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answers["b"] = JobFailed("the engine's job was ended by signal 4")
    assert main(["build", "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["variants"]
    assert (first["is_right"], second["is_right"]) == (False, True)
    assert "signal 4" in first["problem"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--cuda",), "--engine vllm"), (("--jobs", "2"), "--native"), (("--jobs", "0"), "1..1024")],
)
def test_wrong_use_is_refused_by_name(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert arguments[0] in captured.err
    assert said in captured.err


def test_native_builds_the_checkout_with_so_many_compilers_and_tests_it(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[list[str], str | None]] = []

    def run(argv: list[str], *, env: dict[str, str], **_: object) -> object:
        started.append((argv, env.get("CMAKE_BUILD_PARALLEL_LEVEL")))
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["build", "--native", "--jobs", "3"]) == 0
    ((argv, jobs),) = started
    assert argv[1:4] == ["-m", "pip", "install"]
    assert argv[-2:] == ["--editable", str(Path(build.__file__).parents[2])]
    assert jobs == "3"
    assert "result: right" in capsys.readouterr().out
    assert answers


def test_a_build_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], 1, "one\ntwo\n\nthree\nno compiler\n", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert main(["build", "--native"]) == 1
    captured = capsys.readouterr()
    assert "two | three | no compiler" in captured.err
    assert "scripts/setup run" in captured.err
    assert captured.out == ""


def test_an_installed_copy_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_build, "__file__", str(tmp_path / "colibri_cli" / "x.py"))
    with pytest.raises(UsageError, match="was installed") as caught:
        native_build.checkout()
    assert "pip install --no-binary" in (caught.value.hint or "")
