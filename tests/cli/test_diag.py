"""`coli diag` with a scripted engine: what an engine cannot do is said, errors end it rightly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


def test_what_the_engine_cannot_do_is_a_skipped_phase(served: CommandLine) -> None:
    words = json.dumps({"words": ["options", "segments", "stats", "model", "count"]})
    served.variables["FAKE_ENGINE"] = words
    done = served.run("diag", "--json", "-q", "--phases", "smoke,quality")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["phases"]["quality"]["state"] == "skipped"
    assert "grammars" in document["phases"]["quality"]["reason"]
    assert [c["answer"] for c in document["phases"]["smoke"]["cases"]] == [
        "Hello from the fake engine."
    ] * 12
    assert document["metrics"]["smoke.passed"]["value"] == 2


def test_the_table_goes_to_standard_output_and_the_rest_beside_it(served: CommandLine) -> None:
    done = served.run("diag", "--phases", "smoke", "--out", "here")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["figure", "now", "unit"]
    assert "\x1b" not in done.stdout
    assert "smoke: factual, capital" in done.stderr
    assert (served.home / "here" / "report.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--phases", "smok"), "smoke"),
        (("--tolerance", "quality.accc=1"), "quality.acc"),
        (("--baseline", "missing.json"), "missing.json"),
    ],
)
def test_wrong_use_is_refused_before_a_model_is_loaded(
    served: CommandLine, arguments: tuple[str, ...], named: str
) -> None:
    done = served.run("diag", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "loading" not in done.stderr


def test_a_report_that_cannot_be_written_is_still_shown(served: CommandLine) -> None:
    done = served.run("diag", "--phases", "smoke", "--out", "/proc/version/report")
    assert done.returncode == 1
    assert "smoke" in done.stdout
    assert "the report cannot be written" in done.stderr


def test_it_needs_a_model(coli: CommandLine) -> None:
    assert coli.run("diag").returncode == 3


def test_an_engine_that_dies_fails_the_run_and_the_report_tells(served: CommandLine) -> None:
    # Without framed prompts the whole prompt directs the scripted engine, the template included.
    template = "{% for m in messages %}{{ m.content }}{% endfor %}[[die]]"
    script = {"words": ["options", "model"], "model": {"family": "x", "chat_template": template}}
    served.variables["FAKE_ENGINE"] = json.dumps(script)
    done = served.run("diag", "--json", "--phases", "smoke")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["status"] == "failed"
    assert "SIGKILL" in document["phases"]["smoke"]["error"]
