"""`coli bench stream` as a process, over the engine's own job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.container_models import write_container
from tests.fakes.stream_models import restream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

QUICK = ("--prompt", "20", "--generate", "6", "--ctx", "64")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    source = write_container(directory / "container", n_routed_experts=32, num_hidden_layers=3).path
    return restream(source, directory / "stream")


def measured(coli: CommandLine, model: Path, *arguments: str) -> list[dict[str, Any]]:
    done = coli.run("bench", "stream", "--json", "--model", str(model), *arguments, *QUICK)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["schema_version"] == 1
    assert body["model"]["num_experts"] == 32
    phases: list[dict[str, Any]] = body["phases"]
    for phase in phases:
        assert phase["tokens_per_s"] == pytest.approx(phase["rows"] / phase["seconds"])
        assert 0 <= phase["hidden_percent"] <= 100
        assert phase["disk_bytes_per_s"] > 1
        assert phase["wait_s"] <= phase["seconds"]
        assert phase["bytes_per_token"] == round(phase["bytes_read"] / phase["rows"])
    return phases


def test_every_budget_is_measured_from_an_empty_memory(coli: CommandLine, model: Path) -> None:
    phases = measured(coli, model, "--budgets", "0.3,0.4")
    names = ["prefill", "first tokens", "later tokens", "same token"]
    assert [phase["phase"] for phase in phases] == names * 2
    for run in (phases[:4], phases[4:]):
        assert run[0]["slots"] == 32
        assert run[0]["bytes_read"] > 0
        assert run[2]["hit_percent"] > 80  # an expert nobody chose before is read once
        assert run[3]["hit_percent"] == 100
        assert run[3]["missed_bytes"] == 0
    run = phases[4:]
    few = measured(coli, model, "--budgets", "0.3", "--cap", "3")
    assert few[0]["slots"] == 3
    assert few[2]["bytes_read"] > run[2]["bytes_read"]
    assert few[2]["hit_percent"] < run[2]["hit_percent"]
    assert not (model / ".coli_usage").exists()


def test_the_figures_are_a_table(coli: CommandLine, model: Path) -> None:
    done = coli.run("bench", "stream", "--model", str(model), "--budgets", "0.3", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "later tokens" in done.stdout
    assert "disk GB/s" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--model", "."), "--budgets"),
        (("--model", ".", "--budgets", "much"), "--budgets"),
        (("--model", ".", "--budgets", "4,-1"), "--budgets"),
        (("--model", ".", "--budgets", "4", "--generate", "0"), "--generate"),
        (("--budgets", "4", "--engine-bin", "x", "--model", "."), "--engine-bin"),
        (("--budgets", "4", "--batch", "2"), "--batch"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    coli: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    done = coli.run("bench", "stream", *arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_budget_that_holds_too_little_is_refused_with_the_figures(
    coli: CommandLine, model: Path
) -> None:
    done = coli.run("bench", "stream", "--model", str(model), "--budgets", "0.2", *QUICK)
    assert done.returncode != 0
    assert "the least that runs is" in done.stderr
    assert "--ram" in done.stderr


def test_a_model_in_another_layout_is_refused(coli: CommandLine, tmp_path: Path) -> None:
    other = write_container(tmp_path / "container").path
    done = coli.run("bench", "stream", "--model", str(other), "--budgets", "1", *QUICK)
    assert done.returncode != 0
    assert "coli convert" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "--prompt", "8", "--generate", "2", "--repeats", "1", "--no-load", "--cap", "2"),
        ("bench", "stream", "--budgets", "0.3", "--cap", "2", *QUICK),
        ("tune", "--tokens", "4", "--repeats", "1", "--cap", "2"),
    ],
)
def test_measuring_leaves_the_history_of_experts_as_it_is(
    coli: CommandLine, model: Path, command: tuple[str, ...]
) -> None:
    history = model / ".coli_usage"
    history.write_text("1 0 20000\n1 5 7\n")
    try:
        done = coli.run(*command, "--model", str(model))
        assert done.returncode == 0, done.stderr
        assert history.read_text() == "1 0 20000\n1 5 7\n"
    finally:
        history.unlink()
