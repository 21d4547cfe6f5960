"""How an engine is started: arguments, environment, families."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from colibri_cli.supervisor.crash_report import CrashReport, StderrTail
from colibri_cli.supervisor.spawn import (
    EngineLaunch,
    engine_argv,
    engine_environment,
    engine_family,
)

OURS = EngineLaunch(Path("/m"))


def test_our_engine_is_a_module_of_this_interpreter() -> None:
    assert engine_argv(OURS) == [sys.executable, "-P", "-m", "colibri_engine", "0"]


@pytest.mark.parametrize(
    ("model_type", "family", "cap"),
    [
        ("glm_moe_dsa", "glm", "0"),
        ("something_new", "glm", "0"),
        ("inkling2", "inkling", "8"),
        ("kimi_k2", "kimi", "8"),
        ("olmoe", "olmoe", "8"),
        ("deepseek_v4", "deepseek_v4", "8"),
        ("deepseek_v3", "glm", "0"),
        ("Qwen3_MoE", "qwen3", "8"),
    ],
)
def test_another_engine_gets_the_cache_of_its_family(
    tmp_path: Path, model_type: str, family: str, cap: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    launch = EngineLaunch(tmp_path, Path("/bin/engine"))
    assert engine_family(tmp_path) == family
    assert engine_argv(launch) == ["/bin/engine", cap]
    assert engine_argv(replace(launch, cap=0))[1] == "0"
    assert engine_argv(replace(launch, cap=5))[1] == "5"


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_an_unreadable_configuration_counts_as_glm(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert engine_family(tmp_path) == "glm"
    assert engine_family(tmp_path / "missing") == "glm"


def test_the_environment_names_the_model_and_carries_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLI_API_KEY", "k-UNIQUE-123")
    monkeypatch.setenv("SOME_ENGINE_KNOB", "7")
    environment = engine_environment(replace(OURS, environment={"COLI_CTX": "100"}))
    assert environment["SNAP"] == "/m"
    assert environment["COLI_CAPS"] == "1"
    assert environment["COLI_CTX"] == "100"
    assert environment["SOME_ENGINE_KNOB"] == "7"
    assert "k-UNIQUE-123" not in environment.values()


@pytest.mark.parametrize(
    ("code", "said", "advice"),
    [
        (-9, "ended by SIGKILL", "memory"),
        (-11, "ended by SIGSEGV", "report"),
        (-99, "ended by signal 99", None),
        (3, "exit code 3", None),
        (None, "closed its output", None),
    ],
)
def test_crash_reports(code: int | None, said: str, advice: str | None) -> None:
    error = CrashReport(code, tuple(f"line {n}" for n in range(20))).to_error()
    assert said in error.message
    assert len(error.stderr_tail) == 6
    assert error.hint is None if advice is None else advice in (error.hint or "")


def test_stderr_lines_are_bounded_and_printable() -> None:
    tail = StderrTail()
    for number in range(80):
        tail.add(b"%d \x1b[31m\xff" % number + b"x" * 5000)
    assert len(tail.lines) == 50
    assert all(len(line) <= 2000 and line.isprintable() for line in tail.lines)
