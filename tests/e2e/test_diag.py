"""`coli diag` on real weights: nothing got worse, and what is broken on purpose is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broken_engine import write_broken
from tests.fakes.command_line import CommandLine

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

# Figures of the demo model that no machine may change; a change of them needs a reason.
# Made by: coli diag --model demo --phases smoke,diagnostic,quality
KEPT = Path(__file__).with_name("diag_demo.json")


def diag(coli: CommandLine, model: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = coli.run("diag", "--model", str(model), "--json", *arguments, timeout_s=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def worse(document: dict[str, Any]) -> list[str]:
    names: list[str] = document["comparison"]["worse"]
    return names


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_the_demo_model_answers_as_it_did_when_its_figures_were_kept(
    coli: CommandLine, demo_gguf: Path
) -> None:
    code, document, said = diag(coli, demo_gguf, "--baseline", str(KEPT))
    assert worse(document) == []
    assert (code, document["problems"], document["status"]) == (0, [], "ok")
    judged = {r["metric"]: r["verdict"] for r in document["comparison"]["rows"]}
    assert judged["smoke.same_answers"] == "ok"
    assert judged["quality.logprob_per_token"] == "ok"
    assert [phase["state"] for phase in document["phases"].values()] == ["done"] * 5
    assert "nothing is worse than the baseline" in said
    text = (coli.home / "coli-diag" / "report.md").read_text(encoding="utf-8")
    assert "| quality.acc |" in text
    assert json.loads((coli.home / "coli-diag" / "report.json").read_text("utf-8")) == document


def test_the_figures_are_the_engines_own(coli: CommandLine, demo_gguf: Path) -> None:
    coli.variables["COLI_DRAFT"] = "off"  # rejected guesses are rows, too
    _, document, _ = diag(coli, demo_gguf, "--phases", "diagnostic", "-q")
    long_answer = document["phases"]["diagnostic"]
    counters, profile = long_answer["counters"], long_answer["profile"]
    assert counters["completion_tokens"] == long_answer["completion_tokens"] == 96
    assert counters["prompt_tokens"] == long_answer["prompt_tokens"] == profile["prompt_tokens"]
    assert profile["completion_tokens"] == 96
    fed = counters["prompt_tokens"] + counters["completion_tokens"] - counters["reused_tokens"]
    assert counters["num_rows"] == fed - 1  # the last token is not fed
    # 29 sparse layers, 27 experts of each per row
    assert document["metrics"]["diagnostic.selections_per_token"]["value"] == 29 * 27
    assert profile["expert_matmul_s"] + profile["attention_s"] <= profile["wall_s"]


@pytest.mark.parametrize(
    ("fault", "phases", "noticed"),
    [
        ("rope", "smoke,quality", {"smoke.same_answers", "quality.logprob_per_token"}),
        ("scale", "smoke,quality", {"smoke.same_answers", "quality.logprob_per_token"}),
    ],
)
def test_a_broken_model_is_noticed(
    coli: CommandLine, demo_gguf: Path, fault: str, phases: str, noticed: set[str]
) -> None:
    engine = write_broken(coli.home, fault)
    options = ("--engine-bin", str(engine), "--phases", phases, "--baseline", str(KEPT))
    code, document, said = diag(coli, demo_gguf, *options)
    assert code == 1
    assert noticed <= set(worse(document))
    assert all(name in said for name in noticed)


@pytest.mark.timed
def test_slower_kernels_are_noticed_and_nothing_else(coli: CommandLine, demo_gguf: Path) -> None:
    fast, slow = (write_broken(coli.home, fault) for fault in ("none", "slow"))
    phases = ("--phases", "quality,throughput")
    diag(coli, demo_gguf, "--engine-bin", str(fast), *phases, "--out", "before")
    baseline = coli.home / "before" / "report.json"
    code, document, _ = diag(
        coli, demo_gguf, "--engine-bin", str(slow), *phases, "--baseline", str(baseline)
    )
    assert code == 1
    assert "throughput.prefill" in worse(document)
    assert not [name for name in worse(document) if name.startswith("quality.")]
