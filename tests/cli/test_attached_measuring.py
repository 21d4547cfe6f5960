"""`coli bench` and `coli diag` on a running server: what can be measured is, the rest is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fakes.scripted_upstream import ScriptedUpstream, running

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e

QUICK = ("--prompt", "16", "--generate", "8", "--rounds", "2", "--json", "-q")


def test_bench_measures_a_server_and_names_what_it_cannot(coli: CommandLine) -> None:
    with running(ScriptedUpstream(pace_s=0.001)) as upstream:
        done = coli.run("bench", "--attach", upstream.url, "--batch", "1,2", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["model"] == "scripted"
    assert document["server"] == {"url": upstream.url, "kind": "vllm"}
    assert [(row["kind"], row["batch"]) for row in document["speed"]] == [
        ("prefill", 1), ("decode", 1), ("decode", 2),
    ]  # fmt: skip
    assert all(row["tokens_per_second"] > 0 for row in document["speed"])
    assert document["peak_memory_bytes"] is document["load"]["cold_s"] is None
    assert any("load times" in what for what in document["absent"])
    assert upstream.bodies[-1]["ignore_eos"] is True


def test_bench_of_a_server_says_in_words_what_is_missing(coli: CommandLine) -> None:
    with running(ScriptedUpstream("somebody")) as upstream:
        done = coli.run("bench", "--attach", upstream.url, *QUICK[:-2], "-q", "--no-chart")
    assert done.returncode == 0
    assert f"scripted on {upstream.url} (openai), over HTTP" in done.stdout
    assert "not measured: answers of full length" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("bench", "--prompt", "9000"), "context of 4096 tokens is too short"),
        (("bench", "--ctx", "64"), "--ctx concerns an engine of its own"),
        (("bench", "--model", "other"), "serves scripted = second, not other"),
        (("diag", "--threads", "2"), "--threads concerns an engine of its own"),
    ],
)
def test_what_cannot_be_asked_of_a_server_is_refused(
    coli: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    with running(ScriptedUpstream(models=("scripted", "second"))) as upstream:
        done = coli.run(*arguments, "--attach", upstream.url)
        assert upstream.bodies == []
    assert named in done.stderr
    assert done.returncode == 2


def test_the_named_model_of_several_is_measured(coli: CommandLine) -> None:
    with running(ScriptedUpstream(models=("scripted", "second"))) as upstream:
        done = coli.run("bench", "--attach", upstream.url, "--model", "second", *QUICK)
    assert json.loads(done.stdout)["model"] == "second"
    assert {body["model"] for body in upstream.bodies} == {"second"}


def test_nobody_there_is_said(coli: CommandLine) -> None:
    done = coli.run("diag", "--attach", "http://127.0.0.1:9")
    assert "no server answers at http://127.0.0.1:9" in done.stderr
    assert done.returncode != 0


def test_diag_reports_on_a_server_and_skips_what_it_cannot(coli: CommandLine) -> None:
    with running(ScriptedUpstream("llamacpp")) as upstream:
        first = coli.run("diag", "--attach", upstream.url, "--json", "-q", "--out", "first")
        again = coli.run(
            "diag", "--attach", upstream.url, "--phases", "smoke", "--out", "again",
            "--baseline", "first/report.json",
        )  # fmt: skip
    assert (first.returncode, first.stderr) == (0, "")
    document = json.loads(first.stdout)
    phases = document["phases"]
    assert phases["system"]["server"] == upstream.url
    assert phases["system"]["load_s"] is phases["diagnostic"]["rss_gb"] is None
    assert {"load_s", "tiers"} <= set(phases["system"]["absent"])
    assert phases["quality"]["state"] == "skipped"
    assert "the server cannot: a constraint of the kind lark" in phases["quality"]["reason"]
    assert not {"system.load_s", "diagnostic.hit_percent"} & set(document["metrics"])
    assert document["metrics"]["throughput.decode"]["value"] > 0
    assert "nothing is worse than the baseline" in again.stderr
    assert again.returncode == 0
    assert "asked over HTTP at" in (coli.home / "again" / "report.md").read_text()


def test_talking_to_another_engine_leaves_the_usual_limit_to_it(coli: CommandLine) -> None:
    """vLLM refuses a limit beyond its context, which ours for a chat is for many models."""
    with running(ScriptedUpstream()) as upstream:
        done = coli.run("chat", "--attach", upstream.url, "-q", stdin="hi\n")
        assert (done.returncode, done.stdout.strip()) == (0, "hi")
        done = coli.run("run", "--attach", upstream.url, "hi")
        assert (done.returncode, done.stdout.strip()) == (0, "hi")
        assert [body.get("max_tokens") for body in upstream.bodies] == [None, None]
        coli.run("run", "--attach", upstream.url, "--max-tokens", "3", "hi")
        coli.run("run", "--attach", upstream.url, "--no-template", "hi")
        assert [body.get("max_tokens") for body in upstream.bodies[2:]] == [3, 1024]
