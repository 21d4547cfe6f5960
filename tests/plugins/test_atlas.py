"""The atlas of experts: measured on a model, and worked out from runs written by hand."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.plugin_api import UsageError
from colibri_plugins._atlas_analysis import analyze, page_data, report, validate
from colibri_plugins._atlas_runs import PROBES, Run, read_probes, read_runs
from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import write_hf

TOPICS = {"german": ["Wie backt man Brot?", "Wo liegt Bonn?"], "code": ["def add(a, b):", "x = [1"]}


def run(topic: str, *rows: tuple[int, ...], prompt: str = "p") -> Run:
    return Run({"id": "m"}, topic, prompt, 8, tuple(range(3, 3 + len(rows))), rows)


# Expert 3:0 works for a alone, 4:1 for b alone, 3:1 and 4:0 for both alike.
RUNS = [
    run("a", (20, 20, 0), (40, 0, 0), prompt="1"),
    run("a", (20, 20, 0), (40, 0, 0), prompt="2"),
    run("b", (0, 20, 20), (40, 20, 0), prompt="3"),
    run("b", (0, 20, 0), (40, 20, 20), prompt="4"),
]


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    path = tmp_path / "probes.json"
    path.write_text(json.dumps(TOPICS))
    return path


def test_affinities_follow_the_formula() -> None:
    atlas = analyze(RUNS, min_count=30)
    found = {(e.layer, e.expert): e for e in atlas.experts}
    assert sorted(found) == [(3, 0), (3, 1), (4, 0), (4, 1)]
    assert (atlas.num_rare, atlas.num_unreplicated) == (2, 0)
    alone, shared = found[3, 0], found[3, 1]
    assert (alone.p, alone.specialization, alone.lift, alone.entropy) == ((1, 0), 1, 2, 0)
    assert (alone.total, alone.num_fired, alone.num_runs, alone.top) == (40, 2, 2, 0)
    in_a, in_b = 20 / 80, (20 / 100 + 20 / 100) / 2
    p = (in_a / (in_a + in_b), in_b / (in_a + in_b))
    assert shared.p == pytest.approx(p)
    assert shared.entropy == pytest.approx(-sum(x * math.log2(x) for x in p))
    assert shared.specialization == pytest.approx(1 + sum(x * math.log(x) for x in p) / math.log(2))


def test_an_expert_of_one_prompt_only_is_no_specialist() -> None:
    atlas = analyze(RUNS, min_count=1)
    assert {(e.layer, e.expert) for e in atlas.experts} == {(3, 0), (3, 1), (4, 0), (4, 1)}
    assert (atlas.num_rare, atlas.num_unreplicated) == (0, 2)
    assert len(analyze(RUNS, min_count=1, min_runs=1).experts) == 6


def test_the_page_gets_what_it_reads() -> None:
    body = page_data(analyze(RUNS))
    assert body["categories"] == ["a", "b"]
    assert body["experts"]["3:0"] == {
        "affinity": {"a": 1.0, "b": 0.0}, "entropy": 0.0, "top": "a", "label": "specialist: a",
    }  # fmt: skip
    assert body["experts"]["3:1"]["label"] == "generalist"
    full = report(analyze(RUNS))
    assert full["experts"][0]["reliability"] == "2/2"
    assert set(full["experts"][0]) == {
        "layer", "expert", "total", "spec", "top_topic", "top_lift", "reliability", "p",
    }  # fmt: skip


def test_a_topic_is_guessed_from_the_other_runs_alone() -> None:
    assert [guess.guess for guess in validate(RUNS, k=2)] == ["a", "a", "b", "b"]
    odd = run("b", (20, 20, 0), (40, 0, 0), prompt="5")  # says b, looks like a
    assert [guess.guess for guess in validate([*RUNS, odd], k=2)][-1] == "a"
    with pytest.raises(UsageError, match="the topic b has one run"):
        validate(RUNS[:3])
    with pytest.raises(UsageError, match="runs of a alone"):
        validate(RUNS[:2])


def test_the_usual_prompts_are_ten_topics_of_three() -> None:
    probes = read_probes(PROBES)
    assert [len(prompts) for prompts in probes.values()] == [3] * 10
    assert list(probes) == [
        "code_python", "code_sql", "math_proof", "chinese", "german", "poetry", "law", "medicine",
        "json_format", "casual_chat",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "no JSON"),
        ('{"a": ["x"]}', "at least two topics"),
        ('{"a": ["x"], "../b": ["y"]}', r"'\.\./b'"),
        ('{"a": ["x"], "b": ["y", "y"]}', "b has no list of different texts"),
        ('{"a": ["x"], "b": "y"}', "b has no list"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "probes.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=named):
        read_probes(path)


def answer(coli: CommandLine, *arguments: str) -> dict[str, Any]:
    done = coli.run("atlas", *arguments, "--json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    body: dict[str, Any] = json.loads(done.stdout)
    return body


@pytest.mark.e2e
def test_the_demo_model_is_swept_analyzed_and_validated(
    coli: CommandLine, demo_gguf: Path, probes: Path
) -> None:
    beside = {path.name: path.stat().st_mtime_ns for path in demo_gguf.parent.iterdir()}
    options = ("--model", str(demo_gguf), "--probes", str(probes), "--ngen", "6")
    swept = answer(coli, "sweep", *options)
    assert (swept["run"], swept["kept"]) == (4, 0)
    runs = read_runs(Path(swept["out"]))
    assert {run.topic for run in runs} == set(TOPICS)
    for one in runs:  # 27 of 36 experts for each token, in each of 29 layers
        assert one.layers == tuple(range(1, 30))
        tokens, rest = divmod(sum(one.counts[0]), 27)
        assert rest == 0
        assert tokens > 6
        assert {sum(row) for row in one.counts} == {27 * tokens}
        assert {len(row) for row in one.counts} == {36}
        assert max(map(max, one.counts)) <= tokens
    assert answer(coli, "sweep", *options)["kept"] == 4
    analyzed = answer(coli, "analyze", "--model", str(demo_gguf))
    page = json.loads(Path(analyzed["web"]).read_text())
    assert page["categories"] == ["code", "german"]
    assert len(page["experts"]) == len(analyzed["experts"]) > 900
    for expert in page["experts"].values():
        assert sum(expert["affinity"].values()) == pytest.approx(1, abs=2e-4)
        assert expert["top"] == max(expert["affinity"], key=expert["affinity"].__getitem__)
    shown = coli.run("atlas", "analyze", "--stats", swept["out"])
    assert f"{len(page['experts'])} experts, 0 specialists" in shown.stdout
    validated = answer(coli, "validate", swept["out"])
    assert (validated["num_runs"], validated["chance"]) == (4, 0.5)
    assert validated["accuracy"] == validated["num_right"] / 4
    told = coli.run("atlas", "validate", swept["out"]).stdout
    assert told == (
        f"{validated['num_right']} of 4 topics found ({validated['accuracy']:.1%}); "
        "chance is 50.0%\n"
    )
    assert beside == {path.name: path.stat().st_mtime_ns for path in demo_gguf.parent.iterdir()}


@pytest.mark.e2e
def test_an_interrupted_sweep_leaves_the_history_alone_and_goes_on(
    coli: CommandLine, tmp_path: Path, probes: Path
) -> None:
    model = write_hf(tmp_path / "model", "glm4_moe").path
    history = b"-1 2 8\n-2 1 1\n1 0 500\n"
    (model / ".coli_usage").write_bytes(history)
    options = ("--model", str(model), "--probes", str(probes), "--out", "runs")
    process = coli.start("atlas", "sweep", *options, "--ngen", "400")
    assert process.stderr is not None
    while b"1 of 4" not in (line := process.stderr.readline()):
        assert line, "it ended before its first run"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in said) == (130, False)
    made = len(list((tmp_path / "runs").glob("*.run.json")))
    assert 1 <= made < 4
    swept = answer(coli, "sweep", *options, "--ngen", "400")
    assert (swept["run"], swept["kept"]) == (4 - made, made)
    assert (model / ".coli_usage").read_bytes() == history
    done = coli.run("atlas", "sweep", *options, "--ngen", "5")
    assert done.returncode == 0
    mixed = coli.run("atlas", "validate", "runs")
    assert (mixed.returncode, "400 tokens each" in mixed.stderr) == (2, True)


@pytest.mark.e2e
def test_what_cannot_be_mapped_is_refused_in_one_line(
    coli: CommandLine, tmp_path: Path, probes: Path
) -> None:
    dense = write_hf(tmp_path / "dense").path
    done = coli.run("atlas", "sweep", "--model", str(dense), "--probes", str(probes))
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no experts" in done.stderr
    assert "--model" in coli.run("atlas", "validate").stderr
    (tmp_path / "a-1.run.json").write_text('{"kind": "atlas run", "schema_version": 1}')
    done = coli.run("atlas", "analyze", "--stats", str(tmp_path))
    assert (done.returncode, "a-1.run.json is no run" in done.stderr) == (2, True)
    done = coli.run("serve", "--model", str(dense), "--atlas", "nothing.json", "--port", "0")
    assert (done.returncode, "no file nothing.json" in done.stderr) == (2, True)


def test_the_model_may_be_named_by_the_variable(coli: CommandLine, tmp_path: Path) -> None:
    model = write_hf(tmp_path / "tiny", "glm4_moe").path
    coli.variables["COLI_MODEL"] = str(model)
    for command in ("analyze", "validate"):
        done = coli.run("atlas", command)
        assert (done.returncode, "coli atlas sweep" in done.stderr) == (2, True), done.stderr
