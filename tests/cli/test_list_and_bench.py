"""`coli list` and `coli bench` as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colibri_cli.benchmark.measuring import drop_from_page_cache

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def add_model(coli: CommandLine, name: str) -> None:
    directory = coli.home / "data" / "colibri" / "models" / name
    directory.mkdir(parents=True)
    (directory / "w.gguf").write_bytes(b"x")
    manifest = {"family": "llama", "target": "w.gguf", "source": "t", "num_bytes": 98_362_432}
    (directory / "model.json").write_text(json.dumps({**manifest, "num_experts": None}))


def test_an_empty_store_says_how_to_fill_it(coli: CommandLine) -> None:
    done = coli.run("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "coli pull demo" in done.stderr
    assert json.loads(coli.run("list", "--json").stdout) == {"schema_version": 1, "models": []}


def test_its_short_name_does_the_same_with_options_before_and_after(coli: CommandLine) -> None:
    listed = coli.run("list", "--json")
    assert coli.run("ls", "--json").stdout == listed.stdout
    assert coli.run("--quiet", "ls").returncode == 0
    assert "Usage: coli list" in coli.run("ls", "--help").stdout


def test_variables_of_others_do_not_keep_it_from_running(coli: CommandLine) -> None:
    coli.variables |= {"CTX": "production", "SEED": "yes", "THINK": "maybe"}
    assert coli.run("list").returncode == 0
    assert coli.run("run", "hi").returncode == 2


def test_models_are_listed_one_per_line_without_wrapping(coli: CommandLine) -> None:
    coli.variables["COLUMNS"] = "40"
    for name in ("b", "a-model-with-a-rather-long-name"):
        add_model(coli, name)
    lines = coli.run("list").stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == [
        "a-model-with-a-rather-long-name",
        *("llama", "98", "MB", "-"),
        str(coli.home / "data/colibri/models/a-model-with-a-rather-long-name/w.gguf"),
    ]
    models = json.loads(coli.run("--json", "list").stdout)["models"]
    assert [model["name"] for model in models] == ["a-model-with-a-rather-long-name", "b"]


def test_a_listed_model_runs_by_its_name(served: CommandLine) -> None:
    add_model(served, "mine")
    done = served.run("run", "--model", "mine", "--json", "[[reply hi]]")
    assert json.loads(done.stdout)["model"] == "mine"


BENCH = ("bench", "--prompt", "32", "--generate", "8", "--repeats", "2")


def test_bench_prints_one_json_document(served: CommandLine) -> None:
    done = served.run(*BENCH, "--json", "-q", "--batch", "1,2")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    assert body["model"] == "tiny"
    warm = [row for row in body["speed"] if row["state"] == "warm"]
    assert [(row["kind"], row["batch"]) for row in warm] == [
        ("prefill", 1),
        ("decode", 1),
        ("decode", 2),
    ]
    assert all(len(row["repeats"]) == 2 for row in body["speed"])
    assert all(row["tokens_per_second"] > 0 for row in body["speed"])
    assert body["load"]["warm_s"] > 0
    assert body["peak_memory_bytes"] > 1_000_000


def test_bench_prints_a_table_and_says_what_it_does(served: CommandLine) -> None:
    done = served.run(*BENCH, "--no-load")
    assert done.returncode == 0
    assert "prefill" in done.stdout
    assert "peak memory" in done.stdout
    assert "round 2 of 2" in done.stderr


def test_bench_needs_a_model_and_sensible_numbers(coli: CommandLine) -> None:
    assert coli.run("bench").returncode == 3
    for arguments in (("--prompt", "0"), ("--batch", "99"), ("--rounds", "x")):
        done = coli.run("bench", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert arguments[0] in done.stderr


def test_prompts_have_their_length_where_words_are_many_tokens(
    tmp_path: Path, coli: CommandLine
) -> None:
    model = tmp_path / "fixture"
    make = ("-m", "colibri_engine", "fixture", "--geometry", "bench", "--layers", "2")
    subprocess.run([sys.executable, *make, str(model)], check=True, capture_output=True)
    sizes = ("--prompt", "128", "--context", "24", "--generate", "4")
    done = coli.run("bench", "--model", str(model), "--no-load", "--repeats", "1", *sizes, "--json")
    assert done.returncode == 0, done.stderr
    prefill, decode = json.loads(done.stdout)["speed"]
    assert 120 <= prefill["tokens"] <= 136
    assert 20 <= decode["context"] <= 36


def test_files_that_may_not_be_looked_at_stay_in_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_bytes(b"weights")

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    assert drop_from_page_cache(tmp_path) is False
