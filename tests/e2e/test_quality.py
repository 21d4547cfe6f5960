"""`coli bench quality` with real weights: figures by hand, going on, comparing, start tokens."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.rows_server import serve_rows, status
from tests.fakes.tiny_checkpoint import write_hf

pytestmark = pytest.mark.e2e


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    coli = CommandLine(tmp_path)
    coli.variables["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return coli


def quality(coli: CommandLine, model: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = coli.run("bench", "quality", "--model", str(model), "--json", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def write_task(data: Path, name: str, count: int) -> None:
    data.mkdir(parents=True, exist_ok=True)
    rows = [
        {"ctx": f"{n} hello", "choices": [" world", " in", " a"], "gold": n % 3}
        for n in range(count)
    ]
    (data / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def first_tokens(coli: CommandLine, model: Path, prompt: str) -> dict[str, float]:
    """Return the likeliest first tokens of a reply and their log-probabilities, from the API."""
    process = coli.start("serve", "--model", str(model), "--port", "0")
    try:
        assert process.stderr is not None
        said = ""
        while "ready:" not in said:
            line = process.stderr.readline().decode()
            assert line, said
            said += line
        url = said.partition("listening on ")[2].partition(";")[0]
        body = {"model": "demo", "prompt": prompt, "max_tokens": 1, "logprobs": 5}
        request = urllib.request.Request(
            f"{url}/v1/completions",
            json.dumps({**body, "temperature": 0}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            found: dict[str, float] = json.load(answer)["choices"][0]["logprobs"]["top_logprobs"][0]
        return found
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_log_probabilities_are_those_of_the_api(
    coli: CommandLine, tmp_path: Path, demo_gguf: Path
) -> None:
    prompt = "The capital of France is"
    expected = first_tokens(coli, demo_gguf, prompt)
    assert len(expected) == 5
    row = {"ctx": prompt, "choices": list(expected), "gold": 0}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    _, report, _ = quality(coli, demo_gguf, "mine", "--data", str(tmp_path))
    (item,) = report["items"]
    assert item["logprobs"] == pytest.approx(list(expected.values()), abs=1e-6)
    assert report["tasks"][0]["acc"] == 100.0


def test_missing_tasks_are_left_out_with_a_notice_and_none_left_is_a_failure(
    coli: CommandLine, tmp_path: Path
) -> None:
    coli.variables["COLI_OFFLINE"] = "1"
    model = write_hf(tmp_path / "tiny").path
    code, report, said = quality(coli, model)
    assert (code, report) == (1, {})
    assert all(name in said for name in ("hellaswag", "arc_challenge", "mmlu", "smoke"))
    write_task(tmp_path / "cache" / "colibri" / "bench", "mmlu", 3)
    code, report, said = quality(coli, model)
    assert code == 0
    assert [row["task"] for row in report["tasks"]] == ["mmlu"]
    assert "hellaswag is left out" in said


def test_a_run_that_was_cut_off_goes_on_and_another_model_is_refused(
    coli: CommandLine, tmp_path: Path
) -> None:
    model = write_hf(tmp_path / "tiny").path
    write_task(tmp_path / "data", "mine", 6)
    options = ("mine", "--data", str(tmp_path / "data"), "--out", "kept.jsonl")
    _, whole, _ = quality(coli, model, *options)
    kept = tmp_path / "kept.jsonl"
    lines = kept.read_text().splitlines()
    assert len(lines) == 7
    kept.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])
    code, again, _ = quality(coli, model, *options)
    assert (code, again) == (0, whole)
    other = write_hf(tmp_path / "other", num_hidden_layers=3).path
    code, _, said = quality(coli, other, *options)
    assert code == 2
    assert "another model" in said


def test_two_runs_are_compared(coli: CommandLine, tmp_path: Path) -> None:
    write_task(tmp_path / "data", "mine", 9)
    for name, seed in (("a", 0), ("b", 5)):
        model = write_hf(tmp_path / name, seed=seed).path
        _, report, _ = quality(coli, model, "mine", "--data", str(tmp_path / "data"))
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    done = coli.run("bench", "quality", "--compare", "a.json", "b.json", "--json")
    row = json.loads(done.stdout)["comparison"][0]
    a, b = (json.loads((tmp_path / f"{n}.json").read_text())["tasks"][0]["acc"] for n in "ab")
    assert row["difference"] == pytest.approx(b - a, abs=0.02)
    assert coli.run("bench", "quality", "--compare", "a.json", "missing").returncode == 2


def test_texts_of_glm_begin_with_its_start_tokens(coli: CommandLine, tmp_path: Path) -> None:
    from tests.fakes.tiny_checkpoint import tokenizer_json, write_json

    model = write_hf(tmp_path / "tiny", "glm4_moe").path
    body = tokenizer_json()
    for token in body["added_tokens"]:
        renamed = {"<|user|>": "[gMASK]", "<|assistant|>": "<sop>"}.get(token["content"])
        if renamed is not None:
            body["model"]["vocab"][renamed] = body["model"]["vocab"].pop(token["content"])
            token["content"] = renamed
    write_json(model / "tokenizer.json", body)
    _, with_start, _ = quality(coli, model, "smoke")
    _, without, _ = quality(coli, model, "smoke", "--no-start")
    assert with_start["start_tokens"] == "[gMASK]<sop>"
    assert without["start_tokens"] == ""
    first, second = (r["items"][0]["logprobs"] for r in (with_start, without))
    assert first != second


def test_an_engine_that_cannot_score_is_refused(tmp_path: Path) -> None:
    from tests.fakes.fake_engine import write_executable

    (tmp_path / "tiny").mkdir()
    engine = write_executable(tmp_path)
    coli = CommandLine(tmp_path, {"COLI_ENGINE": str(engine), "FAKE_ENGINE": '{"words": []}'})
    code, _, said = quality(coli, tmp_path / "tiny", "smoke")
    assert code == 2
    assert "cannot score" in said


def test_a_public_set_is_fetched_once(coli: CommandLine, tmp_path: Path) -> None:
    model = write_hf(tmp_path / "tiny").path
    with serve_rows() as server:
        coli.variables["COLI_DATASETS_URL"] = server.url
        server.failures = [status(429, Retry_After="1")]
        code, first, said = quality(coli, model, "piqa", "winogrande", "--limit", "3")
        assert code == 0, said
        assert [(row["task"], row["n"]) for row in first["tasks"]] == [
            ("piqa", 3), ("winogrande", 3),
        ]  # fmt: skip
        assert f"fetching piqa from {server.url.removeprefix('http://')}, once" in said
        kept = tmp_path / "cache" / "colibri" / "bench" / "piqa.jsonl"
        assert f"200 questions are kept in {kept}" in said
        asked = {request["dataset"] for request in server.requests}
        assert asked == {"baber/piqa", "ybisk/piqa", "allenai/winogrande"}
    code, again, said = quality(coli, model, "piqa", "winogrande", "--limit", "3")
    assert code == 0, said
    assert "fetching" not in said
    assert again["items"] == first["items"]


@pytest.mark.parametrize(
    ("variable", "flags"),
    [("HF_HUB_OFFLINE", ()), ("COLI_OFFLINE", ()), ("COLI_DEBUG", ("--offline",))],
)
def test_offline_nothing_is_asked_and_no_task_is_left(
    coli: CommandLine, tmp_path: Path, variable: str, flags: tuple[str, ...]
) -> None:
    with serve_rows() as server:
        coli.variables |= {"COLI_DATASETS_URL": server.url, variable: "1"}
        code, _, said = quality(coli, write_hf(tmp_path / "tiny").path, *flags)
    assert code == 1
    assert server.requests == []
    for name in ("hellaswag", "arc_challenge", "mmlu"):
        assert f"the task {name} is left out: nothing is fetched offline" in said
    assert "no task is left; `smoke` needs no data" in said


def test_a_task_of_ones_own_asks_nobody(coli: CommandLine, tmp_path: Path) -> None:
    with serve_rows() as server:
        coli.variables["COLI_DATASETS_URL"] = server.url
        code, _, said = quality(coli, write_hf(tmp_path / "tiny").path, "smoke", "mine")
    assert code == 0, said
    assert server.requests == []
    assert "mine is left out: there is no" in said
