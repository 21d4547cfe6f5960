"""Kept profiles: to which runs they apply, and to which they do not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from colibri_cli.errors import StoreError
from colibri_cli.tuning.profile import (
    fingerprint,
    profile_path,
    read_profile,
    tuned_settings,
    write_profile,
)
from colibri_protocol.settings import resolve
from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import write_hf

BODY: dict[str, Any] = {"accepted": True, "winner": {"settings": {"num_threads": "1"}}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    return path


def tuned(model: Path, **environ: str) -> dict[str, str]:
    return tuned_settings(resolve({}, {"COLI_AUTO_TIER": "1", **environ}, {}), model)


def test_places_without_files_that_can_be_looked_at(tmp_path: Path) -> None:
    assert fingerprint(Path(os.devnull))  # no file, and no directory either
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"cannot read .*gone\.gguf: No such file"):
        fingerprint(tmp_path)


def test_a_profile_applies_only_where_it_is_asked_for(model: Path) -> None:
    assert tuned(model) == {}
    write_profile(fingerprint(model), BODY)
    assert tuned(model) == {"num_threads": "1"}
    assert tuned_settings(resolve({}, {}, {}), model) == {}


def test_what_the_user_set_counts_more(model: Path) -> None:
    write_profile(fingerprint(model), BODY)
    assert tuned(model, COLI_NUM_THREADS="2") == {}


def test_other_weights_or_another_processor_have_another_profile(
    model: Path, tmp_path: Path
) -> None:
    mark = fingerprint(model)
    assert fingerprint(model) == mark
    os.utime(model, (1, 1))
    assert fingerprint(model) != mark
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("model name : Another\n")
    assert fingerprint(model, cpu) != fingerprint(model)


@pytest.mark.parametrize(
    "changed",
    [
        {"accepted": False},
        {"winner": {"settings": {"num_threads": "1", "temperature": "2"}}},
        {"winner": {"settings": {"num_threads": 1}}},
        {"winner": {"settings": ["num_threads"]}},
        {"winner": None},
        {"schema_version": 2},
        {"fingerprint": "other"},
    ],
)
def test_a_profile_that_is_not_quite_right_is_not_applied(
    model: Path, changed: dict[str, Any]
) -> None:
    mark = fingerprint(model)
    path = write_profile(mark, BODY)
    assert read_profile(mark) == {"num_threads": "1"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    assert read_profile(mark) == {}


def test_a_file_that_is_no_json_is_not_applied(model: Path) -> None:
    path = profile_path(fingerprint(model))
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert read_profile(fingerprint(model)) == {}


@pytest.mark.e2e
def test_tuning_measures_keeps_shows_applies_and_removes(tmp_path: Path) -> None:
    coli = CommandLine(tmp_path)
    model = write_hf(tmp_path / "tiny", "glm4_moe").path
    named = ("--model", str(model))
    assert "no profile" in coli.run("tune", *named, "--show").stderr
    done = coli.run("tune", *named, "--json", "--tokens", "4", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["baseline"]["tokens_per_second"] > 0
    assert body["candidates"]
    assert {c["verdict"] for c in body["candidates"]} <= {
        "better",
        "not clearly faster",
        "its slowest tokens are slower",
    }
    path = Path(body["profile"])
    assert json.loads(coli.run("tune", *named, "--show").stdout)["candidates"] == body["candidates"]

    kept = {**json.loads(path.read_text()), **BODY}
    path.write_text(json.dumps(kept))
    info = (*named, "--no-load", "--prompt", "4", "--generate", "4", "--repeats", "1", "--json")
    for options, threads in ((("--auto-tier",), 1), (("--auto-tier", "--threads", "2"), 2)):
        shown = json.loads(coli.run("bench", *info, *options).stdout)
        assert shown["engine"]["num_threads"] == threads
    assert coli.run("tune", *named, "--rm").returncode == 0
    assert not path.exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    "options", [("--tokens", "3"), ("--repeats", "6"), ("--min-gain", "2"), ("--timeout", "0"),
                ("--auto-tier",)]
)  # fmt: skip
def test_wrong_use_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = CommandLine(tmp_path).run("tune", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert options[0] in done.stderr
