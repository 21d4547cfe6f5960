"""What every test may ask for, and what no test may do: read the user's settings, or skip in CI."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# Started in the background by a shell, this process ignores Ctrl-C, and so would all it starts.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

IN_CI = bool(os.environ.get("CI"))

# Real reasons not to run that no package can cure, in CI as elsewhere.
ALLOWED_SKIP = "hardware:"

# Settings that choose how the machine is used, not what the program does.
KEPT_SETTINGS = frozenset({"COLI_ISA", "COLI_NUM_THREADS", "COLI_KV_SAVE"})

# Tests share models; one must not go on from another's conversation. Those about saving turn it on.
os.environ["COLI_KV_SAVE"] = "0"

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.load_profile("ci" if IN_CI else "local")


# ---- a skipped test is a failed one in CI -------------------------------------------------------


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (IN_CI and report.outcome == "skipped") or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIP):
        report.outcome = "failed"
        report.longrepr = f"skipped, which fails with CI set: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where nothing may be skipped."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure, too."""
    report = yield
    _forbid_skip(report)
    return report


# ---- the user's own settings stay outside -------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_user_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("COLI_") and name not in KEPT_SETTINGS:
            monkeypatch.delenv(name)
    for name in ("CTX", "KV_SLOTS", "NGEN", "NUCLEUS", "SEED", "SNAP", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg-config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg-state"))


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo what a command run inside this process did to the loggers."""
    root = logging.getLogger("colibri_cli")
    names = ("", ".access", ".engine", ".content.answers", ".content.prompts")
    levels = {name: logging.getLogger(f"colibri_cli{name}").level for name in names}
    before = (root.propagate, list(root.handlers))
    yield
    root.propagate = before[0]
    root.handlers[:] = before[1]
    for name, level in levels.items():
        logging.getLogger(f"colibri_cli{name}").setLevel(level)


# ---- kernels ------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `isa` once per instruction set of this CPU."""
    if "isa" in metafunc.fixturenames:
        from colibri_engine import kernels

        metafunc.parametrize("isa", kernels.available_isas(), indirect=True)


@pytest.fixture
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The instruction set in force during the test; the one before comes back after it."""
    from colibri_engine import kernels

    before = kernels.active_isa()
    name: str = request.param
    kernels.set_isa(name)
    yield name
    kernels.set_isa(before)


# ---- real weights -------------------------------------------------------------------------------


def _pulled_gguf(model: str) -> Path:
    from colibri_cli.paths import models_dir

    directory = models_dir() / model
    files = sorted(directory.glob("*.gguf"))
    if not files:
        pytest.skip(f"{model} is not pulled; run: coli pull {model}")
    assert len(files) == 1, f"{directory} should hold one GGUF file, not {[f.name for f in files]}"
    return files[0]


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The pulled SmolLM2-135M-Instruct, 4-bit weights."""
    return _pulled_gguf("smollm2")


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """The pulled demo mixture."""
    return _pulled_gguf("demo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they ask for and where they lie, so that a marker is never forgotten."""
    for item in items:
        fixtures: tuple[str, ...] = getattr(item, "fixturenames", ())
        if {"smollm2_gguf", "demo_gguf"} & set(fixtures):
            item.add_marker(pytest.mark.smollm2)
        if "e2e" in Path(item.path).parts:
            item.add_marker(pytest.mark.e2e)
        # Real processes, browsers and bounds of time, on a machine that others use.
        if item.get_closest_marker("timed") or item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_report_header() -> list[str]:
    """Name the kernels that are under test."""
    try:
        from colibri_engine import kernels
    except ImportError as error:
        return [f"kernels: not built ({error})"]
    return [f"kernels: {', '.join(kernels.available_isas())}"]
